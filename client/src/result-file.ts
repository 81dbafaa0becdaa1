/** The file behind a result link: a download that breaks off goes on where it was. */
import { errorOfProblem, isProblem, MattingError, noAnswer } from './errors.ts';
import { type Answer, ask, type Request, type Transport } from './exchange.ts';
import { Backoff, type Patience } from './patience.ts';

const FIRST_PAUSE_MS = 500;
/** Of a file that is kept in memory: more than the service makes. */
const FILE_BYTES_MAX = 512 * 1024 * 1024;

/** What the headers of an answer with a file say. */
export interface FileHeaders {
  /** Media type. */
  readonly contentType: string;
  /** Undefined where the answer does not say. */
  readonly sizeBytes: number | undefined;
  readonly etag: string | undefined;
}

export interface ResultFile extends FileHeaders {
  /** To be read to its end or returned. */
  readonly pieces: AsyncGenerator<Uint8Array>;
}

/** @param begun an answer with the file that has come already. */
export async function openResult(
  transport: Transport,
  link: string,
  patience: Patience,
  begun?: Answer,
): Promise<ResultFile> {
  const answer = begun ?? (await requireFile(await ask(transport, get(link), patience)));
  const headers = headersOf(answer.headers);
  const pieces = resumed(transport, link, patience, answer, headers);
  return { ...headers, pieces };
}

/** The whole of it. */
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

async function* resumed(
  transport: Transport,
  link: string,
  patience: Patience,
  first: Answer,
  { sizeBytes, etag }: FileHeaders,
): AsyncGenerator<Uint8Array> {
  const backoff = new Backoff(FIRST_PAUSE_MS);
  let received = 0;
  for (let answer = first; ; ) {
    // A proxy may answer with the whole file where the rest was asked for.
    let at = answer.status === 206 ? received : 0;
    try {
      for await (const piece of answer.pieces ?? []) {
        const fresh = piece.subarray(Math.max(0, received - at));
        at += piece.byteLength;
        if (fresh.byteLength === 0) continue;
        received = at;
        backoff.reset();
        yield fresh;
      }
      if (sizeBytes === undefined || received === sizeBytes) return;
      throw noAnswer(`the answer ended after ${received} of ${sizeBytes} bytes`);
    } catch (error) {
      if (!(error instanceof MattingError) || error.code !== 'NO_ANSWER') throw error;
      await patience.beforeRetry(error, backoff);
    }
    answer = await requireFile(await ask(transport, get(link, received, etag), patience));
  }
}

/** Identity: a count of bytes means nothing in another encoding. */
function get(link: string, from = 0, etag?: string): Request {
  const headers: Record<string, string> = { accept: '*/*', 'accept-encoding': 'identity' };
  if (from > 0) headers.range = `bytes=${from}-`;
  if (from > 0 && etag !== undefined) headers['if-match'] = etag;
  return { method: 'GET', url: link, headers };
}

async function requireFile(answer: Answer): Promise<Answer> {
  if (answer.pieces !== undefined) return answer;
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
