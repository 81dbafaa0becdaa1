/**
 * One attempt to deliver one claimed notification: secret and body opened, sent, its end written.
 *
 * | outcome    | what is written                                                              |
 * |------------|------------------------------------------------------------------------------|
 * | delivered  | delivered, the secret erased                                                 |
 * | gone       | failed, the secret erased                                                    |
 * | refused    | the next attempt by the schedule or, later, by Retry-After; failed after the |
 * |            | last                                                                         |
 * | unanswered | the same                                                                     |
 * | unsignable | failed: nothing will ever sign it                                            |
 * | aborted    | given back, uncounted                                                        |
 */
import type { Logger } from 'pino';
import {
  activeCarrier,
  asSpan,
  carrierOf,
  describeSpan,
  failSpan,
} from '#program/tracing/active-span.ts';
import type { Tracing } from '#program/tracing/span.ts';
import { nextWaitMs, type WebhookSchedule } from '../../domain/webhook-schedule.ts';
import { type CallbackSecrets, notificationBody } from '../../secrets/callback-secret.ts';
import type { GuardedPost } from '../../sources/guard/guarded-post.ts';
import type {
  AttemptEnd,
  DueNotification,
  NotificationClaim,
  WebhookOutboxStore,
} from '../../store/outbox/webhook-outbox-store.ts';
import { type SendOutcome, sendNotification } from './send-notification.ts';
import type { WebhookObserver } from './webhook-observer.ts';

/** A receiver that takes longer shares its places with others of its kind. */
const SLOW_MS = 5_000;

export interface WebhookAttemptDependencies {
  readonly outbox: Pick<WebhookOutboxStore, 'release' | 'delivered' | 'retryLater' | 'failed'>;
  readonly guardedPost: Pick<GuardedPost, 'post'>;
  readonly secrets: Pick<CallbackSecrets, 'open' | 'openText'>;
  readonly observer: WebhookObserver;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly scheduleMs: WebhookSchedule;
  /** In [0, 1). */
  readonly random: () => number;
  /** Aborts: give it back. */
  readonly cutOff: AbortSignal;
  /** Absent: there are no traces. */
  readonly tracing?: Tracing | undefined;
}

export interface ClaimedNotification {
  readonly notification: DueNotification;
  readonly claim: NotificationClaim;
  /** When `notification` was read, by performance.now(): no later than the answer came. */
  readonly listedAtMs: number;
}

export interface AttemptResult {
  /** No answer came, or late; undefined: unknown. */
  readonly slow: boolean | undefined;
  /** Undefined: there is no other attempt. */
  readonly nextInMs: number | undefined;
}

/** Rejects where the database stays away, or for a bug: the lease runs out, and it is sent again. */
export function attemptWebhook(
  dependencies: WebhookAttemptDependencies,
  claimed: ClaimedNotification,
): Promise<AttemptResult> {
  return asSpan(beginSpan(dependencies.tracing, claimed), () => makeAttempt(dependencies, claimed));
}

/** Under the submission of its job, which may be long ago. */
function beginSpan(tracing: Tracing | undefined, { notification, claim }: ClaimedNotification) {
  const { traceContext, attempts } = notification;
  return tracing?.start(
    {
      name: 'notify',
      kind: 'CLIENT',
      attributes: {
        'http.request.method': 'POST',
        'matting.job.id': claim.jobId,
        'matting.notification.attempt': attempts + 1,
      },
    },
    carrierOf(traceContext),
  );
}

async function makeAttempt(
  dependencies: WebhookAttemptDependencies,
  claimed: ClaimedNotification,
): Promise<AttemptResult> {
  const { guardedPost, secrets, observer, cutOff } = dependencies;
  const { notification, claim, listedAtMs } = claimed;
  const { jobId, accountId, callbackUrl, createdAtMs, readAtMs } = notification;
  const { secret, secretKeyId, traceContext } = notification;
  const key = secrets.open(jobId, { secret, secretKeyId });
  const body = secrets.openText(notification.body, notificationBody(jobId));
  if (key === undefined || body === undefined) return unsignable(dependencies, claim);
  const startedAtMs = performance.now();
  // The database's clock, carried on from when the row was read.
  const nowMs = () => readAtMs + (performance.now() - listedAtMs);
  const trace = traceContext === null ? undefined : activeCarrier();
  const message = { jobId, accountId, callbackUrl, body, key, nowMs, trace };
  const outcome = await sendNotification(guardedPost, message, cutOff);
  const durationMs = performance.now() - startedAtMs;
  observer.webhookAttempted(outcome.kind);
  describeOutcome(outcome);
  if (outcome.kind === 'delivered') {
    observer.webhookDelivered(Math.max(0, nowMs() - createdAtMs));
  }
  const nextInMs = await writeEnd(dependencies, claimed, outcome, durationMs);
  if (outcome.kind === 'aborted') return { slow: undefined, nextInMs: undefined };
  return { slow: outcome.kind === 'unanswered' || durationMs > SLOW_MS, nextInMs };
}

function describeOutcome(outcome: SendOutcome): void {
  describeSpan({ 'matting.outcome': outcome.kind });
  if ('status' in outcome) describeSpan({ 'http.response.status_code': outcome.status });
  if (outcome.kind === 'unanswered') failSpan(outcome.failure);
  else if (outcome.kind === 'gone' || outcome.kind === 'refused') failSpan(String(outcome.status));
}

async function unsignable(
  { outbox, log, observer, cutOff }: WebhookAttemptDependencies,
  claim: NotificationClaim,
): Promise<AttemptResult> {
  log.error({ jobId: claim.jobId }, 'a notification does not open: it was altered');
  observer.webhookAttempted('unsignable');
  const end = { statusCode: null, durationMs: 0 };
  await outbox.failed(claim, end, { eraseSecret: false }, cutOff);
  return { slow: undefined, nextInMs: undefined };
}

/** When the next attempt is due; undefined: never. */
async function writeEnd(
  dependencies: WebhookAttemptDependencies,
  { notification, claim }: ClaimedNotification,
  outcome: SendOutcome,
  durationMs: number,
): Promise<number | undefined> {
  const { outbox, scheduleMs, random, cutOff } = dependencies;
  const attempt = notification.attempts + 1;
  const retryAfterMs = outcome.kind === 'refused' ? outcome.retryAfterMs : 0;
  const mayRetry = outcome.kind === 'refused' || outcome.kind === 'unanswered';
  const nextInMs = mayRetry ? nextWaitMs(scheduleMs, attempt, retryAfterMs, random()) : undefined;
  const end: AttemptEnd = { statusCode: 'status' in outcome ? outcome.status : null, durationMs };
  const write = (): Promise<boolean> => {
    if (outcome.kind === 'aborted') return outbox.release(claim, cutOff);
    if (outcome.kind === 'delivered') return outbox.delivered(claim, end, cutOff);
    if (nextInMs !== undefined) return outbox.retryLater(claim, end, nextInMs, cutOff);
    return outbox.failed(claim, end, { eraseSecret: outcome.kind === 'gone' }, cutOff);
  };
  const held = await write();
  // Nothing of the receiver: its address is the caller's.
  const line = { jobId: claim.jobId, attempt, ...outcome, durationMs: Math.round(durationMs) };
  if (held) dependencies.log.info({ ...line, nextInMs }, 'notification');
  else dependencies.log.warn(line, 'notification taken over meanwhile');
  return nextInMs;
}
