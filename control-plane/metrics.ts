/**
 * Metrics: those that are counted as things happen, then those that are read at a scrape.
 * core/http/operator-app.ts serves both, never on the public port. Base units, no identifiers as labels.
 * docs/operations.md explains each name.
 */
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import {
  createKnownCounter,
  createOpenCounter,
  everyOf,
  type KnownLabels,
} from '#program/known-counters.ts';
import { GUARD_CAUSES } from '#program/ports/grpc-guard.ts';
import { ENDED_CAUSES } from '#program/ports/http-guard.ts';
import { SPAN_FATES } from '#program/tracing/active-span.ts';
import { settledWithin } from '#program/waiting.ts';
import { FETCH_OUTCOMES, type JobEnding } from './core/attempts/claimed-job.ts';
import { JOB_CLASSES } from './core/jobs/job.ts';
import type { FleetCounts } from './core/nodes/fleet.ts';
import { ATTEMPT_KINDS, type AttemptOutcome } from './core/nodes/matte-exchange.ts';
import { REFUSAL_CAUSES } from './core/nodes/registry-server.ts';
import { READINESS_CAUSES, type Readiness } from './core/readiness.ts';
import { LOSS_FINDERS } from './core/results/lost-results.ts';
import { WALK_INTERVAL_MS } from './core/retention/sweep.ts';
import type { SweepBacklog } from './core/retention/sweep-store.ts';
import {
  STORAGE_OPERATIONS,
  STORAGE_OUTCOMES,
  type StorageRequestEnd,
} from './core/storage/blob-store.ts';
import { WEBHOOK_ATTEMPT_OUTCOMES } from './core/webhooks/send-webhooks.ts';
import type { Answered } from './http/answers.ts';
import { WITHHELD_REASONS } from './portal/alerts/messages.ts';
import { MAIL_ATTEMPT_OUTCOMES } from './portal/alerts/send-mails.ts';
import { TOLD_OUTCOMES } from './portal/orders/receive-payment.ts';
import { SETTLED_STEPS } from './portal/settled-steps.ts';

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

const CODES = Object.entries(ERROR_CATALOGUE);
/** Answers that rules ask for: the service, not its caller, is at fault. */
const SERVICE_FAULTS = CODES.filter(([, { scope, http }]) => scope === 'public' && http >= 500).map(
  ([code, { http }]) => ({ status: String(http), code }),
);

/** Ends of jobs that rules ask for; other codes are the image's or the request's fault. */
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
/** Ends of attempts that rules ask for; a storage's own error is SERVICE_UNAVAILABLE, or none of ours. */
const ATTEMPT_ENDS = [
  ...everyOf({ outcome: ['done'], reason: [''] }),
  ...everyOf({ outcome: ['lost', 'node-fault'], reason: NODE_CODES }),
  ...everyOf({ outcome: ['node-fault'], reason: ['INVALID_REQUEST'] }),
  ...everyOf({ outcome: ['local-fault'], reason: ['', 'SERVICE_UNAVAILABLE'] }),
];

