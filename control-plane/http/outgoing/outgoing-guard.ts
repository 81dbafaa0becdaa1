/**
 * The guard of all requests that this service makes for callers (image_url, callback_url). It
 * connects only to public addresses and to the networks that the operator allowed.
 *
 * | step    | by                              | checks                                           |
 * |---------|---------------------------------|--------------------------------------------------|
 * | text    | outgoing-url.ts                 | parsed once; scheme, userinfo, port, host        |
 * | resolve | requireAddresses                | every address of the name                        |
 * | check   | requireAddresses                | all addresses or none, literals too              |
 * | connect | openClient                      | only those addresses, without another look-up;   |
 * |         |                                 | the certificate against the URL's host           |
 *
 * A redirect starts again at the first step. It uses no proxy of the environment, no cookies, no
 * credentials, no kept connection and no HTTP/2.
 */
import { isIP, type LookupFunction, SocketAddress } from 'node:net';
import { boundPieces } from '@matting/program/piece-count.ts';
import { raceAbort } from '@matting/program/waiting.ts';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { skipInterimAnswers } from './interim-answers.ts';
import { interfaceAddresses, isAllowedNetwork, isOpenAddress } from './open-addresses.ts';
import { ForbiddenUrlError, isLocalhost, NOT_PUBLIC, type OutgoingPolicy } from './outgoing-url.ts';
import {
  createInnerResolver,
  createPublicResolver,
  createSystemResolver,
  type ResolveHost,
} from './resolve-host.ts';

/** Codes of Node, and of OpenSSL's checks of a certificate. */
export const TLS_CODE =
  /^(ERR_(TLS|SSL)_|EPROTO$|(CERT|CRL|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO|INVALID_(CA|PURPOSE)|HOSTNAME)_)/;

/** Either may have a listener, and the operator may have allowed only one. */
const LOOPBACK = ['127.0.0.1', '::1'];

/** A name may have dozens of addresses. */
const ADDRESSES_TRIED_MAX = 4;

interface OutgoingGuardOptions {
  readonly policy: OutgoingPolicy;
  readonly resolveHost?: ResolveHost;
  /** Concurrent look-ups of the system's resolver. Default: one. */
  readonly systemLookupsMax?: number;
  readonly createConnector?: CreateConnector;
  /** This machine's addresses. Callers reach none of them, not even public ones. */
  readonly ownAddresses?: () => ReadonlySet<string>;
}

export interface ConnectionLimits {
  readonly connectMs: number;
  /** From the request to the response's headers. */
  readonly firstByteMs: number;
  /** Between two pieces of the body. */
  readonly idleMs: number;
  readonly headerBytesMax: number;
}

export class OutgoingGuard {
  readonly policy: OutgoingPolicy;
  readonly #resolveHost: ResolveHost;
  readonly #createConnector: CreateConnector;
  readonly #ownAddresses: () => ReadonlySet<string>;

  constructor(options: OutgoingGuardOptions) {
    const { policy } = options;
    this.policy = policy;
    const isInner = policy.allowPrivateAddresses || (policy.allowedNetworks ?? []).length > 0;
    const system = createSystemResolver(options.systemLookupsMax ?? 1);
    this.#resolveHost =
      options.resolveHost ?? (isInner ? createInnerResolver({ system }) : createPublicResolver());
    this.#createConnector = options.createConnector ?? createPinnedConnector;
    this.#ownAddresses = options.ownAddresses ?? interfaceAddresses;
  }

