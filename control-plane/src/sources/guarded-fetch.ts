/**
 * The one client for URLs that callers name. It reaches public addresses only, and takes no more
 * than its bounds of time and bytes. It knows nothing of images.
 *
 * Order, for the URL and for each redirect: the text is parsed once and checked; the name is
 * resolved; every one of its addresses must be public; the connection goes to those addresses and
 * no others, so that a second answer of the DNS changes nothing. No proxy, no cookie, no
 * credential, no kept connection, no HTTP/2, no decompression.
 */
import { isIP } from 'node:net';
import { Client, type Dispatcher } from 'undici';
import { type CreateConnector, createPinnedConnector } from './dial.ts';
import {
  ForbiddenUrlError,
  hostOf,
  type OutgoingPolicy,
  requireOutgoingUrl,
} from './outgoing-url.ts';
import { interfaceAddresses } from './own-addresses.ts';
import { isPublicAddress } from './public-address.ts';
import { raceAbort } from './race-abort.ts';
import { createPublicResolver, type ResolveHost, resolveTrustedHost } from './resolve-host.ts';

export interface FetchLimits {
  readonly resolveMs: number;
  /** To one host, TLS included. */
  readonly connectMs: number;
  /** From the request to the response's headers. */
  readonly firstByteMs: number;
  /** Between two pieces of the body. */
  readonly idleMs: number;
  /** All of it, redirects and body included. */
  readonly totalMs: number;
  readonly redirectsMax: number;
  /** Of the response's headers. */
  readonly headerBytesMax: number;
}

export const FETCH_LIMITS: FetchLimits = {
  resolveMs: 5_000,
  connectMs: 5_000,
  firstByteMs: 10_000,
  idleMs: 10_000,
  totalMs: 60_000,
  redirectsMax: 3,
  headerBytesMax: 16_384,
};

/** Checked addresses a connection is tried to; a name may have dozens. */
const ADDRESSES_TRIED_MAX = 4;

/** The same header for everyone, so that sources see who asks and nothing of for whom. */
const REQUEST_HEADERS = {
  'user-agent': 'matting-service/1 (image fetch)',
  accept: 'image/*, */*;q=0.5',
  'accept-encoding': 'identity',
};

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** The source did not deliver. The message is fit for callers and says nothing of any network. */
export class FetchFailedError extends Error {
  /** A later request may meet another end: time-outs, refusals, 429 and 5xx. */
  readonly retryable: boolean;

  constructor(message: string, retryable: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = 'FetchFailedError';
    this.retryable = retryable;
  }
}

export interface FetchedResponse {
  /** Content-Length where the source gave one: a promise, not a fact. */
  readonly declaredBytes: number | undefined;
  /** The body's pieces as they come; to be read once, inside `consume`. */
  readonly body: AsyncIterable<Uint8Array>;
}

export interface GuardedFetchOptions {
  readonly policy: OutgoingPolicy;
  readonly limits?: Partial<FetchLimits>;
  readonly resolveHost?: ResolveHost;
  readonly createConnector?: CreateConnector;
  /** This machine's addresses: public ones among them are not for callers either. */
  readonly ownAddresses?: () => ReadonlySet<string>;
}

/** Errors of Node and undici by which a source is not heard of at all, or no longer. */
const UNREACHABLE_CODES: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EHOSTDOWN',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_SOCKET',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
]);

/** One sentence for refused, silent and gone, so that nobody maps a network with it. */
const UNREACHABLE = 'the source could not be reached or did not answer in time';

const NO_ADDRESS = 'the host name has no address';

function toFetchFailed(error: unknown): FetchFailedError {
  if (error instanceof FetchFailedError) return error;
  const attempts = error instanceof AggregateError ? error.errors : [error];
  const codes = attempts.map(attempt => (attempt as NodeJS.ErrnoException | undefined)?.code);
  if (codes.some(code => UNREACHABLE_CODES.has(code))) {
    return new FetchFailedError(UNREACHABLE, true, error);
  }
  return new FetchFailedError('the source did not answer with a usable response', false, error);
}

export class GuardedFetch {
  readonly #policy: OutgoingPolicy;
  readonly #limits: FetchLimits;
  readonly #resolveHost: ResolveHost;
  readonly #createConnector: CreateConnector;
  readonly #ownAddresses: () => ReadonlySet<string>;

  constructor(options: GuardedFetchOptions) {
    const { policy } = options;
    this.#policy = policy;
    this.#limits = { ...FETCH_LIMITS, ...options.limits };
    this.#resolveHost =
      options.resolveHost ??
      (policy.allowPrivateAddresses ? resolveTrustedHost : createPublicResolver());
    this.#createConnector = options.createConnector ?? createPinnedConnector;
    this.#ownAddresses = options.ownAddresses ?? interfaceAddresses;
  }