/** What services, storage and traces say of themselves, each a counter or a histogram. */
export class ControlMetrics {
  readonly registry = new Registry();
  readonly #requests = createOpenCounter(
    this.#named('matting_control_http_requests_total', 'Answers of the public port'),
    ['route', 'method', 'status', 'code'],
    // Routes are told of one by one (routeAdded).
    [],
  );
  readonly #requestSeconds = this.#histogram(
    'matting_control_http_request_duration_seconds',
    'From the request to the end of its answer, waits for jobs included',
    ['route', 'method'],
    HTTP_SECONDS_BUCKETS,
  );
  readonly #jobs = createOpenCounter(
    this.#named('matting_control_jobs_total', 'Jobs that ended here'),
    ['outcome', 'mode', 'code', 'retryable'],
    JOB_ENDS,
  );
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
  readonly #attempts = createOpenCounter(
    this.#named('matting_control_attempts_total', 'Attempts on nodes by how they ended'),
    ['outcome', 'reason'],
    ATTEMPT_ENDS,
  );
  readonly directAttemptEnded = this.#countedBy(
    'matting_control_direct_attempts_total',
    'Attempts whose files went straight between node and storage, by how they ended',
    { outcome: ATTEMPT_KINDS },
  );
  readonly fetchEnded = this.#countedBy(
    'matting_control_source_fetches_total',
    'Downloads of image URLs by how they ended',
    { outcome: FETCH_OUTCOMES },
  );
  readonly leaseLost = this.#counted(
    'matting_control_leases_lost_total',
    'Jobs that another replica took over while they were worked on here',
  );
  readonly takenOver = this.#counted(
    'matting_control_takeovers_total',
    'Jobs taken over here from a holder whose lease ran out',
  );

  readonly webhookAttempted = this.#countedBy(
    'matting_control_webhook_attempts_total',
    'Attempts to deliver notifications by how they ended',
    { outcome: WEBHOOK_ATTEMPT_OUTCOMES },
  );
  readonly #webhookSeconds = this.#histogram(
    'matting_control_webhook_delay_seconds',
    'From the end of a job to the delivery of its notification',
    [],
    WEBHOOK_SECONDS_BUCKETS,
  );

  readonly mailAttempted = this.#countedBy(
    'matting_control_mail_attempts_total',
    'Attempts to hand mails to the mail server by how they ended',
    { outcome: MAIL_ATTEMPT_OUTCOMES },
  );
  readonly messageWithheld = this.#countedBy(
    'matting_control_messages_withheld_total',
    'Mails, and events of accounts, not sent because as many were sent today as may be',
    { reason: WITHHELD_REASONS },
  );
  readonly balanceTold = this.#counted(
    'matting_control_low_balances_told_total',
    'Thresholds of balances that owners were told of from here',
  );

  readonly connectionDropped = this.#counted(
    'matting_control_http_connections_dropped_total',
    'Connections to the public port closed unread, because as many were open as may be',
  );
  readonly paymentTold = this.#countedBy(
    'matting_control_payment_notifications_total',
    'Proven notifications of payments, by what became of them',
    { outcome: TOLD_OUTCOMES },
  );
  readonly connectionEnded = this.#countedBy(
    'matting_control_http_connections_ended_total',
    'Connections to the public port ended at a bound, by what they did',
    { cause: ENDED_CAUSES },
  );
  readonly settledLeftOut = this.#countedBy(
    'matting_control_settled_left_out_total',
    "Times that a package's part in a job's end was left out, at the end or when it was tried again",
    { package: SETTLED_STEPS.map(({ name }) => name) },
  );
  readonly sweepFailed = this.#counted(
    'matting_control_sweep_failures_total',
    'Steps of clearing away that failed; the log says which',
  );

  readonly nodeRefused = this.#countedBy(
    'matting_control_nodes_refused_total',
    'Registrations and heartbeats that were not taken',
    { cause: REFUSAL_CAUSES },
  );
  readonly registryEnded = this.#countedBy(
    'matting_control_registry_ended_total',
    'Connections and calls that the registry port ended at a bound, by what they did',
    { cause: GUARD_CAUSES },
  );

  readonly resultLost = this.#countedBy(
    'matting_control_results_lost_total',
    'Results whose file was found to be gone while their link is good, each once',
    { found_by: LOSS_FINDERS },
  );
  readonly resultsMissing = this.#counted(
    'matting_control_results_missing_total',
    'Times that most results beside one that was gone were gone too: the storage is at fault',
  );
  readonly #storageRequests = this.#counter(
    'matting_control_storage_requests_total',
    'Requests to the bucket by how they ended, after all their attempts',
    { operation: STORAGE_OPERATIONS, outcome: STORAGE_OUTCOMES },
  );
  readonly #storageRetries = this.#counter(
    'matting_control_storage_retries_total',
    'Attempts again at requests to the bucket',
    { operation: STORAGE_OPERATIONS },
  );
  readonly #storageSeconds = this.#histogram(
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

  readonly spansEnded = this.#countedBy(
    'matting_control_spans_total',
    'Sampled spans of traces by what became of them',
    { outcome: SPAN_FATES },
  );

  constructor() {
    collectDefaultMetrics({
      register: this.registry,
      eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
    });
  }

  webhookDelivered(delayMs: number): void {
    this.#webhookSeconds.observe(delayMs / 1000);
  }

  /** The public port has this route from now on. */
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

  storageRequestEnded(end: StorageRequestEnd): void {
    const { operation, outcome, tookMs, attempts, clockOffsetMs } = end;
    this.#storageRequests.inc({ operation, outcome });
    this.#storageRetries.inc({ operation }, attempts - 1);
    this.#storageSeconds.observe({ operation }, tookMs / 1000);
    this.#storageClock.set(clockOffsetMs / 1000);
  }

  #named(name: string, help: string) {
    return { name, help, registry: this.registry };
  }

  #counter<const Known extends KnownLabels>(name: string, help: string, known: Known) {
    return createKnownCounter(this.#named(name, help), known);
  }

  #counted(name: string, help: string) {
    const counter = this.#counter(name, help, {});
    return () => counter.inc({});
  }

  /** @param label the one that it has, with every value */
  #countedBy<const Value extends string>(
    name: string,
    help: string,
    label: Readonly<Record<string, readonly Value[]>>,
  ) {
    const [labelName = ''] = Object.keys(label);
    const counter = this.#counter(name, help, label);
    return (value: Value, by?: number) => counter.inc({ [labelName]: value }, by);
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

function countedMethod(method: string): string {
  return METHODS.has(method) ? method : 'other';
}

/** Two scrapes within this time share one reading. */
const CACHE_MS = 1000;
/** Scrapers give up after 10 s and then get nothing, just when it matters most. */
const READ_MS_MAX = 2000;

export interface MetricSources {
  /** Version of this program. */
  readonly version: string;
  readonly readiness: () => Promise<Readiness>;
  readonly fleet: () => FleetCounts;
  readonly running: () => number;
  /** Downloads of image_url under way here. */
  readonly downloading: () => number;
  readonly uploads: () => { readonly open: number; readonly waiting: number };
  /** Requests that wait for their account's turn at the database. */
  readonly databaseWaiting: () => number;
  /** Open connections to the public port. */
  readonly connections: () => number;
  /** Open connections to the registry port, by whether they have shown the node token. */
  readonly registryConnections: () => { readonly known: number; readonly strangers: number };
  /** Results being sent. */
  readonly resultReaders: () => number;
  /** Undefined: the storage has no such number. */
  readonly storageFreeBytes: () => Promise<number | undefined>;
  readonly queueMegapixelsMax: number;
  readonly queued: () => Promise<{
    readonly jobs: number;
    readonly megapixels: number;
    readonly oldestAgeMs: number;
  }>;
  /** Nodes that a fleet that sleeps should have; absent: it does not sleep. */
  readonly nodesWanted?: (() => Promise<number | undefined>) | undefined;
  /** Open jobs of playgrounds. */
  readonly playgroundJobs: () => Promise<number>;
  readonly webhooksInFlight: () => number;
  readonly webhooksDue: () => Promise<{ readonly count: number; readonly oldestMs: number }>;
  /** Mails that wait, and since when the oldest of them was to be sent. */
  readonly mailsWaiting: () => Promise<{ readonly count: number; readonly oldestMs: number }>;
  /** The last audit of each kind that read the whole ledger. */
  readonly ledgerAudits: () => Promise<
    readonly { readonly kind: string; readonly ageMs: number; readonly problems: number }[]
  >;
  readonly sweepBacklog: () => Promise<SweepBacklog>;
  /** Between the clocks of the database's members; undefined: it has one. */
  readonly clockDifferenceMs: () => number | undefined;
}

/** Several where the gauge has labels. Undefined: not known, and left out. */
type Values = number | undefined | readonly (readonly [number, Readonly<Record<string, string>>])[];
type Define = (
  name: string,
  help: string,
  read: () => Values | Promise<Values>,
  labelNames?: readonly string[],
) => void;

/** `onFailure` is called with what could not be read; the rest of the page is still served. */
export function registerGauges(
  registry: Registry,
  sources: MetricSources,
  onFailure: (what: string, error: unknown) => void,
): void {
  const define: Define = (name, help, read, labelNames = []) => {
    new Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers: [registry],
      async collect() {
        // A value that cannot be read is left out, rather than shown as it was before.
        if (labelNames.length === 0) this.remove();
        else this.reset();
        const values = await read();
        if (typeof values === 'number') this.set(values);
        else for (const [value, labels] of values ?? []) this.set(labels, value);
      },
    });
  };
  defineProcess(define, sources, error => onFailure('the storage', error));
  defineFleet(define, sources);
  const failed = (error: unknown) => onFailure('the database', error);
  defineQueue(define, sources, failed);
  defineRest(define, sources, failed);
}

