/** The part of a job that its notification reads and reports. */
import { POST_FAILURES } from '@matting/http/outgoing/guarded-post.ts';

/** pending also while the job is open, and until the delivery ends in one of the others. */
export type CallbackStatus = 'pending' | 'delivered' | 'failed';

/**
 * Why an attempt did not deliver: no answer came (PostFailure), it was a redirect, a 410 or another
 * status, or nothing here can sign it.
 */
const CALLBACK_FAILURES = [...POST_FAILURES, 'redirect', 'gone', 'status', 'unsignable'] as const;
export type CallbackFailure = (typeof CALLBACK_FAILURES)[number];

/** A word of another version is not one of the list that callers know. */
export function callbackFailureOf(lastError: string | null): CallbackFailure | null {
  return CALLBACK_FAILURES.find(known => known === lastError) ?? null;
}

export interface JobCallback {
  readonly url: string;
  readonly status: CallbackStatus;
  readonly attempts: number;
  /** Null if the last attempt met no answer. */
  readonly lastStatusCode: number | null;
  /** Null if the last attempt delivered it, or none was made. */
  readonly lastFailure: CallbackFailure | null;
  readonly lastAttemptAtMs: number | null;
  /** Set from the job's end on while the notification is pending. */
  readonly nextAttemptAtMs: number | null;
}

export interface CallbackJob {
  readonly callback: JobCallback | null;
}
