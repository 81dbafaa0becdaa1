/**
 * The one guard of all requests that this service makes for callers: image_url and callback_url
 * alike. It connects to public addresses only, and to the networks that the operator allowed.
 *
 * | step    | who                             | what                                             |
 * |---------|---------------------------------|--------------------------------------------------|
 * | text    | outgoing-url.ts                 | parsed once; scheme, userinfo, port, host        |
 * | resolve | requireAddresses                | every address the name has                       |
 * | check   | requireAddresses                | all of them, or none is used; literals too       |
 * | connect | openClient                      | to those addresses; the name is not asked again; |
 * |         |                                 | the certificate is checked against the URL's host|
 *
 * Redirects, where they are followed, begin at the first step again. No proxy of the environment,
 * no cookie, no credential, no kept connection, no HTTP/2.
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

/** Codes of Node and of OpenSSL's checks of a certificate. */
export const TLS_CODE =
  /^(ERR_(TLS|SSL)_|EPROTO$|(CERT|CRL|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO|INVALID_(CA|PURPOSE)|HOSTNAME)_)/;

/** Either may have a listener, and the operator may have allowed one of them alone. */
const LOOPBACK = ['127.0.0.1', '::1'];

/** Checked addresses that are tried for one connection; a name may have dozens. */
const ADDRESSES_TRIED_MAX = 4;

interface OutgoingGuardOptions {
  readonly policy: OutgoingPolicy;
  readonly resolveHost?: ResolveHost;
  /** Look-ups at a time of the system's resolver, for inner networks; one where absent. */
  readonly systemLookupsMax?: number;
  readonly createConnector?: CreateConnector;
  /** Addresses of this machine: callers reach none of them, not even public ones. */
  readonly ownAddresses?: () => ReadonlySet<string>;
}

export interface ConnectionLimits {
  readonly connectMs: number;
  /** The time from the request to the response's headers. */
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
   * Every address of the host, all of them checked; none where the name has none.
   * @param host of hostOf; Node asks no resolver for a literal, so it is checked here like the rest
   * @throws ForbiddenUrlError where one of them may not be reached
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

  /** A connection to addresses of requireAddresses for one request; its user destroys it. */
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

/** Bounds what an answer costs beside its bytes. */
export async function boundedRequest(
  client: Client,
  options: Dispatcher.RequestOptions,
): Promise<Dispatcher.ResponseData> {
  const response = await client.request(options);
  boundPieces(response.body);
  return response;
}

/** Both families in turn: a machine may have but one of them. */
function addressesToTry(addresses: readonly string[]): readonly string[] {
  const v4 = addresses.filter(address => isIP(address) === 4);
  const v6 = addresses.filter(address => isIP(address) !== 4);
  const inTurn = addresses.flatMap((_, i) => [...v6.slice(i, i + 1), ...v4.slice(i, i + 1)]);
  return inTurn.slice(0, ADDRESSES_TRIED_MAX);
}

/* Connections to addresses that were checked before: the only place that opens one. */

/** Time for one of several addresses; the last gets what is left of the connection's time. */
const CONNECT_ATTEMPT_MS = 1000;

type Connector = buildConnector.connector;

/** @param addresses checked, in the order to try them */
export type CreateConnector = (addresses: readonly string[], connectMs: number) => Connector;

/** The spelling sockets report: an IPv6 address has several. */
function asReported(address: string): string {
  return new SocketAddress({ address, family: isIP(address) === 6 ? 'ipv6' : 'ipv4' }).address;
}

/**
 * Node calls `lookup` for names only: an address as the host is connected to directly, so callers
 * check it before. The certificate is checked against the URL's host in both cases.
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
        // Only a bug can cause this; nothing is read from the wrong peer.
        socket.destroy();
        callback(new Error('connected to an address that was not checked'), null);
      } else {
        callback(null, socket);
      }
    });
  };
};
