import { POST_FAILURES } from '@matting/http/outgoing/guarded-post.ts';

/** `pending` also while the job is open. */
export type CallbackStatus = 'pending' | 'delivered' | 'failed';

/** POST_FAILURES: no answer came. `gone`: the answer was 410. `unsignable`: its secret cannot be opened. */
const CALLBACK_FAILURES = [...POST_FAILURES, 'redirect', 'gone', 'status', 'unsignable'] as const;
export type CallbackFailure = (typeof CALLBACK_FAILURES)[number];

/** null also if another version stored a failure that this one does not know. */
export function callbackFailureOf(lastError: string | null): CallbackFailure | null {
  return CALLBACK_FAILURES.find(known => known === lastError) ?? null;
}

export interface JobCallback {
  readonly url: string;
  readonly status: CallbackStatus;
  readonly attempts: number;
  /** null if the last attempt got no answer. */
  readonly lastStatusCode: number | null;
  readonly lastFailure: CallbackFailure | null;
  readonly lastAttemptAtMs: number | null;
  /** Set after the job's end, while the notification is pending. */
  readonly nextAttemptAtMs: number | null;
}

export interface CallbackJob {
  readonly callback: JobCallback | null;
}
