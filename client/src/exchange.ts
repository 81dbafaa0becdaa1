/** Sends a request, with the retries of docs/requests.md, "Retries and idempotency". */
import { Attempt, PieceReader } from './attempt.ts';
import { errorOfProblem, isProblem, MattingError, noAnswer } from './errors.ts';
import { Backoff, parseRetryAfterMs, type RetryBudget } from './retry-budget.ts';

const RETRIED_STATUSES = [429, 500, 502, 503, 504];
/** The service waits at most 120 s for a job. */
export const ANSWER_MS_DEFAULT = 150_000;
/** The service's bound for sending a body. */
const BODY_MS_MAX = 120_000;
const FIRST_PAUSE_MS = 500;
/** A job has about 1000 bytes. */
const JSON_BYTES_MAX = 4 * 1024 * 1024;

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface Transport {
  readonly fetch: Fetch;
  /** Longest time from the request to its answer, without the time to send the body. */
  readonly answerMsMax: number;
}

export interface Request {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | FormData;
  /** Whether a media type is the file's. A proxy's error page has another type. */
  readonly isFile?: (mediaType: string) => boolean;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** The parsed body, if the answer is JSON. */
  readonly json: unknown;
  /** The body, if the answer is a file. */
  readonly pieces: PieceReader | undefined;
}

/** Repeats the request until an answer is final. */
export async function sendWithRetries(
  transport: Transport,
  request: Request,
  budget: RetryBudget,
): Promise<Answer> {
  const backoff = new Backoff(FIRST_PAUSE_MS);
  for (;;) {
    const outcome = await tryOnce(transport, request, budget);
    if (!(outcome instanceof MattingError)) return outcome;
    await budget.beforeRetry(outcome, backoff);
  }
}

/** Returns an answer, or the reason for a retry. */
async function tryOnce(
  { fetch, answerMsMax }: Transport,
  request: Request,
  budget: RetryBudget,
): Promise<Answer | MattingError> {
  budget.throwIfAborted();
  const attempt = new Attempt(budget);
  let handedOn = false;
  try {
    attempt.allow(answerMsMax + (request.body === undefined ? 0 : BODY_MS_MAX));
    // A redirect would turn a POST into a GET, or send the key elsewhere.
    const redirect = request.headers.authorization === undefined ? 'follow' : 'manual';
    const { method, headers, url } = request;
    // The runtimes' types of a body differ.
    const body = (request.body ?? null) as NonNullable<RequestInit['body']> | null;
    const { signal } = attempt;
    const response = await fetch(url, { method, headers, body, redirect, signal });
    const mediaType = response.headers.get('content-type') ?? '';
    if (response.ok && !isJson(response) && request.isFile?.(mediaType)) {
      handedOn = true;
      const pieces = new PieceReader(response, attempt);
      return { ...plainParts(response), json: undefined, pieces };
    }
    const text = await textOf(response);
    const retried = RETRIED_STATUSES.includes(response.status) || isStaleRedirect(response);
    if (!retried && !isJson(response)) throw unreadable(response, false);
    if (!isJson(response)) return unreadable(response, true);
    const json: unknown = JSON.parse(text);
    if (!retried) return { ...plainParts(response), json, pieces: undefined };
    const retryAfterMs = parseRetryAfterMs(response.headers.get('retry-after'));
    // The problem says that a retry fails, whatever the status.
    const isFinal = isProblem(json) && !json.retryable;
    if (isFinal) return { ...plainParts(response), json, pieces: undefined };
    if (isProblem(json)) return errorOfProblem(response.status, json, retryAfterMs);
    return unreadable(response, true);
  } catch (cause) {
    budget.throwIfAborted();
    if (cause instanceof MattingError && !cause.retryable) throw cause;
    return noAnswer(`no answer from ${new URL(request.url).host}`, {
      cause: attempt.timedOut ?? cause,
    });
  } finally {
    if (!handedOn) attempt.end();
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

/**
 * A result link may redirect to a storage URL that is valid for a minute. If the storage refuses
 * it, the link gives another, or reports that it has expired.
 */
function isStaleRedirect(response: Response): boolean {
  return response.redirected && [403, 404].includes(response.status) && !isJson(response);
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