function defineProcess(
  define: Define,
  sources: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const { version, connections, resultReaders, uploads, databaseWaiting } = sources;
  define('matting_control_info', '1; what runs here', () => [[1, { version }]], ['version']);
  const unready = async () => {
    const state = await sources.readiness();
    const causes: readonly string[] = state.ready ? [] : state.causes;
    return READINESS_CAUSES.map(cause => [causes.includes(cause) ? 1 : 0, { cause }] as const);
  };
  define('matting_control_unready', '1 for what keeps /readyz from 200', unready, ['cause']);
  define('matting_control_http_connections', 'Open connections to the public port', connections);
  define('matting_control_result_readers', 'Results being sent to readers of links', resultReaders);
  define('matting_control_uploads', 'Images being received', () => uploads().open);
  define(
    'matting_control_database_waiting',
    'Requests that wait to ask the database',
    databaseWaiting,
  );
  define(
    'matting_control_database_clock_difference_seconds',
    'Between the clocks of two members of the database at least',
    () => seconds(sources.clockDifferenceMs()),
  );
  define(
    'matting_control_uploads_waiting',
    'Images that wait to be received',
    () => uploads().waiting,
  );
  const free = shared(sources.storageFreeBytes, onFailure);
  define(
    'matting_control_storage_free_bytes',
    'What the storage still takes',
    free(bytes => bytes),
  );
}

