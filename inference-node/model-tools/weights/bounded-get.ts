/** Bounds that undici lacks: the wait for an answer, its speed, its pieces, redirects. */
import { boundPieces, PieceCount } from '@matting/program/piece-count.ts';
import { OWN_AGENT } from '@matting/program/ports/keyless.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { type Dispatcher, request } from 'undici';

type Answer = Dispatcher.ResponseData;

/** A slower server could take a week for a gigabyte. */
export const LEAST_SPEED = { windowMs: 60_000, windowBytesMin: 600_000 };
const REDIRECTS_MAX = 5;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const OWN_HEADERS = { 'user-agent': `${OWN_AGENT} (models)`, 'accept-encoding': 'identity' };

export interface Call {
  readonly method?: 'GET' | 'HEAD';
  readonly dispatcher: Dispatcher;
  readonly signal: AbortSignal;
  readonly speed: typeof LEAST_SPEED;
}

/** Follows no redirect. The caller must read the body to its end, or drop it. */
export async function sendRequest(url: URL, headers: object, call: Call): Promise<Answer> {
  const { windowMs, windowBytesMin } = call.speed;
  const slow = new AbortController();
  const pieces = new PieceCount();
  let before = 0;
  // Runs before the headers too: undici restarts its wait at each interim answer.
  const timer = setInterval(() => {
    const bytes = pieces.bytes - before;
    const detail = `${bytes} bytes in ${windowMs / 1000} s, at least ${windowBytesMin} are needed`;
    if (bytes < windowBytesMin) slow.abort(new Error(`it sends too slowly: ${detail}`));
    before = pieces.bytes;
  }, windowMs);
  const signal = AbortSignal.any([call.signal, slow.signal]);
  try {
    const answer = await request(url, { ...call, headers: { ...OWN_HEADERS, ...headers }, signal });
    timer.refresh();
    boundPieces(answer.body, pieces).once('close', () => clearInterval(timer));
    return answer;
  } catch (error) {
    clearInterval(timer);
    throw error;
  }
}

/**
 * @param requireTarget resolves a redirect's address, or throws
 * @param enough returns true to take a redirect as the answer
 * @throws ModelError `fetch`
 */
export async function follow(
  url: URL,
  requestOne: (url: URL) => Promise<Answer>,
  requireTarget: (location: string, from: URL) => URL,
  enough?: (answer: Answer) => unknown,
): Promise<Answer> {
  let from = url;
  for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects += 1) {
    const answer = await requestOne(from);
    const { location } = answer.headers;
    const isRedirect = REDIRECTS.has(answer.statusCode) && typeof location === 'string';
    if (!isRedirect || enough?.(answer)) return answer;
    drop(answer);
    from = requireTarget(location, from);
  }
  const reason = `it redirects more than ${REDIRECTS_MAX} times; check that address`;
  throw new ModelError('fetch', `cannot fetch ${url.origin}${url.pathname}: ${reason}`);
}

/** Ends the connection, since the body may have no end. */
export function drop({ body }: Pick<Answer, 'body'>): void {
  body.on('error', () => undefined).destroy();
}
