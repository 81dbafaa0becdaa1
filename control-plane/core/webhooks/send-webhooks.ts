import {
  type GuardedPost,
  PostFailedError,
  type PostFailure,
} from '@matting/http/outgoing/guarded-post.ts';
import type { SlotLimits } from '@matting/http/outgoing/shared-slots.ts';
import { signMessage } from '@matting/http/outgoing/webhook-signature.ts';
import { OWN_AGENT } from '@matting/program/ports/keyless.ts';
import {
  activeCarrier,
  asSpan,
  carrierOf,
  describeSpan,
  failSpan,
  type Tracing,
} from '@matting/program/tracing/active-span.ts';
import type { ViewedJob } from '../jobs/job.ts';
import type { CallbackFailure } from '../jobs/job-callback.ts';
import type { JobEvents } from '../results/job-events.ts';
import type { JobViews } from '../results/job-view.ts';
import { type CallbackSecrets, notificationBody } from '../secrets/secret-box.ts';
import {
  type AttemptResult,
  type ClaimedMessage,
  type DeliveryParts,
  type MessageClaim,
  MessageDelivery,
} from './deliver-messages.ts';
import { LANE_TAKE_MAX } from './lane-walk.ts';
import { nextWaitMs, retryAfterMs, type WebhookSchedule } from './webhook-schedule.ts';

export function renderOutboxBody(views: JobViews, job: ViewedJob): string {
  if (job.finishedAtMs === null) throw new Error(`job ${job.id} is not final`);
  return JSON.stringify({
    type: job.state === 'succeeded' ? 'matting.job.succeeded' : 'matting.job.failed',
    timestamp: new Date(job.finishedAtMs).toISOString(),
    job_id: job.id,
    data: views.viewWithoutCallback(job),
  });
}

const POLL_MS = 1000;
/** The contract's 15 s for an attempt, and time to write its outcome. */
const LEASE_MS = 20_000;
/** A slower receiver shares its slots with other slow ones. */
const SLOW_MS = 5_000;
/**
 * A slot costs a socket and about 20 KB for up to the whole timeout. An account alone gets 64, 8 of
 * them to one receiver, 32 to slow receivers.
 */
const SLOTS: SlotLimits = {
  max: 128,
  destinationMax: 2 * LANE_TAKE_MAX,
  slowMax: 64,
  slowDestinationsMax: 256,
};

/** unsignable: the secret does not open, so nothing is sent. */
export const WEBHOOK_ATTEMPT_OUTCOMES = [
  'delivered',
  'gone',
  'refused',
  'unanswered',
  'aborted',
  'unsignable',
] as const;
type WebhookAttemptOutcome = (typeof WEBHOOK_ATTEMPT_OUTCOMES)[number];

interface WebhookObserver {
  webhookAttempted(outcome: WebhookAttemptOutcome): void;
  /** @param delayMs from the job's end to the receiver's 2xx */
  webhookDelivered(delayMs: number): void;
}

interface WebhookDeliveryParts extends DeliveryParts {
  readonly guardedPost: Pick<GuardedPost, 'post'>;
  readonly secrets: Pick<CallbackSecrets, 'open' | 'openText' | 'keyIds'>;
  readonly events: Pick<JobEvents, 'onNotificationDue'>;
  readonly observer: WebhookObserver;
  readonly scheduleMs: WebhookSchedule;
  readonly tracing?: Tracing | undefined;
}

export function webhookDelivery(parts: WebhookDeliveryParts): MessageDelivery {
  const { log, secrets, events, tracing } = parts;
  const channel = {
    kind: 'webhook',
    pollMs: parts.pollMs ?? POLL_MS,
    leaseMs: LEASE_MS,
    slots: SLOTS,
    secretKeyIds: secrets.keyIds,
    attempt: (claimed: ClaimedMessage, cutOff: AbortSignal) =>
      asSpan(beginSpan(tracing, claimed), () => makeAttempt(parts, claimed, cutOff)),
    unreadable: (err: unknown) => log.warn({ err }, 'the webhook outbox is not readable'),
    attemptLost: (err: unknown, jobId: string) =>
      log.error({ err, jobId }, 'a notification is left to its lease'),
  } as const;
  return new MessageDelivery(parts, channel, wake => events.onNotificationDue(wake));
}

/** The parent is the submission's span, perhaps hours old. */
function beginSpan(tracing: Tracing | undefined, { message, claim }: ClaimedMessage) {
  const attributes = {
    'http.request.method': 'POST',
    'matting.job.id': claim.id,
    'matting.notification.attempt': message.attempts + 1,
  };
  return tracing?.start(
    { name: 'notify', kind: 'CLIENT', attributes },
    carrierOf(message.traceContext),
  );
}

async function makeAttempt(
  parts: WebhookDeliveryParts,
  claimed: ClaimedMessage,
  cutOff: AbortSignal,
): Promise<AttemptResult> {
  const { secrets, observer } = parts;
  const { message, claim, listedAtMs } = claimed;
  const { id, createdAtMs, readAtMs } = message;
  const key = secrets.open(id, message);
  const body = secrets.openText(message.body, notificationBody(id));
  if (key === undefined || body === undefined) return unsignable(parts, claim, cutOff);
  const startedAtMs = performance.now();
  // The database's clock, extrapolated from when it read the row.
  const nowMs = () => readAtMs + (performance.now() - listedAtMs);
  const outcome = await send(parts, claimed, { key, body: Buffer.from(body), nowMs }, cutOff);
  const durationMs = performance.now() - startedAtMs;
  observer.webhookAttempted(outcome.kind);
  describeOutcome(outcome);
  if (outcome.kind === 'delivered') {
    observer.webhookDelivered(Math.max(0, nowMs() - createdAtMs));
  }
  const nextInMs = await writeEnd(parts, claimed, { outcome, durationMs }, cutOff);
  if (outcome.kind === 'aborted') return { slow: undefined, nextInMs: undefined };
  return { slow: outcome.kind === 'unanswered' || durationMs > SLOW_MS, nextInMs };
}

