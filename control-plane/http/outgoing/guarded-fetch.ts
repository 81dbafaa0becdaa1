import { pipeline, Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { createGunzip } from 'node:zlib';
import { compressionsOf } from '@matting/program/content-codings.ts';
import { SmallPiecesError } from '@matting/program/piece-count.ts';
import { hostOf } from '@matting/program/ports/addresses.ts';
import { OWN_AGENT } from '@matting/program/ports/keyless.ts';
import type { Client, Dispatcher } from 'undici';
import { parseContentType, parseRetryAfterMs } from '../request-headers.ts';
import { boundedRequest, type OutgoingGuard, TLS_CODE } from './outgoing-guard.ts';
import { ForbiddenUrlError, requireOutgoingUrl } from './outgoing-url.ts';

export type FetchLimits = typeof FETCH_LIMITS;

export const FETCH_LIMITS = {
  resolveMs: 5_000,
  connectMs: 5_000,
  firstByteMs: 10_000,
  idleMs: 10_000,
  totalMs: 60_000,
  redirectsMax: 3,
  headerBytesMax: 16_384,
  /** Waits before the further tries of a busy source that asks for no other wait. */
  againMs: [1000, 2000, 4000] as readonly number[],
  /** All these waits together. A source that asks for more is not tried again. */
  againMsMax: 20_000,
};
const BUSY: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Equal for all accounts: a source sees this service, not its caller. */
const REQUEST_HEADERS = {
  accept: 'image/*, */*;q=0.5',
  'accept-encoding': 'identity',
};

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** The message is safe for callers: it reveals nothing of a network. */
export class FetchFailedError extends Error {
  /** A later request may succeed: time-outs, refused connections, 429 and 5xx. */
  readonly retryable: boolean;

  constructor(message: string, retryable: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = 'FetchFailedError';
    this.retryable = retryable;
  }
}

class BusyError extends FetchFailedError {
  readonly waitMs: number;

  /** @param waitMs asked by the source; 0: none */
  constructor(status: number, waitMs: number) {
    super(`the source answered with status ${status}`, true);
    this.waitMs = waitMs;
  }
}

/** The body, packed or unpacked, is over the bound. */
export class FetchTooLargeError extends Error {}

interface FetchRequest {
  readonly accountId: string;
  readonly signal: AbortSignal;
  /** For the packed and for the unpacked body. */
  readonly bytesMax: number;
}

interface FetchedResponse {
  /** In lower case, without parameters, possibly empty. */
  readonly contentType: string;
  /** Unpacked. Read it once, inside `consume`. */
  readonly body: AsyncIterable<Uint8Array>;
}

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
]);

/** undici's code for a body that ends early and for an impossible Content-Length. */
const OTHER_LENGTH = 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH';

/** One text for refused, silent and lost, so that nobody can map a network with it. */
const UNREACHABLE = 'the source could not be reached, or did not answer in time';

const NO_ADDRESS = 'the host name has no address';

const NO_TLS = 'the source has no valid certificate for its name, or does not speak TLS';

/** Gzip in gzip: a proxy compressed a file that was stored compressed. */
const GZIPS_MAX = 2;

function toFetchFailed(error: unknown): FetchFailedError {
  if (error instanceof FetchFailedError) return error;
  if (error instanceof SmallPiecesError) {
    return new FetchFailedError(`the source ${error.message}`, false, error);
  }
  const attempts = error instanceof AggregateError ? error.errors : [error];
  const codes = attempts.map(codeOf);
  if (codes.some(code => UNREACHABLE_CODES.has(code))) {
    return new FetchFailedError(UNREACHABLE, true, error);
  }
  if (codes.some(code => TLS_CODE.test(String(code)))) {
    return new FetchFailedError(NO_TLS, false, error);
  }
  return new FetchFailedError('the source did not answer with valid HTTP', false, error);
}

/** undici also gives a broken connection's code to an answer that must not come, such as a 100. */
function codeOf(error: unknown): unknown {
  const { code, message = '' } = (error ?? {}) as Partial<NodeJS.ErrnoException>;
  return code === 'UND_ERR_SOCKET' && message.startsWith('bad ') ? undefined : code;
}

export class GuardedFetch {
  readonly #guard: OutgoingGuard;
  readonly #limits: FetchLimits;

  constructor(guard: OutgoingGuard, limits: Partial<FetchLimits> = {}) {
    this.#guard = guard;
    this.#limits = { ...FETCH_LIMITS, ...limits };
  }

  /** The connection is closed when this settles. */
  async get<T>(
    text: string,
    { signal, ...request }: FetchRequest,
    consume: (response: FetchedResponse) => Promise<T>,
  ): Promise<T> {
    const deadline = new AbortController();
    const { totalMs } = this.#limits;
    using _timer = setTimeout(() => {
      deadline.abort(new FetchFailedError(UNREACHABLE, true));
    }, totalMs);
    const either = AbortSignal.any([signal, deadline.signal]);
    try {
      return await this.#tries(text, { ...request, signal: either }, consume);
    } catch (error) {
      // Throws the abort's reason. A busy answer outlasts the deadline, not the caller's abort.
      (error instanceof BusyError ? signal : either).throwIfAborted();
      throw error;
    }
  }