function defineFleet(define: Define, sources: MetricSources): void {
  const { fleet, running, downloading, registryConnections } = sources;
  const connections = () => {
    const { known, strangers } = registryConnections();
    return [[known, { kind: 'known' }] as const, [strangers, { kind: 'stranger' }] as const];
  };
  const what = 'Open connections to the registry port, by whether they have shown the token';
  define('matting_control_registry_connections', what, connections, ['kind']);
  const nodes = () => {
    const { members, routable } = fleet();
    const unroutable = members - routable;
    return [
      [routable, { state: 'routable' }] as const,
      [unroutable, { state: 'unroutable' }] as const,
    ];
  };
  define('matting_control_nodes', 'Nodes by what this replica sees of them', nodes, ['state']);
  define(
    'matting_control_node_slots_free',
    'Images the nodes would admit now',
    () => fleet().imagesFree,
  );
  define(
    'matting_control_attempts_in_flight',
    'Attempts on nodes from here',
    () => fleet().attemptsInFlight,
  );
  define('matting_control_jobs_running', 'Jobs this replica holds', running);
  const downloads = 'Downloads of images from here';
  define('matting_control_source_fetches_in_flight', downloads, downloading);
}

function defineQueue(
  define: Define,
  { queued, queueMegapixelsMax, nodesWanted, playgroundJobs }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const queue = shared(queued, onFailure);
  define(
    'matting_control_queue_jobs',
    'Open jobs that wait for a node',
    queue(({ jobs }) => jobs),
  );
  define(
    'matting_control_queue_megapixels',
    'Megapixels of those jobs',
    queue(({ megapixels }) => megapixels),
  );
  define(
    'matting_control_queue_megapixels_max',
    'Above it accounts over their share of it get 503',
    () => queueMegapixelsMax,
  );
  define(
    'matting_control_queue_oldest_age_seconds',
    'Age of the oldest of them',
    queue(({ oldestAgeMs }) => seconds(oldestAgeMs)),
  );
  if (nodesWanted !== undefined) {
    const what = 'Nodes the fleet should have by what waits and comes; follow the maximum';
    const wanted = shared(nodesWanted, onFailure);
    define(
      'matting_control_nodes_wanted',
      what,
      wanted(count => count),
    );
  }
  const unpaid = shared(playgroundJobs, onFailure);
  define(
    'matting_control_playground_jobs',
    'Open jobs of playgrounds, counted up to 64',
    unpaid(count => count),
  );
}