/** refused: any other answer, redirects too. aborted: the message may have arrived. */
type SendOutcome =
  | { readonly kind: 'delivered' | 'gone'; readonly status: number }
  | { readonly kind: 'refused'; readonly status: number; readonly retryAfterMs: number }
  | {
      readonly kind: 'unanswered';
      readonly failure: PostFailure;
      readonly code?: string | undefined;
    }
  | { readonly kind: 'aborted' };

const GONE = 410;

/** Every account sends the same headers, so that receivers learn nothing about it. */
const HEADERS = {
  'content-type': 'application/json',
  'user-agent': `${OWN_AGENT} (webhook)`,
  accept: '*/*',
  'accept-encoding': 'identity',
};

interface Opened {
  readonly key: Uint8Array;
  readonly body: Buffer;
  /** The database's clock: receivers refuse a message whose time is off. */
  readonly nowMs: () => number;
}

/** Rejects only for a bug. */
async function send(
  { guardedPost }: WebhookDeliveryParts,
  { message }: ClaimedMessage,
  { key, body, nowMs }: Opened,
  cutOff: AbortSignal,
): Promise<SendOutcome> {
  const { id, accountId, address, traceContext } = message;
  const timestampS = Math.floor(nowMs() / 1000);
  const signature = signMessage(key, { id: `msg_${id}`, timestampS, body });
  const trace = traceContext === null ? undefined : traceHeaders();
  try {
    const request = { accountId, headers: { ...HEADERS, ...signature, ...trace }, body };
    const { status, retryAfter } = await guardedPost.post(address, request, cutOff);
    if (status >= 200 && status < 300) return { kind: 'delivered', status };
    if (status === GONE) return { kind: 'gone', status };
    return { kind: 'refused', status, retryAfterMs: retryAfterMs(status, retryAfter, nowMs()) };
  } catch (error) {
    if (error instanceof PostFailedError) {
      return { kind: 'unanswered', failure: error.failure, code: error.code };
    }
    if (cutOff.aborted) return { kind: 'aborted' };
    throw error;
  }
}

function traceHeaders(): Readonly<Record<string, string>> | undefined {
  const carrier = activeCarrier();
  if (carrier === undefined) return undefined;
  const { traceparent, tracestate } = carrier;
  return tracestate ? { traceparent, tracestate } : { traceparent };
}

function describeOutcome(outcome: SendOutcome): void {
  describeSpan({ 'matting.outcome': outcome.kind });
  if ('status' in outcome) describeSpan({ 'http.response.status_code': outcome.status });
  if (outcome.kind === 'unanswered') failSpan(outcome.failure);
  else if (outcome.kind === 'gone' || outcome.kind === 'refused') failSpan(String(outcome.status));
}

function callbackFailureOf(outcome: SendOutcome): CallbackFailure | undefined {
  if (outcome.kind === 'unanswered') return outcome.failure;
  if (outcome.kind === 'gone') return 'gone';
  if (outcome.kind !== 'refused') return undefined;
  return outcome.status >= 300 && outcome.status < 400 ? 'redirect' : 'status';
}

async function unsignable(
  { outbox, log, observer }: WebhookDeliveryParts,
  claim: MessageClaim,
  cutOff: AbortSignal,
): Promise<AttemptResult> {
  log.error({ jobId: claim.id }, 'a notification does not open: it was altered');
  observer.webhookAttempted('unsignable');
  const end = { statusCode: null, error: 'unsignable', durationMs: 0 };
  await outbox.failed(claim, end, { eraseSecret: false }, cutOff);
  return { slow: undefined, nextInMs: undefined };
}

async function writeEnd(
  { outbox, log, scheduleMs, random = Math.random }: WebhookDeliveryParts,
  { message, claim }: ClaimedMessage,
  { outcome, durationMs }: { readonly outcome: SendOutcome; readonly durationMs: number },
  cutOff: AbortSignal,
): Promise<number | undefined> {
  const attempt = message.attempts + 1;
  const requestedMs = outcome.kind === 'refused' ? outcome.retryAfterMs : 0;
  const mayRetry = outcome.kind === 'refused' || outcome.kind === 'unanswered';
  const nextInMs = mayRetry ? nextWaitMs(scheduleMs, attempt, requestedMs, random()) : undefined;
  const statusCode = 'status' in outcome ? outcome.status : null;
  const end = { statusCode, error: callbackFailureOf(outcome), durationMs };
  const write = (): Promise<boolean> => {
    if (outcome.kind === 'aborted') return outbox.release(claim, cutOff);
    if (outcome.kind === 'delivered') return outbox.delivered(claim, end, cutOff);
    if (nextInMs !== undefined) return outbox.retryLater(claim, end, nextInMs, cutOff);
    return outbox.failed(claim, end, { eraseSecret: outcome.kind === 'gone' }, cutOff);
  };
  const held = await write();
  // The line omits the receiver's address, which is the caller's secret.
  const line = { jobId: claim.id, attempt, ...outcome, durationMs: Math.round(durationMs) };
  if (held) log.info({ ...line, nextInMs }, 'notification');
  else log.warn(line, 'notification taken over meanwhile');
  return nextInMs;
}
