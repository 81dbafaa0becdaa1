/** Events of the delivery of notifications; the metrics implement it. */

/** unsignable: its secret does not open, so it is not sent at all. */
export const WEBHOOK_ATTEMPT_OUTCOMES = [
  'delivered',
  'gone',
  'refused',
  'unanswered',
  'aborted',
  'unsignable',
] as const;
export type WebhookAttemptOutcome = (typeof WEBHOOK_ATTEMPT_OUTCOMES)[number];

export interface WebhookObserver {
  webhookAttempted(outcome: WebhookAttemptOutcome): void;
  /** @param delayMs from the job's end to the receiver's 2xx */
  webhookDelivered(delayMs: number): void;
}
