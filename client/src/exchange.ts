/**
 * Requests and their answers: sends one again until there is an answer that counts, as docs/rest.md
 * says under "Retries and idempotency". It knows no job.
 */
import { errorOfProblem, isProblem, MattingError, noAnswer } from './errors.ts';
import { Backoff, type Patience, parseRetryAfterMs } from './patience.ts';

/** What comes again by itself. */
const RETRIED_STATUSES = [429, 500, 502, 503, 504];
/** The service waits 120 s for a job at most; then it answers. */
export const ANSWER_MS_DEFAULT = 150_000;
/** The service's bound on the sending of a body. */
const BODY_MS_MAX = 120_000;
/** Between two pieces of an answer. */
const PIECE_MS_MAX = 60_000;
const FIRST_PAUSE_MS = 500;
/** Of a JSON answer; a job has some 1000. */
const JSON_BYTES_MAX = 4 * 1024 * 1024;

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface Transport {
  readonly fetch: Fetch;
  /** From a request, without the sending of its body, until its answer. */
  readonly answerMsMax: number;
}

export interface Request {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | FormData;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** Of a JSON answer. */
  readonly json: unknown;
  /** Of any other: the pieces as they come. To be read to its end or returned. */
  readonly pieces: AsyncGenerator<Uint8Array> | undefined;
}

/** The first answer that no retry would change. */
export async function ask(
  transport: Transport,
  request: Request,
  patience: Patience,
): Promise<Answer> {
  const backoff = new Backoff(FIRST_PAUSE_MS);
  for (;;) {
    const outcome = await tryOnce(transport, request, patience);
    if (!(outcome instanceof MattingError)) return outcome;
    await patience.beforeRetry(outcome, backoff);
  }
}

/** An answer, or why the same request is to be sent again. */
async function tryOnce(
  { fetch, answerMsMax }: Transport,
  request: Request,
  patience: Patience,
): Promise<Answer | MattingError> {
  patience.requireWanted();
  const attempt = new Attempt(patience);
  let handedOn = false;
  try {
    attempt.allow(answerMsMax + (request.body === undefined ? 0 : BODY_MS_MAX));
    // A redirect would turn a POST into a GET, or take the key elsewhere.
    const redirect = request.headers.authorization === undefined ? 'follow' : 'manual';
    const { method, headers, url } = request;
    // Typed as the runtimes' own types of a body differ.
    const body = (request.body ?? null) as NonNullable<RequestInit['body']> | null;
    const { signal } = attempt;
    const response = await fetch(url, { method, headers, body, redirect, signal });
    if (response.ok && !isJson(response)) {
      handedOn = true;
      return { ...plainParts(response), json: undefined, pieces: piecesOf(response, attempt) };
    }
    const text = await textOf(response);
    const retried = RETRIED_STATUSES.includes(response.status);
    if (!retried && !isJson(response)) throw unreadable(response, false);
    if (!isJson(response)) return unreadable(response, true);
    const json: unknown = JSON.parse(text);
    if (!retried) return { ...plainParts(response), json, pieces: undefined };
    const retryAfterMs = parseRetryAfterMs(response.headers.get('retry-after'));
    if (isProblem(json)) return errorOfProblem(response.status, json, retryAfterMs);
    return unreadable(response, true);
  } catch (cause) {
    patience.requireWanted();
    if (cause instanceof MattingError && !cause.retryable) throw cause;
    return noAnswer(`no answer from ${new URL(request.url).host}`, {
      cause: attempt.timedOut ?? cause,
    });
  } finally {
    if (!handedOn) attempt.end();
  }
}

/** What one request holds: a time limit and the caller's signal. */
class Attempt {
  readonly #controller = new AbortController();
  readonly #patience: Patience;
  readonly #onAbort = () => this.#controller.abort(this.#patience.signal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Why it was ended, where the time was spent. */
  timedOut: Error | undefined;

  constructor(patience: Patience) {
    this.#patience = patience;
    patience.signal?.addEventListener('abort', this.#onAbort);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** From now, and never longer than the call has. */
  allow(maxMs: number): void {
    clearTimeout(this.#timer);
    const ms = Math.max(1, Math.min(maxMs, this.#patience.leftMs));
    this.#timer = setTimeout(() => {
      this.timedOut = new Error(`nothing came for ${Math.round(ms)} ms`);
      this.#controller.abort(this.timedOut);
    }, ms);
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#patience.signal?.removeEventListener('abort', this.#onAbort);
  }
}

/** Rejects with NO_ANSWER where the answer breaks off, with the signal's reason where it is aborted. */
async function* piecesOf(response: Response, attempt: Attempt): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    while (reader !== undefined) {
      attempt.allow(PIECE_MS_MAX);
      const { done, value } = await reader.read();
      if (done) return;
      // How long the consumer takes is its own affair.
      attempt.pause();
      yield value;
    }
  } catch (cause) {
    if (attempt.signal.aborted && attempt.timedOut === undefined) throw attempt.signal.reason;
    throw noAnswer('the answer broke off', { cause: attempt.timedOut ?? cause });
  } finally {
    attempt.end();
    // What is left of it is not wanted, and that it broke is known.
    reader?.cancel().catch(() => undefined);
  }
}

async function textOf(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (let bytes = 0; reader !== undefined; ) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.byteLength;
    if (bytes > JSON_BYTES_MAX) {
      await reader.cancel();
      throw unreadable(response, false);
    }
    text += decoder.decode(value, { stream: true });
  }
  return text + decoder.decode();
}

function isJson({ headers }: Response): boolean {
  return /^application\/(problem\+)?json\b/i.test(headers.get('content-type') ?? '');
}

function plainParts({ status, headers }: Response) {
  return { status, headers };
}

function unreadable(response: Response, retryable: boolean): MattingError {
  const { status, headers } = response;
  const type = headers.get('content-type') ?? 'no media type';
  const to = headers.get('location');
  const detail =
    to !== null && status >= 300 && status < 400
      ? `redirected to ${to}: give that address`
      : `an answer that is not the service's: ${status}, ${type}`;
  const retryAfterMs = parseRetryAfterMs(headers.get('retry-after'));
  const requestId = headers.get('x-request-id') ?? undefined;
  return new MattingError(detail, {
    code: 'UNREADABLE_ANSWER',
    status,
    retryable,
    requestId,
    retryAfterMs,
  });
}
