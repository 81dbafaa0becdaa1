/**
 * A GET of a caller's URL through the outgoing guard, which checks every redirect too, bounded in
 * time and bytes.
 */
import { pipeline, Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { createGunzip } from 'node:zlib';
import { compressionsOf } from '@matting/program/content-codings.ts';
import { SmallPiecesError } from '@matting/program/piece-count.ts';
import { hostOf } from '@matting/program/ports/addresses.ts';
import { OWN_AGENT } from '@matting/program/ports/keyless.ts';
import type { Client, Dispatcher } from 'undici';
import { parseContentType, waitAskedMs } from '../request-headers.ts';
import { boundedRequest, type OutgoingGuard, TLS_CODE } from './outgoing-guard.ts';
import { ForbiddenUrlError, requireOutgoingUrl } from './outgoing-url.ts';

export type FetchLimits = typeof FETCH_LIMITS;

export const FETCH_LIMITS = {
  resolveMs: 5_000,
  connectMs: 5_000,
  firstByteMs: 10_000,
  idleMs: 10_000,
  /** The whole request, redirects and body included. */
  totalMs: 60_000,
  redirectsMax: 3,
  headerBytesMax: 16_384,
  /** Waits before the other tries of a busy source, unless it asks for another wait. */
  againMs: [1000, 2000, 4000] as readonly number[],
  /** All these waits of a request together. A source that asks for more is not tried again. */
  againMsMax: 20_000,
};
/** A source that answers so may have the file a moment later. */
const BUSY: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** The same header for all accounts: sources see this service, not its caller. */
const REQUEST_HEADERS = {
  accept: 'image/*, */*;q=0.5',
  'accept-encoding': 'identity',
};

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** The source did not deliver. Callers may read the message; it reveals nothing of a network. */
export class FetchFailedError extends Error {
  /** Whether a later request may succeed: time-outs, refused connections, 429 and 5xx. */
  readonly retryable: boolean;

  constructor(message: string, retryable: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = 'FetchFailedError';
    this.retryable = retryable;
  }
}

class BusyError extends FetchFailedError {
  readonly waitMs: number;

  /** @param waitMs that it asks for; 0: none */
  constructor(status: number, waitMs: number) {
    super(`the source answered with status ${status}`, true);
    this.waitMs = waitMs;
  }
}

/** The body, or what it unpacks to, has more bytes than the request allows. */
export class FetchTooLargeError extends Error {}

interface FetchRequest {
  readonly accountId: string;
  readonly signal: AbortSignal;
  /** The bound holds for the body as it comes and for what it unpacks to. */
  readonly bytesMax: number;
}

interface FetchedResponse {
  /** The media type alone, in lower case; empty where the source named none. */
  readonly contentType: string;
  /** The body's pieces as they come, unpacked; to be read once, inside `consume`. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** Errors of Node and undici where a source does not answer, or no longer. */
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

/** undici says so of a body that ends too early, and of headers with a length that cannot be. */
const OTHER_LENGTH = 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH';

/** The same sentence for refused, silent and gone, so that it cannot be used to map a network. */
const UNREACHABLE = 'the source could not be reached, or did not answer in time';

const NO_ADDRESS = 'the host name has no address';

const NO_TLS = 'the source has no valid certificate for its name, or does not speak TLS';

/** Gzip in gzip: a proxy packed a file that was stored packed. */
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

/** undici gives a broken connection the code of an answer that must not come, such as a 100. */
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

  /** The connection is gone when this settles; rejects with the signal's reason where it aborts. */
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
      // A signal that aborted is the cause of any error after it, but for the last answer.
      (error instanceof BusyError ? signal : either).throwIfAborted();
      throw error;
    }
  }

  /** Tries a busy source again. The last answer is the error. */
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
        // Half at random, so that what came together is not tried together.
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
    if (BUSY.has(statusCode)) throw new BusyError(statusCode, waitAskedMs(retryAfter, Date.now()));
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

/** @throws FetchTooLargeError */
async function* within(pieces: Pieces, bytesMax: number): Pieces {
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > bytesMax) throw new FetchTooLargeError();
    yield piece;
  }
}

/** @throws FetchFailedError: no whole gzip; what `pieces` throws */
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
    // The headers were whole.
    const isCutOff = codeOf(error) === OTHER_LENGTH;
    throw isCutOff ? new FetchFailedError(UNREACHABLE, true, error) : toFetchFailed(error);
  }
}
