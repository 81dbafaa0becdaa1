/** Metrics use base units, and no identifiers as labels. */

import type { Answered } from '@matting/http/answer-log.ts';
import type { AttemptOutcome } from '@matting/nodes/attempt-outcome.ts';
import { REFUSAL_CAUSES } from '@matting/nodes/registry-server.ts';
import { everyOf, MetricSet } from '@matting/program/metric-set.ts';
import { GUARD_CAUSES } from '@matting/program/ports/grpc-guard.ts';
import { ENDED_CAUSES } from '@matting/program/ports/http-guard.ts';
import { collectProcessMetrics } from '@matting/program/process-metrics.ts';
import { SPAN_FATES } from '@matting/program/tracing/active-span.ts';
import { ERROR_CATALOGUE, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { JOB_CLASSES } from '@matting/queue/job.ts';
import {
  STORAGE_OPERATIONS,
  STORAGE_OUTCOMES,
  type StorageRequestEnd,
} from '@matting/storage/storage-kind.ts';
import { Gauge } from '@prometheus-io/client';
import { FETCH_OUTCOMES, type JobEnding } from '../attempts/job-observer.ts';
import { WEBHOOK_ATTEMPT_OUTCOMES } from '../webhooks/send-webhooks.ts';

/** Durations of jobs, from a small image on a GPU to the limit of two hours. */
const JOB_SECONDS_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 600, 3600, 7200];
/** Delays of notifications, from none to that of the last attempt. */
const WEBHOOK_SECONDS_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600, 3600, 36_000];
/** Durations of storage requests, from a nearby storage to the last retry at a slow one. */
const STORAGE_SECONDS_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Other methods share one label, because clients may invent any number. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']);

const CODES = Object.entries(ERROR_CATALOGUE);
/** Answers that alert rules count: the service is at fault, not its caller. */
const SERVICE_FAULTS = CODES.filter(([, { scope, http }]) => scope === 'public' && http >= 500).map(
  ([code, { http }]) => ({ status: String(http), code }),
);

/** Ends of jobs that alert rules count. For other codes the image or the request is at fault. */
const JOB_ENDS = [
  ...everyOf({ outcome: ['succeeded'], mode: JOB_CLASSES, code: [''], retryable: [''] }),
  ...everyOf({
    outcome: ['failed'],
    mode: JOB_CLASSES,
    code: ['PROCESSING_FAILED', 'IMAGE_DOWNLOAD_FAILED'],
    retryable: ['true', 'false'],
  }),
];

const NODE_CODES = CODES.filter(([, { scope }]) => scope === 'node').map(([code]) => code);
/**
 * Ends of attempts that alert rules count. A failure of the storage is SERVICE_UNAVAILABLE, or has
 * no code of ours.
 */
const ATTEMPT_ENDS = [
  ...everyOf({ outcome: ['done'], reason: [''] }),
  ...everyOf({ outcome: ['lost', 'node-fault'], reason: NODE_CODES }),
  ...everyOf({ outcome: ['node-fault', 'rejected'], reason: ['INVALID_REQUEST'] }),
  ...everyOf({ outcome: ['local-fault'], reason: ['', 'SERVICE_UNAVAILABLE'] }),
];

