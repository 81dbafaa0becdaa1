/**
 * Resumes a cut connection (Range, If-Range), hashes bytes as they arrive, and recognises a file
 * that is no model by its first bytes.
 */
import { createHash, type Hash } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { compressionsOf } from '@matting/program/content-codings.ts';
import type { WholeFile } from '@matting/serving/models/cache-files.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import type { Dispatcher } from 'undici';
import { HEAD_BYTES, whatElseItIs } from '../probing/not-onnx.ts';
import {
  type AddressClient,
  fetchFailure,
  InterruptedError,
  requireAddress,
} from './address-client.ts';
import { drop } from './bounded-get.ts';
import { isInterruption, networkReason } from './fetch-reasons.ts';

interface Wanted {
  readonly bytesMax: number;
  readonly bytes?: number | undefined;
  readonly sha256?: string | undefined;
  readonly isGraph: boolean;
}

export interface Downloaded {
  readonly url: string;
  readonly bytes: number;
  readonly sha256: string;
}

interface DownloadContext {
  readonly client: AddressClient;
  readonly signal: AbortSignal;
  readonly onProgress?:
    | ((receivedBytes: number, totalBytes: number | undefined) => void)
    | undefined;
}

/**
 * Tries each address in turn.
 * @throws ModelError `fetch` with each failure, `disk`
 */
export async function downloadFromAny(
  urls: readonly string[],
  file: WholeFile,
  wanted: Wanted,
  context: DownloadContext,
): Promise<Downloaded> {
  const failures: ModelError[] = [];
  for (const url of urls) {
    try {
      return await new Download(requireAddress(url), file, wanted, context).run();
    } catch (error) {
      context.signal.throwIfAborted();
      if (!(error instanceof ModelError) || error.kind !== 'fetch') throw error;
      failures.push(error);
    }
  }
  const [only] = failures;
  if (only !== undefined && failures.length === 1) throw only;
  throw new ModelError('fetch', failures.map(({ message }) => message).join('; '), only);
}

class Download {
  readonly #url: URL;
  readonly #file: WholeFile;
  readonly #wanted: Wanted;
  readonly #context: DownloadContext;
  #received = 0;
  #hash: Hash = createHash('sha256');
  #head: Buffer = Buffer.alloc(0);
  /** ETag or date of the file. Undefined: a cut download begins again. */
  #validator: string | undefined;

  constructor(url: URL, file: WholeFile, wanted: Wanted, context: DownloadContext) {
    this.#url = url;
    this.#file = file;
    this.#wanted = wanted;
    this.#context = context;
  }

