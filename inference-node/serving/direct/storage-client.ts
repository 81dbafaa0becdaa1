/**
 * GET and PUT of single objects by signed URLs. It follows no redirect, takes no proxy of the
 * environment and no compressed body, and tries again what may have been the network's.
 *
 * | bound          | what happens there                                                         |
 * |----------------|----------------------------------------------------------------------------|
 * | connectMs      | the try failed                                                             |
 * | silenceMs      | the try failed: no answer, and no piece of a body moved, for so long       |
 * | the call's own | STORAGE_UNREACHABLE: tries and waits together took longer than they may    |
 * | triesMax       | STORAGE_UNREACHABLE with what the last try met                             |
 * | connectionsMax | further requests to that origin wait; admission bounds how many there are  |
 *
 * Its errors hold the storage's status and code, never a URL.
 */
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { compressionsOf } from '@matting/program/content-codings.ts';
import { boundPieces } from '@matting/program/piece-count.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { Agent, type Dispatcher } from 'undici';
import type { StorageUrl } from './direct-origins.ts';

export const STORAGE_BOUNDS = {
  connectMs: 5000,
  silenceMs: 20_000,
  triesMax: 3,
  /** The wait before the second try; each further wait is twice as long. */
  retryWaitMs: 200,
  connectionsMax: 32,
};
type StorageBounds = Readonly<typeof STORAGE_BOUNDS>;

/** A piece of a file that is put: its silence is judged between two of them. */
const PIECE_BYTES = 256 * 1024;
const HEADER_BYTES_MAX = 16 * 1024;
/** The node reads so much of an error's body, for its code. */
const ERROR_BYTES_MAX = 4096;
/** Statuses after which the same request may succeed; 409: two conditional writes at once. */
const PASSING_STATUSES: ReadonlySet<number> = new Set([408, 409, 429, 500, 502, 503, 504]);

class TryFailure extends Error {
  readonly passing: boolean;

  constructor(message: string, passing: boolean, cause?: unknown) {
    super(message, { cause });
    this.passing = passing;
  }
}

export interface Limits {
  readonly signal: AbortSignal;
  /** The bound of all tries and waits together. */
  readonly withinMs: number;
}

export class StorageClient {
  readonly #bounds: StorageBounds;
  readonly #agent: Agent;

  constructor(bounds: StorageBounds = STORAGE_BOUNDS) {
    this.#bounds = bounds;
    this.#agent = new Agent({
      connect: { timeout: bounds.connectMs },
      connections: bounds.connectionsMax,
      maxHeaderSize: HEADER_BYTES_MAX,
      // The watch judges silence, by the pieces of bodies both ways.
      headersTimeout: 0,
      bodyTimeout: 0,
      allowH2: false,
      pipelining: 1,
    });
  }

  /** Fills `into`. @returns the SHA-256 that the storage keeps, where it says one */
  async get(url: StorageUrl, into: Buffer, limits: Limits): Promise<Buffer | undefined> {
    return await this.#tries('GET', limits, watch => this.#get(url, into, watch));
  }

  /** Resolves when the storage has the object, or has one there already. */
  async put(
    url: StorageUrl,
    headers: Readonly<Record<string, string>>,
    file: Buffer,
    limits: Limits,
  ): Promise<void> {
    await this.#tries('PUT', limits, watch => this.#put(url, headers, file, watch));
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #get(url: StorageUrl, into: Buffer, watch: SilenceWatch): Promise<Buffer | undefined> {
    const answer = await this.#agent.request({
      ...url,
      method: 'GET',
      headers: { 'accept-encoding': 'identity' },
      signal: watch.signal,
    });
    watch.moved();
    if (answer.statusCode !== 200) throw await refusal(answer, watch);
    const { headers } = answer;
    const body = boundPieces(answer.body);
    try {
      const announced = headers['content-length'];
      if (announced !== undefined && announced !== String(into.length)) throw otherLength();
      if (compressionsOf(headers['content-encoding']).length > 0) {
        throw new TryFailure('the body is compressed', false);
      }
      let filled = 0;
      for await (const piece of body as AsyncIterable<Buffer>) {
        watch.moved();
        if (filled + piece.length > into.length) throw otherLength();
        into.set(piece, filled);
        filled += piece.length;
      }
      if (filled < into.length) throw otherLength();
      return notedSha256(headers);
    } finally {
      discard(body);
    }
  }

  async #put(
    url: StorageUrl,
    headers: Readonly<Record<string, string>>,
    file: Buffer,
    watch: SilenceWatch,
  ): Promise<void> {
    const answer = await this.#agent.request({
      ...url,
      method: 'PUT',
      headers: { ...headers },
      body: Readable.from(inPieces(file, watch)),
      signal: watch.signal,
    });
    watch.moved();
    const { statusCode } = answer;
    // With 412 something is there: an earlier try of ours whose answer was lost, mostly.
    const stored = statusCode === 200 || statusCode === 201 || statusCode === 204;
    if (!stored && statusCode !== 412) throw await refusal(answer, watch);
    await answer.body.dump({ limit: ERROR_BYTES_MAX, signal: watch.signal });
  }

  async #tries<T>(
    method: string,
    { signal, withinMs }: Limits,
    once: (watch: SilenceWatch) => Promise<T>,
  ): Promise<T> {
    const { triesMax, retryWaitMs, silenceMs } = this.#bounds;
    const endsAtMs = performance.now() + withinMs;
    for (let tried = 1; ; tried += 1) {
      const leftMs = endsAtMs - performance.now();
      using watch = new SilenceWatch(silenceMs, Math.max(1, leftMs), signal);
      try {
        return await once(watch);
      } catch (error) {
        signal.throwIfAborted();
        const failure = failureOf(error, watch);
        const waitMs = retryWaitMs * 2 ** (tried - 1) * (0.5 + Math.random());
        const over = performance.now() + waitMs >= endsAtMs;
        if (!failure.passing || over || tried === triesMax) throw unreachable(method, failure);
        await delay(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted());
      }
    }
  }
}