export class ControlMetrics extends MetricSet {
  readonly #requests = this.openCounter(
    'matting_control_http_requests_total',
    'Answers of the public port',
    ['route', 'method', 'status', 'code'],
  );
  readonly #requestSeconds = this.histogram(
    'matting_control_http_request_duration_seconds',
    'From the request to the end of its answer, waits for jobs included',
    ['route', 'method'],
    [0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120],
  );
  readonly #jobs = this.openCounter(
    'matting_control_jobs_total',
    'Jobs that ended here',
    ['outcome', 'mode', 'code', 'retryable'],
    JOB_ENDS,
  );
  readonly #jobSeconds = this.histogram(
    'matting_control_job_duration_seconds',
    'From submission to the end of the job',
    ['outcome', 'mode'],
    JOB_SECONDS_BUCKETS,
  );
  readonly #modelSeconds = this.histogram(
    'matting_control_model_duration_seconds',
    'From the admission by a node to the stored result, by what is offered',
    ['model'],
    JOB_SECONDS_BUCKETS,
  );
  readonly #waitSeconds = this.histogram(
    'matting_control_job_wait_seconds',
    'From submission to the first admission by a node',
    ['mode'],
    [0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600, 3600],
  );
  readonly #attempts = this.openCounter(
    'matting_control_attempts_total',
    'Attempts on nodes by how they ended',
    ['outcome', 'reason'],
    ATTEMPT_ENDS,
  );
  readonly jobRefused = this.counted(
    'matting_control_jobs_refused_total',
    'Jobs that nodes refused ten times for other reasons than room, each once',
  );
  readonly fetchEnded = this.countedBy(
    'matting_control_source_fetches_total',
    'Downloads of image URLs by how they ended',
    { outcome: FETCH_OUTCOMES },
  );
  readonly leaseLost = this.counted(
    'matting_control_leases_lost_total',
    'Jobs that another replica took over while they were worked on here',
  );
  readonly takenOver = this.counted(
    'matting_control_takeovers_total',
    'Jobs taken over here from a holder whose lease ran out',
  );

  readonly webhookAttempted = this.countedBy(
    'matting_control_webhook_attempts_total',
    'Attempts to deliver notifications by how they ended',
    { outcome: WEBHOOK_ATTEMPT_OUTCOMES },
  );
  readonly #webhookSeconds = this.histogram(
    'matting_control_webhook_delay_seconds',
    'From the end of a job to the delivery of its notification',
    [],
    WEBHOOK_SECONDS_BUCKETS,
  );

  readonly connectionDropped = this.counted(
    'matting_control_http_connections_dropped_total',
    'Connections to the public port closed unread, because as many were open as may be',
  );
  readonly connectionEnded = this.countedBy(
    'matting_control_http_connections_ended_total',
    'Connections to the public port ended at a bound, by what they did',
    { cause: ENDED_CAUSES },
  );
  readonly settledLeftOut: (step: string) => void;
  readonly sweepFailed = this.counted(
    'matting_control_sweep_failures_total',
    'Steps of clearing away that failed; the log says which',
  );

  readonly nodeRefused = this.countedBy(
    'matting_control_nodes_refused_total',
    'Registrations and heartbeats that were not taken',
    { cause: REFUSAL_CAUSES },
  );
  readonly registryEnded = this.countedBy(
    'matting_control_registry_ended_total',
    'Connections and calls that the registry port ended at a bound, by what they did',
    { cause: GUARD_CAUSES },
  );

  readonly resultLost = this.counted(
    'matting_control_results_lost_total',
    'Answers that the file of a result is gone while its link is good',
  );
  readonly resultNotErased = this.counted(
    'matting_control_results_not_erased_total',
    'Results that callers deleted and the storage did not erase at once: the sweeper does it',
  );
  readonly #storageRequests = this.counter(
    'matting_control_storage_requests_total',
    'Requests to the bucket by how they ended, after all their attempts',
    { operation: STORAGE_OPERATIONS, outcome: STORAGE_OUTCOMES },
  );
  readonly #storageRetries = this.counter(
    'matting_control_storage_retries_total',
    'Attempts again at requests to the bucket',
    { operation: STORAGE_OPERATIONS },
  );
  readonly #storageSeconds = this.histogram(
    'matting_control_storage_request_duration_seconds',
    'Requests to the bucket, all their attempts; of a body that is read, to its beginning',
    ['operation'],
    STORAGE_SECONDS_BUCKETS,
  );
  readonly #storageClock = new Gauge({
    name: 'matting_control_storage_clock_offset_seconds',
    help: "What this machine's clock lacks to the bucket's",
    registers: [this.registry],
  });

  readonly spansEnded = this.countedBy(
    'matting_control_spans_total',
    'Sampled spans of traces by what became of them',
    { outcome: SPAN_FATES },
  );

  constructor(
    settledSteps: readonly string[],
    onUnreadable?: (what: string, error: unknown) => void,
  ) {
    super(onUnreadable);
    // Alerts compute the share of fast jobs, so these series begin at 0.
    for (const mode of JOB_CLASSES) this.#jobSeconds.zero({ outcome: 'succeeded', mode });
    this.settledLeftOut = this.countedBy(
      'matting_control_settled_left_out_total',
      "Times that a package's part in a job's end was left out, at the end or when it was tried again",
      { package: settledSteps },
    );
    collectProcessMetrics(this.registry);
  }

  webhookDelivered(delayMs: number): void {
    this.#webhookSeconds.observe(delayMs / 1000);
  }

  routeAdded(route: string, method: string): void {
    for (const fault of SERVICE_FAULTS) {
      this.#requests.inc({ route, method: countedMethod(method), ...fault }, 0);
    }
  }

  answered({ route = 'none', method = '', status, code, seconds }: Answered): void {
    const labels = { route, method: countedMethod(method) };
    this.#requests.inc({ ...labels, status: String(status), code: code ?? '' });
    if (seconds !== undefined) this.#requestSeconds.observe(labels, seconds);
  }

  jobAdmitted(mode: JobEnding['mode'], waitMs: number): void {
    this.#waitSeconds.observe({ mode }, waitMs / 1000);
  }

  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void {
    this.#attempts.inc({ outcome: kind, reason: reason ?? '' });
  }

  jobEnded({ outcome, mode, failure, totalMs }: JobEnding): void {
    const { code = '', retryable = '' } = failure ?? {};
    this.#jobs.inc({ outcome, mode, code, retryable: String(retryable) });
    this.#jobSeconds.observe({ outcome, mode }, totalMs / 1000);
  }

  modelTimed(model: string, ms: number): void {
    this.#modelSeconds.observe({ model }, ms / 1000);
  }

  storageRequestEnded(end: StorageRequestEnd): void {
    const { operation, outcome, tookMs, attempts, clockOffsetMs } = end;
    this.#storageRequests.inc({ operation, outcome });
    this.#storageRetries.inc({ operation }, attempts - 1);
    this.#storageSeconds.observe({ operation }, tookMs / 1000);
    this.#storageClock.set(clockOffsetMs / 1000);
  }
}

function countedMethod(method: string): string {
  return METHODS.has(method) ? method : 'other';
}