  async #tries<T>(
    text: string,
    request: FetchRequest,
    consume: (response: FetchedResponse) => Promise<T>,
  ): Promise<T> {
    let leftMs = this.#limits.againMsMax;
    for (const backoffMs of this.#limits.againMs) {
      try {
        return await this.#follow(text, request, consume);
      } catch (error) {
        if (!(error instanceof BusyError)) throw error;
        // Half of the wait is random, so that simultaneous requests do not retry together.
        const waitMs = error.waitMs || backoffMs * (0.5 + Math.random() / 2);
        if (waitMs > leftMs) throw error;
        leftMs -= waitMs;
        await delay(waitMs, undefined, { signal: request.signal }).catch(() => {
          throw error;
        });
      }
    }
    return await this.#follow(text, request, consume);
  }

  async #follow<T>(
    text: string,
    request: FetchRequest,
    consume: (response: FetchedResponse) => Promise<T>,
  ): Promise<T> {
    let url = requireOutgoingUrl(text, this.#guard.policy);
    for (let redirects = 0; redirects <= this.#limits.redirectsMax; redirects += 1) {
      const addresses = await this.#requireAddresses(hostOf(url), request);
      await using client = this.#guard.openClient(url, addresses, this.#limits);
      const response = await this.#request(client, url, request.signal);
      const location = response.headers.location;
      if (!REDIRECTS.has(response.statusCode) || location === undefined) {
        return await consume(requireBody(response, request.bytesMax));
      }
      url = this.#requireRedirect(location, url);
    }
    const most = this.#limits.redirectsMax;
    throw new FetchFailedError(`the source redirects more than ${most} times`, false);
  }

  #requireRedirect(location: string | string[], from: URL): URL {
    if (Array.isArray(location)) {
      throw new FetchFailedError('the source redirects to several addresses', false);
    }
    const to = requireOutgoingUrl(location, this.#guard.policy, from);
    if (from.protocol === 'https:' && to.protocol !== 'https:') {
      throw new FetchFailedError('the source redirects from https to http', false);
    }
    return to;
  }

  async #requireAddresses(host: string, { accountId, signal }: FetchRequest) {
    signal.throwIfAborted();
    const either = AbortSignal.any([signal, AbortSignal.timeout(this.#limits.resolveMs)]);
    const addresses = await this.#guard.requireAddresses(host, either, accountId).catch(error => {
      if (error instanceof ForbiddenUrlError) throw error;
      throw new FetchFailedError(UNREACHABLE, true, error);
    });
    if (addresses.length === 0) throw new FetchFailedError(NO_ADDRESS, false);
    return addresses;
  }

  async #request(client: Client, url: URL, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const { fetchContact } = this.#guard.policy;
    const comment = ['image fetch', fetchContact].filter(Boolean).join('; ');
    const headers = { 'user-agent': `${OWN_AGENT} (${comment})`, ...REQUEST_HEADERS };
    try {
      const path = `${url.pathname}${url.search}`;
      return await boundedRequest(client, { method: 'GET', path, headers, signal });
    } catch (error) {
      throw toFetchFailed(error);
    }
  }
}

function requireBody(response: Dispatcher.ResponseData, bytesMax: number): FetchedResponse {
  const { statusCode, headers } = response;
  if (statusCode !== 200) {
    const retryAfter = headers['retry-after']?.toString();
    if (BUSY.has(statusCode))
      throw new BusyError(statusCode, parseRetryAfterMs(retryAfter, Date.now()));
    const retryable = statusCode >= 500;
    throw new FetchFailedError(`the source answered with status ${statusCode}`, retryable);
  }
  const compressions = compressionsOf(headers['content-encoding']);
  const isRead = compressions.length <= GZIPS_MAX && compressions.every(one => one === 'gzip');
  if (!isRead) {
    const named = [...new Set(compressions)].join(', ');
    const sent = `the source sent a body with Content-Encoding ${named}`;
    throw new FetchFailedError(`${sent}. The service reads gzip, at most twice`, false);
  }
  if (Number(headers['content-length']) > bytesMax) throw new FetchTooLargeError();
  const contentType = parseContentType(String(headers['content-type'] ?? ''))?.type ?? '';
  let body = within(readBody(response.body), bytesMax);
  for (const _ of compressions) body = within(unpacked(body), bytesMax);
  return { contentType, body };
}

type Pieces = AsyncGenerator<Uint8Array>;

async function* within(pieces: Pieces, bytesMax: number): Pieces {
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > bytesMax) throw new FetchTooLargeError();
    yield piece;
  }
}

/** @throws FetchFailedError: not valid gzip; errors of `pieces` */
async function* unpacked(pieces: Pieces): Pieces {
  const source = Readable.from(pieces, { highWaterMark: 1 });
  try {
    for await (const piece of pipeline(source, createGunzip(), () => undefined)) yield piece;
  } catch (error) {
    const isDamaged = String((error as NodeJS.ErrnoException).code).startsWith('Z_');
    if (!isDamaged) throw error;
    throw new FetchFailedError('the source sent gzip that is damaged or incomplete', false, error);
  }
}

async function* readBody(body: Dispatcher.ResponseData['body']): Pieces {
  try {
    for await (const chunk of body) yield chunk as Uint8Array;
  } catch (error) {
    // The headers were valid, so the body was cut off.
    const isCutOff = codeOf(error) === OTHER_LENGTH;
    throw isCutOff ? new FetchFailedError(UNREACHABLE, true, error) : toFetchFailed(error);
  }
}