async function* inPieces(file: Buffer, watch: SilenceWatch): AsyncGenerator<Buffer> {
  for (let offset = 0; offset < file.length; offset += PIECE_BYTES) {
    yield file.subarray(offset, offset + PIECE_BYTES);
    watch.moved();
  }
}

function otherLength(): TryFailure {
  return new TryFailure('the object has another length than was declared', false);
}

/**
 * Reads the checksum that the writer noted, or that the storage computed. A checksum of an object's
 * parts (`…-3`) does not count.
 */
function notedSha256(headers: Dispatcher.ResponseData['headers']): Buffer | undefined {
  const { 'x-amz-meta-sha256': noted, 'x-amz-checksum-sha256': computed } = headers;
  const digests = [
    typeof noted === 'string' && /^[0-9a-f]{64}$/.test(noted) ? Buffer.from(noted, 'hex') : null,
    typeof computed === 'string' && !computed.includes('-')
      ? Buffer.from(computed, 'base64')
      : null,
  ];
  return digests.find(digest => digest?.length === 32) ?? undefined;
}

function discard(body: Readable): void {
  body.on('error', () => undefined);
  body.destroy();
}

async function refusal(
  { statusCode, body }: Dispatcher.ResponseData,
  watch: SilenceWatch,
): Promise<TryFailure> {
  let text = '';
  for await (const piece of body as AsyncIterable<Buffer>) {
    watch.moved();
    text += piece.toString('latin1');
    if (text.length >= ERROR_BYTES_MAX) break;
  }
  discard(body);
  const [, code] = /<Code>([A-Za-z0-9.]{1,64})<\/Code>/.exec(text) ?? [];
  const redirect = statusCode >= 300 && statusCode < 400 ? ', and no redirect is followed' : '';
  const said = code === undefined ? redirect : ` (${code})`;
  return new TryFailure(`it answered ${statusCode}${said}`, PASSING_STATUSES.has(statusCode));
}

/**
 * An error that is not the storage's answer is the network's: a refused, reset or late connection.
 */
function failureOf(error: unknown, { expired }: SilenceWatch): TryFailure {
  if (error instanceof TryFailure) return error;
  if (expired !== undefined) return new TryFailure(expired, true, error);
  const { code, message } = error as NodeJS.ErrnoException;
  return new TryFailure(code ?? message, true, error);
}

function unreachable(method: string, failure: TryFailure): ContractError {
  const detail = `${method} of the storage failed: ${failure.message}.`;
  return new ContractError('STORAGE_UNREACHABLE', detail, { cause: failure.cause });
}

/** Aborts a try when nothing has moved for too long, or its time is over. */
class SilenceWatch {
  readonly signal: AbortSignal;
  readonly #silent = new AbortController();
  readonly #timers: readonly [NodeJS.Timeout, NodeJS.Timeout];
  /** Why the watch aborted; undefined: it did not. */
  expired: string | undefined;

  constructor(silenceMs: number, leftMs: number, call: AbortSignal) {
    this.signal = AbortSignal.any([call, this.#silent.signal]);
    const expire = (why: string) => () => {
      this.expired ??= why;
      this.#silent.abort();
    };
    this.#timers = [
      setTimeout(expire('the storage is silent'), silenceMs),
      setTimeout(expire('the time is over'), leftMs),
    ];
  }

  moved(): void {
    this.#timers[0].refresh();
  }

  [Symbol.dispose](): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}
