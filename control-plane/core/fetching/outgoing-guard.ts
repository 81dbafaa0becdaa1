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
 * no cookie, no credential, no kept connection, no HTTP/2, no decompression.
 */
import { isIP } from 'node:net';
import { Client } from 'undici';
import { raceAbort } from '#program/race-abort.ts';
import { isAllowedNetwork, isOpenAddress } from './allowed-address.ts';
import { type CreateConnector, createPinnedConnector } from './dial.ts';
import { ForbiddenUrlError, type OutgoingPolicy } from './outgoing-url.ts';
import { interfaceAddresses } from './own-addresses.ts';
import { createPublicResolver, createTrustedResolver, type ResolveHost } from './resolve-host.ts';

/** Checked addresses that are tried for one connection; a name may have dozens. */
const ADDRESSES_TRIED_MAX = 4;

export interface OutgoingGuardOptions {
  readonly policy: OutgoingPolicy;
  readonly resolveHost?: ResolveHost;
  /** Look-ups at a time of the resolver for trusted networks; one where absent. */
  readonly systemLookupsMax?: number;
  readonly createConnector?: CreateConnector;
  /** This machine's addresses: public ones among them are not for callers either. */
  readonly ownAddresses?: () => ReadonlySet<string>;
}

export interface ConnectionLimits {
  /** Time to connect to one host, TLS included. */
  readonly connectMs: number;
  /** From the request to the response's headers. */
  readonly firstByteMs: number;
  /** Between two pieces of the body. */
  readonly idleMs: number;
  /** Size of the response's headers. */
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
    this.#resolveHost =
      options.resolveHost ??
      (policy.allowPrivateAddresses
        ? createTrustedResolver(options.systemLookupsMax ?? 1)
        : createPublicResolver());
    this.#createConnector = options.createConnector ?? createPinnedConnector;
    this.#ownAddresses = options.ownAddresses ?? interfaceAddresses;
  }

  /**
   * Every address of the host, all of them checked; none where the name has none.
   * @param accountId who asks: accounts share the resolver
   * @param host of hostOf; Node asks no resolver for a literal, so it is checked here like the rest
   * @throws ForbiddenUrlError where one of them may not be reached; what the resolver rejects with;
   * the signal's reason
   */
  async requireAddresses(
    host: string,
    signal: AbortSignal,
    accountId: string,
  ): Promise<readonly string[]> {
    signal.throwIfAborted();
    const addresses =
      isIP(host) === 0
        ? await raceAbort(this.#resolveHost(host, signal, accountId), signal)
        : [host];
    if (this.policy.allowPrivateAddresses) return addresses;
    const own = this.#ownAddresses();
    const isOpen = (address: string): boolean =>
      own.has(address)
        ? isAllowedNetwork(address, this.policy)
        : isOpenAddress(address, this.policy);
    if (!addresses.every(isOpen)) throw new ForbiddenUrlError('the host is not a public address');
    return addresses;
  }

  /** A connection to addresses of requireAddresses for one request; its user destroys it. */
  openClient(url: URL, addresses: readonly string[], limits: ConnectionLimits): Client {
    return new Client(url.origin, {
      connect: this.#createConnector(addressesToTry(addresses), limits.connectMs),
      headersTimeout: limits.firstByteMs,
      bodyTimeout: limits.idleMs,
      maxHeaderSize: limits.headerBytesMax,
      allowH2: false,
      pipelining: 1,
    });
  }
}

/** Both families in turn: a machine may have but one of them. */
function addressesToTry(addresses: readonly string[]): readonly string[] {
  const v4 = addresses.filter(address => isIP(address) === 4);
  const v6 = addresses.filter(address => isIP(address) !== 4);
  const inTurn = addresses.flatMap((_, i) => [...v6.slice(i, i + 1), ...v4.slice(i, i + 1)]);
  return inTurn.slice(0, ADDRESSES_TRIED_MAX);
}