  async run(): Promise<Downloaded> {
    const { client, signal } = this.#context;
    const { attemptsMax, attemptWaitMs } = client.limits;
    await this.#beginAgain();
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#attempt();
        return this.#checked();
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof InterruptedError)) throw error;
        if (attempt === attemptsMax) throw this.#failed(error.message, error);
      }
      await wait(attemptWaitMs * attempt, undefined, { signal });
    }
  }

  #failed(reason: string, cause?: unknown): ModelError {
    return fetchFailure(this.#url, reason, cause);
  }

  async #attempt(): Promise<void> {
    const { client, signal } = this.#context;
    const resumed = this.#received > 0 && this.#validator !== undefined;
    if (!resumed) await this.#beginAgain();
    const range: Record<string, string> = resumed
      ? { range: `bytes=${this.#received}-`, 'if-range': this.#validator ?? '' }
      : {};
    let response: Dispatcher.ResponseData | undefined;
    try {
      response = await client.get(this.#url.href, range, signal);
      const total = await this.#begin(response.statusCode, response.headers);
      for await (const chunk of response.body) await this.#keep(chunk as Buffer, total);
      if (total !== undefined && this.#received < total) {
        throw new InterruptedError('the connection broke again and again');
      }
      this.#requireGraph();
    } catch (error) {
      const known = diskError(error, 'write', this.#file.path);
      if (known instanceof ModelError || known instanceof InterruptedError) throw known;
      if (!isInterruption(error)) throw this.#failed(networkReason(error), error);
      throw new InterruptedError(networkReason(error), { cause: error });
    } finally {
      if (response !== undefined) drop(response);
    }
  }

  async #begin(status: number, headers: Headers): Promise<number | undefined> {
    if (status === 206) {
      const [, from, total] =
        /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(text(headers['content-range'])) ?? [];
      if (Number(from) !== this.#received) {
        await this.#beginAgain();
        throw new InterruptedError('it sends another part than was asked for');
      }
      return total === '*' ? undefined : Number(total);
    }
    // The file has changed, or the answer is the whole file: the earlier bytes do not count.
    await this.#beginAgain();
    if (status === 416) throw new InterruptedError('it sends no part of the file');
    if (status !== 200) throw this.#refusal(status);
    if (compressionsOf(headers['content-encoding']).length > 0) {
      throw this.#failed('it sends the file compressed, which was not asked for');
    }
    const etag = text(headers.etag);
    this.#validator = (etag.startsWith('"') && etag) || text(headers['last-modified']) || undefined;
    const length = text(headers['content-length']);
    if (length === '') return undefined;
    this.#requireBytes(Number(length));
    return Number(length);
  }

  #refusal(status: number): Error {
    const { hasToken } = this.#context.client;
    if (status === 401 || status === 403) {
      const why = hasToken
        ? 'it refuses the token of --token-env: has its owner been granted access there?'
        : 'it wants a login: tell "models add" the variable of a token by --token-env';
      return this.#failed(`${why} (HTTP ${status})`);
    }
    if (status === 408 || status === 429 || status >= 500) {
      return new InterruptedError(`it answers with HTTP ${status}`);
    }
    const why = status === 404 || status === 410 ? 'it has no such file' : 'it does not give it';
    return this.#failed(`${why} (HTTP ${status})`);
  }

  #requireBytes(bytes: number): void {
    const { bytesMax, bytes: wanted } = this.#wanted;
    if (bytes > bytesMax) throw this.#failed(`it is larger than ${bytesMax} bytes`);
    if (wanted !== undefined && bytes !== wanted) {
      throw this.#failed(`it is not the file: it has ${bytes} bytes, not ${wanted}`);
    }
  }

  async #keep(chunk: Buffer, total: number | undefined): Promise<void> {
    const received = this.#received + chunk.length;
    const { bytesMax, bytes = bytesMax } = this.#wanted;
    if (received > bytes) throw this.#failed(`it is larger than ${bytes} bytes`);
    if (this.#head.length < HEAD_BYTES) {
      this.#head = Buffer.concat([this.#head, chunk]).subarray(0, HEAD_BYTES);
      if (this.#head.length === HEAD_BYTES) this.#requireGraph();
    }
    await this.#file.write(chunk, this.#received);
    this.#hash.update(chunk);
    this.#received = received;
    this.#context.onProgress?.(received, total);
  }

  #requireGraph(): void {
    const other = this.#wanted.isGraph ? whatElseItIs(this.#head) : undefined;
    if (other !== undefined) throw this.#failed(`it is not an ONNX file, but ${other}`);
  }

  #checked(): Downloaded {
    const bytes = this.#received;
    this.#requireBytes(bytes);
    const sha256 = this.#hash.digest('hex');
    const { sha256: wanted = sha256 } = this.#wanted;
    if (sha256 === wanted) return { url: this.#url.href, bytes, sha256 };
    throw this.#failed(`it is not the file: its sha256 is ${sha256}, not ${wanted}`);
  }

  async #beginAgain(): Promise<void> {
    this.#received = 0;
    this.#hash = createHash('sha256');
    this.#head = Buffer.alloc(0);
    this.#validator = undefined;
    await this.#file.handle.truncate(0);
  }
}

type Headers = Dispatcher.ResponseData['headers'];

function text(header: string | string[] | undefined): string {
  return typeof header === 'string' ? header : '';
}