/** Of messages, the ledger and what is to be deleted. */
function defineRest(
  define: Define,
  { webhooksInFlight, webhooksDue, mailsWaiting, ledgerAudits, sweepBacklog }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const webhooks = shared(webhooksDue, onFailure);
  define(
    'matting_control_webhooks_in_flight',
    'Notifications under way from here',
    webhooksInFlight,
  );
  define(
    'matting_control_webhooks_due',
    'Notifications whose time has come',
    webhooks(({ count }) => count),
  );
  define(
    'matting_control_webhooks_oldest_due_seconds',
    'Since when, the oldest',
    webhooks(({ oldestMs }) => seconds(oldestMs)),
  );
  const mails = shared(mailsWaiting, onFailure);
  define(
    'matting_control_mails_waiting',
    'Mails that wait for the mail server',
    mails(({ count }) => count),
  );
  define(
    'matting_control_mails_oldest_due_seconds',
    'Since when the oldest was to be sent, however often it was tried',
    mails(({ oldestMs }) => seconds(oldestMs)),
  );
  const audits = shared(ledgerAudits, onFailure);
  define(
    'matting_control_ledger_audit_age_seconds',
    'Since the last check of it ended',
    audits(all => all.map(({ kind, ageMs }) => [ageMs / 1000, { kind }])),
    ['kind'],
  );
  define(
    'matting_control_ledger_audit_problems',
    'What that check found wrong',
    audits(all => all.map(({ kind, problems }) => [problems, { kind }])),
    ['kind'],
  );
  const backlog = shared(sweepBacklog, onFailure);
  define(
    'matting_control_sweep_overdue_seconds',
    'Since when the oldest of what is to be cleared away is due',
    backlog(({ resultsMs, secretsMs, rowsMs, walkMs }) => [
      [resultsMs / 1000, { step: 'results' }],
      [secretsMs / 1000, { step: 'secrets' }],
      [rowsMs / 1000, { step: 'rows' }],
      [Math.max(0, (walkMs ?? 0) - WALK_INTERVAL_MS) / 1000, { step: 'orphans' }],
    ]),
    ['step'],
  );
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

/**
 * One reading for all gauges that show it. No second one begins while the first hangs, and a scrape
 * waits at most READ_MS_MAX for it.
 */
function shared<T>(
  ask: () => Promise<T>,
  onFailure: (error: unknown) => void,
): (pick: (answer: T) => Values) => () => Promise<Values> {
  let reading: Reading<T> | undefined;
  return pick => async () => {
    if (reading === undefined || performance.now() >= reading.validUntilMs) {
      reading = begin(ask, onFailure);
    }
    let answer: T | undefined;
    const answered = reading.answer.then(found => {
      answer = found;
    });
    await settledWithin(answered, READ_MS_MAX);
    return answer === undefined ? undefined : pick(answer);
  };
}

interface Reading<T> {
  /** Undefined: it could not be read. */
  readonly answer: Promise<T | undefined>;
  /** Infinite until it has ended. */
  validUntilMs: number;
}

function begin<T>(ask: () => Promise<T>, onFailure: (error: unknown) => void): Reading<T> {
  const answer = ask().catch((error: unknown) => {
    onFailure(error);
    return undefined;
  });
  const reading: Reading<T> = { answer, validUntilMs: Number.POSITIVE_INFINITY };
  const beganMs = performance.now();
  void answer.then(() => {
    reading.validUntilMs = beganMs + CACHE_MS;
  });
  return reading;
}
