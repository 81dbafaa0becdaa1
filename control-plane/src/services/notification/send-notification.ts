/** One attempt: signed, sent, and classified by its answer. It knows no database. */
import type { TraceCarrier } from '#program/tracing/span.ts';
import { retryAfterMs } from '../../domain/webhook-schedule.ts';
import {
  type GuardedPost,
  PostFailedError,
  type PostFailure,
} from '../../sources/guard/guarded-post.ts';
import { signMessage } from './signature.ts';

export interface Message {
  readonly jobId: string;
  readonly accountId: string;
  readonly callbackUrl: string;
  /** Rendered once; its UTF-8 is what is signed and sent. */
  readonly body: string;
  /** The bytes the callback_secret stands for. */
  readonly key: Uint8Array;
  /**
   * UTC milliseconds of now by a clock that all replicas share: receivers believe no message whose
   * time is minutes off.
   */
  readonly nowMs: () => number;
  /** For the receiver's own spans; absent: the job was not traced. */
  readonly trace?: TraceCarrier | undefined;
}

/**
 * delivered: a 2xx. gone: a 410. refused: any other answer, redirects too. unanswered: none came.
 * aborted: we ended it ourselves; it may have arrived.
 */
export type SendOutcome =
  | { readonly kind: 'delivered' | 'gone'; readonly status: number }
  | { readonly kind: 'refused'; readonly status: number; readonly retryAfterMs: number }
  | {
      readonly kind: 'unanswered';
      readonly failure: PostFailure;
      readonly code?: string | undefined;
    }
  | { readonly kind: 'aborted' };

const GONE = 410;

/** The same for all: receivers see which service sends, and nothing of the account. */
const HEADERS = {
  'content-type': 'application/json',
  'user-agent': 'matting-service/1 (webhook)',
  accept: '*/*',
  'accept-encoding': 'identity',
};

/** Rejects only for a bug. */
export async function sendNotification(
  guardedPost: Pick<GuardedPost, 'post'>,
  { jobId, accountId, callbackUrl, body, key, nowMs, trace }: Message,
  signal: AbortSignal,
): Promise<SendOutcome> {
  const bytes = Buffer.from(body, 'utf8');
  const timestampS = Math.floor(nowMs() / 1000);
  const signature = signMessage(key, { id: `msg_${jobId}`, timestampS, body: bytes });
  try {
    const request = {
      accountId,
      headers: { ...HEADERS, ...signature, ...traceHeaders(trace) },
      body: bytes,
    };
    const { status, retryAfter } = await guardedPost.post(callbackUrl, request, signal);
    if (status >= 200 && status < 300) return { kind: 'delivered', status };
    if (status === GONE) return { kind: 'gone', status };
    return { kind: 'refused', status, retryAfterMs: retryAfterMs(status, retryAfter, nowMs()) };
  } catch (error) {
    if (error instanceof PostFailedError) {
      return { kind: 'unanswered', failure: error.failure, code: error.code };
    }
    if (signal.aborted) return { kind: 'aborted' };
    throw error;
  }
}

function traceHeaders(trace: TraceCarrier | undefined): Readonly<Record<string, string>> {
  if (trace === undefined) return {};
  const { traceparent, tracestate } = trace;
  return tracestate ? { traceparent, tracestate } : { traceparent };
}