  /**
   * Empty: the name has no address.
   * @param host of hostOf; a literal is checked here too, because Node does not resolve it
   * @throws ForbiddenUrlError: one of the addresses is not allowed
   */
  async requireAddresses(
    host: string,
    signal: AbortSignal,
    accountId: string,
  ): Promise<readonly string[]> {
    signal.throwIfAborted();
    const { allowPrivateAddresses } = this.policy;
    const own = this.#ownAddresses();
    const isOpen = (address: string): boolean =>
      own.has(address)
        ? isAllowedNetwork(address, this.policy)
        : isOpenAddress(address, this.policy);
    if (!allowPrivateAddresses && isLocalhost(host)) {
      const open = LOOPBACK.filter(isOpen);
      if (open.length === 0) throw new ForbiddenUrlError(NOT_PUBLIC);
      return open;
    }
    const addresses =
      isIP(host) === 0
        ? await raceAbort(this.#resolveHost(host, signal, accountId), signal)
        : [host];
    if (!allowPrivateAddresses && !addresses.every(isOpen)) throw new ForbiddenUrlError(NOT_PUBLIC);
    return addresses;
  }

  /** For one request. The caller destroys it. */
  openClient(url: URL, addresses: readonly string[], limits: ConnectionLimits) {
    const connect = this.#createConnector(addressesToTry(addresses), limits.connectMs);
    const client = new Client(url.origin, {
      connect: (options, callback) =>
        connect(options, (...[error, socket]) => {
          if (error !== null) return callback(error, null);
          skipInterimAnswers(socket, limits.headerBytesMax);
          callback(null, socket);
        }),
      headersTimeout: limits.firstByteMs,
      bodyTimeout: limits.idleMs,
      maxHeaderSize: limits.headerBytesMax,
      allowH2: false,
      pipelining: 1,
    });
    return Object.assign(client, { [Symbol.asyncDispose]: () => client.destroy() });
  }
}

/** Bounds the answer's pieces, in addition to its bytes. */
export async function boundedRequest(
  client: Client,
  options: Dispatcher.RequestOptions,
): Promise<Dispatcher.ResponseData> {
  const response = await client.request(options);
  boundPieces(response.body);
  return response;
}

/** Alternates between IPv6 and IPv4, since a machine may have only one of them. */
function addressesToTry(addresses: readonly string[]): readonly string[] {
  const v4 = addresses.filter(address => isIP(address) === 4);
  const v6 = addresses.filter(address => isIP(address) !== 4);
  const inTurn = addresses.flatMap((_, i) => [...v6.slice(i, i + 1), ...v4.slice(i, i + 1)]);
  return inTurn.slice(0, ADDRESSES_TRIED_MAX);
}

/** Time for each of several addresses. The last gets the rest of the connection's time. */
const CONNECT_ATTEMPT_MS = 1000;

type Connector = buildConnector.connector;

export type CreateConnector = (addresses: readonly string[], connectMs: number) => Connector;

function asReported(address: string): string {
  return new SocketAddress({ address, family: isIP(address) === 6 ? 'ipv6' : 'ipv4' }).address;
}

/**
 * Node calls `lookup` for names only, so callers check literals before. In both cases the
 * certificate is checked against the URL's host.
 */
export const createPinnedConnector: CreateConnector = (addresses, connectMs) => {
  const answers = addresses.map(address => ({ address, family: isIP(address) }));
  const checked = new Set(addresses.map(asReported));
  const lookup: LookupFunction = (_host, options, callback) => {
    const [first] = answers;
    if (options.all === true) callback(null, answers);
    else if (first !== undefined) callback(null, first.address, first.family);
    else callback(new Error('there is no checked address to connect to'), []);
  };
  const connect = buildConnector({
    lookup,
    timeout: connectMs,
    allowH2: false,
    maxCachedSessions: 0,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: CONNECT_ATTEMPT_MS,
  });
  return (options, callback) => {
    connect(options, (...[error, socket]) => {
      if (error !== null) {
        callback(error, null);
      } else if (socket.remoteAddress === undefined || !checked.has(socket.remoteAddress)) {
        // Only a bug can cause this.
        socket.destroy();
        callback(new Error('connected to an address that was not checked'), null);
      } else {
        callback(null, socket);
      }
    });
  };
};
