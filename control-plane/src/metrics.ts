/**
 * Metrics that are counted as things happen; metric-gauges.ts has those that are read at a scrape.
 * http/operator-app.ts serves both, never on the public port. Base units, no identifiers as labels.
 * docs/operations.md explains each name.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '#contract/errors.ts';
import type { GuardCause } from '#program/ports/grpc-guard.ts';
import type { SpanFate, SpanObserver } from '#program/tracing/span.ts';
import type { Answered } from './http/answers/answer-log.ts';
import type { EndedCause } from './http/connections/connections.ts';
import type { AttemptOutcome } from './nodes/attempt-outcome.ts';
import type { RefusalCause } from './nodes/refused-nodes.ts';
import type { AlertObserver } from './services/alerts/balance-watch.ts';
import type { MailAttemptOutcome, MailObserver } from './services/alerts/mail-sender.ts';
import type { JobEnding, JobObserver } from './services/dispatch/job-observer.ts';
import type {
  WebhookAttemptOutcome,
  WebhookObserver,
} from './services/notification/webhook-observer.ts';
import type { ToldOutcome } from './services/sales/receive-payment.ts';
import type { BucketObserver, BucketRequestEnd } from './storage/bucket/bucket-client.ts';

/** From a small image on a GPU to a job at its limit of two hours. */
const JOB_SECONDS_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 600, 3600, 7200];
const WAIT_SECONDS_BUCKETS = [0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600, 3600];
/** From no delay to the last attempt. */
const WEBHOOK_SECONDS_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600, 3600, 36_000];
const HTTP_SECONDS_BUCKETS = [0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
/** From a store in the next rack to one that answers after its last attempt. */
const STORAGE_SECONDS_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
/** Resolution of the event loop's lag; the default of 10 ms costs 0.5 % of a core for nothing. */
const EVENT_LOOP_PRECISION_MS = 100;

/** Methods that are counted by their name; anything else a client makes up is one label. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']);

export class ControlMetrics
  implements JobObserver, WebhookObserver, MailObserver, AlertObserver, BucketObserver, SpanObserver
{
  readonly registry = new Registry();
  readonly #requests = this.#counter(
    'matting_control_http_requests_total',
    'Answers of the public port',
    ['route', 'method', 'status', 'code'],
  );
  readonly #requestSeconds = this.#histogram(
    'matting_control_http_request_duration_seconds',
    'From the request to the end of its answer, waits for jobs included',
    ['route', 'method'],
    HTTP_SECONDS_BUCKETS,
  );
  readonly #jobs = this.#counter('matting_control_jobs_total', 'Jobs that ended here', [
    'outcome',
    'mode',
    'code',
    'retryable',
  ]);
  readonly #jobSeconds = this.#histogram(
    'matting_control_job_duration_seconds',
    'From submission to the end of the job',
    ['outcome', 'mode'],
    JOB_SECONDS_BUCKETS,
  );
  readonly #waitSeconds = this.#histogram(
    'matting_control_job_wait_seconds',
    'From submission to the first admission by a node',
    ['mode'],
    WAIT_SECONDS_BUCKETS,
  );
  readonly #attempts = this.#counter(
    'matting_control_attempts_total',
    'Attempts on nodes by how they ended',
    ['outcome', 'reason'],
  );
  readonly #directAttempts = this.#counter(
    'matting_control_direct_attempts_total',
    'Attempts whose files went straight between node and storage, by how they ended',
    ['outcome'],
  );
  readonly #fetches = this.#counter(
    'matting_control_source_fetches_total',
    'Downloads of image URLs by how they ended',
    ['outcome'],
  );
  readonly #leasesLost = this.#counter(
    'matting_control_leases_lost_total',
    'Jobs that another replica took over while they were worked on here',
    [],
  );
  readonly #takeovers = this.#counter(
    'matting_control_takeovers_total',
    'Jobs taken over here from a holder whose lease ran out',
    [],
  );

  readonly #webhookAttempts = this.#counter(
    'matting_control_webhook_attempts_total',
    'Attempts to deliver notifications by how they ended',
    ['outcome'],
  );
  readonly #webhookSeconds = this.#histogram(
    'matting_control_webhook_delay_seconds',
    'From the end of a job to the delivery of its notification',
    [],
    WEBHOOK_SECONDS_BUCKETS,
  );

  readonly #mailAttempts = this.#counter(
    'matting_control_mail_attempts_total',
    'Attempts to hand mails to the mail server by how they ended',
    ['outcome'],
  );
  readonly #balancesTold = this.#counter(
    'matting_control_low_balances_told_total',
    'Thresholds of balances that owners were told of from here',
    [],
  );

  readonly #connectionsDropped = this.#counter(
    'matting_control_http_connections_dropped_total',
    'Connections to the public port closed unread, because as many were open as may be',
    [],
  );
  readonly #paymentNotifications = this.#counter(
    'matting_control_payment_notifications_total',
    'Proven notifications of payments, by what became of them',
    ['outcome'],
  );
  readonly #connectionsEnded = this.#counter(
    'matting_control_http_connections_ended_total',
    'Connections to the public port ended at a bound, by what they did',
    ['cause'],
  );
  readonly #sweepFailures = this.#counter(
    'matting_control_sweep_failures_total',
    'Steps of clearing away that failed; the log says which',
    [],
  );

  readonly #nodesRefused = this.#counter(
    'matting_control_nodes_refused_total',
    'Registrations and heartbeats that were not taken',
    ['cause'],
  );

  readonly #registryEnded = this.#counter(
    'matting_control_registry_ended_total',
    'Connections and calls that the registry port ended at a bound, by what they did',
    ['cause'],
  );

  readonly #storageRequests = this.#counter(
    'matting_control_storage_requests_total',
    'Requests to the bucket by how they ended, after all their attempts',
    ['operation', 'outcome'],
  );
  readonly #storageRetries = this.#counter(
    'matting_control_storage_retries_total',
    'Attempts again at requests to the bucket',
    ['operation'],
  );
  readonly #storageSeconds = this.#histogram(
    'matting_control_storage_request_duration_seconds',
    'Requests to the bucket, all their attempts; of a body that is read, to its beginning',
    ['operation'],
    STORAGE_SECONDS_BUCKETS,
  );

  readonly #spans = this.#counter(
    'matting_control_spans_total',
    'Sampled spans of traces by what became of them',
    ['outcome'],
  );

  readonly #storageClock = new Gauge({
    name: 'matting_control_storage_clock_offset_seconds',
    help: "What this machine's clock lacks to the bucket's",
    registers: [this.registry],
  });

  constructor() {
    collectDefaultMetrics({
      register: this.registry,
      eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
    });
  }

  webhookAttempted(outcome: WebhookAttemptOutcome): void {
    this.#webhookAttempts.inc({ outcome });
  }

  webhookDelivered(delayMs: number): void {
    this.#webhookSeconds.observe(delayMs / 1000);
  }

  mailAttempted(outcome: MailAttemptOutcome): void {
    this.#mailAttempts.inc({ outcome });
  }

  balanceTold(): void {
    this.#balancesTold.inc();
  }

  answered({ route = 'none', method = '', status, code, seconds }: Answered): void {
    const labels = { route, method: METHODS.has(method) ? method : 'other' };
    this.#requests.inc({ ...labels, status: String(status), code: code ?? '' });
    if (seconds !== undefined) this.#requestSeconds.observe(labels, seconds);
  }

  jobAdmitted(mode: JobEnding['mode'], waitMs: number): void {
    this.#waitSeconds.observe({ mode }, waitMs / 1000);
  }

  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void {
    this.#attempts.inc({ outcome: kind, reason: reason ?? '' });
  }

  directAttemptEnded(kind: AttemptOutcome['kind']): void {
    this.#directAttempts.inc({ outcome: kind });
  }

  fetchEnded(outcome: 'stored' | 'failed' | 'aborted'): void {
    this.#fetches.inc({ outcome });
  }

  jobEnded({ outcome, mode, failure, totalMs }: JobEnding): void {
    const { code = '', retryable = '' } = failure ?? {};
    this.#jobs.inc({ outcome, mode, code, retryable: String(retryable) });
    this.#jobSeconds.observe({ outcome, mode }, totalMs / 1000);
  }

  connectionDropped(): void {
    this.#connectionsDropped.inc();
  }

  paymentTold(outcome: ToldOutcome): void {
    this.#paymentNotifications.inc({ outcome });
  }

  connectionEnded(cause: EndedCause): void {
    this.#connectionsEnded.inc({ cause });
  }

  nodeRefused(cause: RefusalCause): void {
    this.#nodesRefused.inc({ cause });
  }

  registryEnded(cause: GuardCause): void {
    this.#registryEnded.inc({ cause });
  }

  bucketRequestEnded(end: BucketRequestEnd): void {
    const { operation, outcome, tookMs, attempts, clockOffsetMs } = end;
    this.#storageRequests.inc({ operation, outcome });
    this.#storageRetries.inc({ operation }, attempts - 1);
    this.#storageSeconds.observe({ operation }, tookMs / 1000);
    this.#storageClock.set(clockOffsetMs / 1000);
  }

  spansEnded(outcome: SpanFate, count: number): void {
    this.#spans.inc({ outcome }, count);
  }

  sweepFailed(): void {
    this.#sweepFailures.inc();
  }

  leaseLost(): void {
    this.#leasesLost.inc();
  }

  takenOver(): void {
    this.#takeovers.inc();
  }

  #counter<L extends string>(name: string, help: string, labelNames: readonly L[]): Counter<L> {
    return new Counter({ name, help, labelNames: [...labelNames], registers: [this.registry] });
  }

  #histogram<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
    buckets: number[],
  ): Histogram<L> {
    const registers = [this.registry];
    return new Histogram({ name, help, labelNames: [...labelNames], buckets, registers });
  }
}