  /**
   * GETs the URL and hands the response to `consume`; the connection is gone when this settles.
   * Rejects with ForbiddenUrlError, FetchFailedError, the signal's reason, or what `consume`
   * throws.
   */
  async get<T>(
    text: string,
    signal: AbortSignal,
    consume: (response: FetchedResponse) => Promise<T>,
  ): Promise<T> {
    const deadline = new AbortController();
    const { totalMs } = this.#limits;
    const timer = setTimeout(() => {
      deadline.abort(new FetchFailedError(UNREACHABLE, true));
    }, totalMs);
    const either = AbortSignal.any([signal, deadline.signal]);
    try {
      return await this.#follow(text, either, consume);
    } catch (error) {
      // Whatever broke because of the abort, the abort is the cause.
      either.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #follow<T>(
    text: string,
    signal: AbortSignal,
    consume: (response: FetchedResponse) => Promise<T>,
  ): Promise<T> {
    let url = requireOutgoingUrl(text, this.#policy);
    for (let redirects = 0; redirects <= this.#limits.redirectsMax; redirects += 1) {
      const addresses = await this.#requireAddresses(hostOf(url), signal);
      const client = this.#open(url, addresses);
      try {
        const response = await this.#request(client, url, signal);
        const location = response.headers.location;
        if (!REDIRECTS.has(response.statusCode) || location === undefined) {
          return await consume(requireBody(response));
        }
        url = this.#requireRedirect(location, url);
      } finally {
        await client.destroy();
      }
    }
    const most = this.#limits.redirectsMax;
    throw new FetchFailedError(`the source redirects more than ${most} times`, false);
  }

  #requireRedirect(location: string | string[], from: URL): URL {
    if (Array.isArray(location)) {
      throw new FetchFailedError('the source redirects to several places', false);
    }
    const to = requireOutgoingUrl(location, this.#policy, from);
    if (from.protocol === 'https:' && to.protocol !== 'https:') {
      throw new FetchFailedError('the source redirects from https to http', false);
    }
    return to;
  }

  /** Those addresses of the host that are tried, when every one it has is public. */
  async #requireAddresses(host: string, signal: AbortSignal): Promise<readonly string[]> {
    signal.throwIfAborted();
    const addresses = isIP(host) === 0 ? await this.#resolve(host, signal) : [host];
    if (!this.#policy.allowPrivateAddresses) {
      const own = this.#ownAddresses();
      const arePublic = addresses.every(address => isPublicAddress(address) && !own.has(address));
      if (!arePublic) throw new ForbiddenUrlError('the host is not a public address');
    }
    return addressesToTry(addresses);
  }

  async #resolve(host: string, signal: AbortSignal): Promise<readonly string[]> {
    const timeout = AbortSignal.timeout(this.#limits.resolveMs);
    const either = AbortSignal.any([signal, timeout]);
    const answers = await raceAbort(this.#resolveHost(host, either), either).catch(error => {
      throw new FetchFailedError(UNREACHABLE, true, error);
    });
    if (answers.length === 0) throw new FetchFailedError(NO_ADDRESS, false);
    return answers;
  }

  #open(url: URL, addresses: readonly string[]): Client {
    const { connectMs, firstByteMs, idleMs, headerBytesMax } = this.#limits;
    return new Client(url.origin, {
      connect: this.#createConnector(addresses, connectMs),
      headersTimeout: firstByteMs,
      bodyTimeout: idleMs,
      maxHeaderSize: headerBytesMax,
      allowH2: false,
      pipelining: 1,
    });
  }

  async #request(client: Client, url: URL, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    try {
      const path = `${url.pathname}${url.search}`;
      return await client.request({ method: 'GET', path, headers: REQUEST_HEADERS, signal });
    } catch (error) {
      throw toFetchFailed(error);
    }
  }
}

/** Both families in turn: a machine may have but one of them. */
function addressesToTry(addresses: readonly string[]): readonly string[] {
  const v4 = addresses.filter(address => isIP(address) === 4);
  const v6 = addresses.filter(address => isIP(address) !== 4);
  const inTurn = addresses.flatMap((_, i) => [...v6.slice(i, i + 1), ...v4.slice(i, i + 1)]);
  return inTurn.slice(0, ADDRESSES_TRIED_MAX);
}

function requireBody(response: Dispatcher.ResponseData): FetchedResponse {
  const { statusCode, headers } = response;
  if (statusCode !== 200) {
    const retryable = statusCode === 429 || statusCode >= 500;
    throw new FetchFailedError(`the source answered with status ${statusCode}`, retryable);
  }
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && !/^(identity)?$/i.test(String(encoding))) {
    throw new FetchFailedError('the source sent an encoded body, which was not asked for', false);
  }
  const length = headers['content-length'];
  const declaredBytes = typeof length === 'string' ? Number(length) : undefined;
  return { declaredBytes, body: readBody(response.body) };
}

async function* readBody(body: Dispatcher.ResponseData['body']): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of body) yield chunk as Uint8Array;
  } catch (error) {
    throw toFetchFailed(error);
  }
}
