/** Downloads a result and resumes after a broken connection. */
import type { PieceReader } from './attempt.ts';
import { errorOfProblem, isProblem, MattingError, noAnswer } from './errors.ts';
import { type Answer, type Request, sendWithRetries, type Transport } from './exchange.ts';
import { Backoff, type RetryBudget } from './retry-budget.ts';

const FIRST_PAUSE_MS = 500;
/** The service makes no larger file. */
const FILE_BYTES_MAX = 512 * 1024 * 1024;

export interface FileHeaders {
  readonly contentType: string;
  /** undefined: unknown. */
  readonly sizeBytes: number | undefined;
  readonly etag: string | undefined;
}

export interface ResultFile extends FileHeaders {
  /** Read it to its end, or call `return`. It resumes broken downloads. */
  readonly pieces: AsyncIterableIterator<Uint8Array>;
}

export interface FileAnswer extends Answer {
  readonly pieces: PieceReader;
}

export function isFileAnswer(answer: object): answer is FileAnswer {
  return 'pieces' in answer && answer.pieces !== undefined;
}

/** @param begun an answer that already has the file */
export async function openResult(
  transport: Transport,
  link: string,
  budget: RetryBudget,
  begun?: FileAnswer,
): Promise<ResultFile> {
  const answer = begun ?? requireFile(await sendWithRetries(transport, get(link), budget));
  const pieces = new ResultPieces(transport, link, budget, answer);
  return { ...headersOf(answer.headers), pieces };
}

export async function collect(
  pieces: AsyncIterable<Uint8Array>,
  bytesMax = FILE_BYTES_MAX,
): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.byteLength;
    if (bytes > bytesMax) {
      const detail = `more than ${bytesMax} bytes`;
      throw new MattingError(detail, { code: 'IMAGE_TOO_LARGE', retryable: false });
    }
    all.push(piece);
  }
  const whole = new Uint8Array(bytes);
  let offset = 0;
  for (const piece of all) {
    whole.set(piece, offset);
    offset += piece.byteLength;
  }
  return whole;
}

class ResultPieces implements AsyncIterableIterator<Uint8Array> {
  readonly #transport: Transport;
  readonly #link: string;
  readonly #budget: RetryBudget;
  readonly #headers: FileHeaders;
  readonly #backoff = new Backoff(FIRST_PAUSE_MS);
  #answer: FileAnswer;
  /** The number of bytes passed on. */
  #received = 0;
  /** Offset of the next piece in the file. */
  #at = 0;
  #ended = false;

  constructor(transport: Transport, link: string, budget: RetryBudget, answer: FileAnswer) {
    this.#transport = transport;
    this.#link = link;
    this.#budget = budget;
    this.#answer = answer;
    this.#headers = headersOf(answer.headers);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    while (!this.#ended) {
      try {
        const piece = await this.#answer.pieces.read();
        if (piece === undefined) this.#requireWhole();
        const fresh = this.#freshOf(piece);
        if (fresh !== undefined) return { done: false, value: fresh };
      } catch (error) {
        if (!(error instanceof MattingError) || error.code !== 'NO_ANSWER') throw error;
        await this.#resume(error);
      }
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#ended = true;
    this.#answer.pieces.end();
    return { done: true, value: undefined };
  }

  #requireWhole(): void {
    const { sizeBytes } = this.#headers;
    if (sizeBytes !== undefined && this.#received !== sizeBytes) {
      throw noAnswer(`the answer ended after ${this.#received} of ${sizeBytes} bytes`);
    }
    this.#ended = true;
  }

  /** Skips known bytes: a proxy may ignore the range and send the whole file. */
  #freshOf(piece: Uint8Array | undefined): Uint8Array | undefined {
    if (piece === undefined) return undefined;
    const fresh = piece.subarray(Math.max(0, this.#received - this.#at));
    this.#at += piece.byteLength;
    if (fresh.byteLength === 0) return undefined;
    this.#received = this.#at;
    this.#backoff.reset();
    return fresh;
  }

  async #resume(error: MattingError): Promise<void> {
    await this.#budget.beforeRetry(error, this.#backoff);
    const request = get(this.#link, this.#received, this.#headers.etag);
    this.#answer = requireFile(await sendWithRetries(this.#transport, request, this.#budget));
    this.#at = this.#answer.status === 206 ? this.#received : 0;
  }
}

/** Asks for no compression, because a range counts the bytes of the file. */
function get(link: string, from = 0, etag?: string): Request {
  const headers: Record<string, string> = { accept: '*/*', 'accept-encoding': 'identity' };
  if (from > 0) headers.range = `bytes=${from}-`;
  if (from > 0 && etag !== undefined) headers['if-match'] = etag;
  return { method: 'GET', url: link, headers, isFile: type => !type.startsWith('text/html') };
}

function requireFile(answer: Answer): FileAnswer {
  if (isFileAnswer(answer)) return answer;
  const { status, json, headers } = answer;
  if (isProblem(json)) throw errorOfProblem(status, json);
  const requestId = headers.get('x-request-id') ?? undefined;
  const parts = { code: 'UNREADABLE_ANSWER', status, retryable: false, requestId };
  throw new MattingError(`a result link answered ${status} without a file`, parts);
}

function headersOf(headers: Headers): FileHeaders {
  const length = headers.get('content-encoding') === null ? headers.get('content-length') : null;
  return {
    contentType: headers.get('content-type') ?? 'application/octet-stream',
    sizeBytes: length === null ? undefined : Number(length),
    etag: headers.get('etag') ?? undefined,
  };
}
