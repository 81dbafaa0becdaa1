/**
 * What this control plane measures; http/operator-app.ts shows it, never on the public port. Base
 * units, no identifiers as labels. docs/operations.md explains each name.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '#contract/errors.ts';
import type { AttemptOutcome } from './nodes/attempt-outcome.ts';
import type { FleetCounts } from './nodes/fleet.ts';
import type { JobEnding, JobObserver } from './services/job-observer.ts';
import type { WebhookAttemptOutcome, WebhookObserver } from './services/webhook-observer.ts';

/** From a small image on a GPU to a job at its limit of two hours. */
const JOB_SECONDS_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 600, 3600, 7200];
const WAIT_SECONDS_BUCKETS = [0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600, 3600];
/** From at once to the last attempt. */
const WEBHOOK_SECONDS_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600, 3600, 36_000];
const HTTP_SECONDS_BUCKETS = [0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
/** Scrapes ask for the queue; two of them close together are answered by one look. */
const QUEUE_CACHE_MS = 1000;

/** One finished answer of the public port. */
/** How fine the event loop's lag is seen; the default of 10 ms costs 0.5 % of a core for nothing. */
const EVENT_LOOP_PRECISION_MS = 100;

export interface AnsweredRequest {
  /** The route's pattern; undefined where no route took the request. */
  readonly route: string | undefined;
  readonly method: string;
  readonly status: number;
  readonly code: ErrorCode | undefined;
  readonly seconds: number;
}

/** Read when somebody scrapes. */
export interface MetricSources {
  readonly fleet: () => FleetCounts;
  readonly running: () => number;
  readonly uploads: () => number;
  readonly queued: () => Promise<{
    readonly jobs: number;
    readonly megapixels: number;
    readonly oldestCreatedAtMs: number | null;
  }>;
  readonly webhooksInFlight: () => number;
  readonly webhooksDue: () => Promise<{ readonly count: number; readonly oldestMs: number }>;
}

/** Methods that are counted by their name; anything else a client makes up is one label. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']);

export class ControlMetrics implements JobObserver, WebhookObserver {
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
  readonly #fetches = this.#counter(
    'matting_control_source_fetches_total',
    'Downloads of image URLs by how they ended',
    ['outcome'],
  );
  readonly #leasesLost = this.#counter(
    'matting_control_leases_lost_total',
    'Jobs that somebody else took over while they were worked on here',
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

  constructor() {
    collectDefaultMetrics({
      register: this.registry,
      eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
    });
  }

  /** Gauges, read at each scrape. `onFailure` hears what could not be read; the rest is shown. */
  follow(sources: MetricSources, onFailure: (error: unknown) => void): void {
    this.#gauge(
      'matting_control_nodes',
      'Nodes by what this replica sees of them',
      ['state'],
      g => {
        const { members, routable } = sources.fleet();
        g.set({ state: 'routable' }, routable);
        g.set({ state: 'unroutable' }, members - routable);
      },
    );
    this.#gauge('matting_control_node_slots_free', 'Images the nodes would admit now', [], g => {
      g.set(sources.fleet().imagesFree);
    });
    this.#gauge('matting_control_attempts_in_flight', 'Attempts on nodes from here', [], g => {
      g.set(sources.fleet().attemptsInFlight);
    });
    this.#gauge('matting_control_jobs_running', 'Jobs this replica holds', [], g => {
      g.set(sources.running());
    });
    this.#gauge('matting_control_uploads', 'Images being received', [], g => {
      g.set(sources.uploads());
    });
    this.#followQueue(sources.queued, onFailure);
    this.#followWebhooks(sources, onFailure);
  }

  webhookAttempted(outcome: WebhookAttemptOutcome): void {
    this.#webhookAttempts.inc({ outcome });
  }

  webhookDelivered(delayMs: number): void {
    this.#webhookSeconds.observe(delayMs / 1000);
  }

  answered({ route, method, status, code, seconds }: AnsweredRequest): void {
    const labels = { route: route ?? 'none', method: METHODS.has(method) ? method : 'other' };
    this.#requests.inc({ ...labels, status: String(status), code: code ?? '' });
    this.#requestSeconds.observe(labels, seconds);
  }

  jobAdmitted(mode: JobEnding['mode'], waitMs: number): void {
    this.#waitSeconds.observe({ mode }, waitMs / 1000);
  }

  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void {
    this.#attempts.inc({ outcome: kind, reason: reason ?? '' });
  }

  fetchEnded(outcome: 'stored' | 'failed' | 'aborted'): void {
    this.#fetches.inc({ outcome });
  }

  jobEnded({ outcome, mode, code, totalMs }: JobEnding): void {
    this.#jobs.inc({ outcome, mode, code: code ?? '' });
    this.#jobSeconds.observe({ outcome, mode }, totalMs / 1000);
  }

  leaseLost(): void {
    this.#leasesLost.inc();
  }

  takenOver(): void {
    this.#takeovers.inc();
  }

  #followWebhooks(sources: MetricSources, onFailure: (error: unknown) => void): void {
    const { webhooksInFlight, webhooksDue } = sources;
    this.#gauge('matting_control_webhooks_in_flight', 'Notifications under way from here', [], g =>
      g.set(webhooksInFlight()),
    );
    const read = cached(webhooksDue, onFailure);
    this.#gauge('matting_control_webhooks_due', 'Notifications whose time has come', [], g =>
      read(({ count }) => g.set(count)),
    );
    this.#gauge('matting_control_webhooks_oldest_due_seconds', 'Since when, the oldest', [], g =>
      read(({ oldestMs }) => g.set(oldestMs / 1000)),
    );
  }

  #followQueue(queued: MetricSources['queued'], onFailure: (error: unknown) => void): void {
    const read = cached(queued, onFailure);
    this.#gauge('matting_control_queue_jobs', 'Open jobs that wait for a node', [], g =>
      read(queue => g.set(queue.jobs)),
    );
    this.#gauge('matting_control_queue_megapixels', 'Megapixels of those jobs', [], g =>
      read(queue => g.set(queue.megapixels)),
    );
    this.#gauge('matting_control_queue_oldest_age_seconds', 'Age of the oldest of them', [], g =>
      read(({ oldestCreatedAtMs }) => {
        const ageMs = oldestCreatedAtMs === null ? 0 : Date.now() - oldestCreatedAtMs;
        g.set(Math.max(0, ageMs) / 1000);
      }),
    );
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

  #gauge<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
    collect: (gauge: Gauge<L>) => void | Promise<void>,
  ): void {
    new Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers: [this.registry],
      collect() {
        return collect(this);
      },
    });
  }
}

/** One look at the database for all that is shown of it. */
function cached<T>(
  ask: () => Promise<T>,
  onFailure: (error: unknown) => void,
): (show: (answer: T) => void) => Promise<void> {
  let look: { readonly atMs: number; readonly answer: Promise<T> } | undefined;
  return async show => {
    const now = performance.now();
    if (look === undefined || now - look.atMs >= QUEUE_CACHE_MS) {
      look = { atMs: now, answer: ask() };
    }
    // What a database that is away cannot tell is missing from the page; the page still comes.
    await look.answer.then(show, onFailure);
  };
}
