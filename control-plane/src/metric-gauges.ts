/** Metrics that are read at each scrape; metrics.ts has those that are counted. */
import { Gauge, type Registry } from 'prom-client';
import { settledWithin } from '#program/settled-within.ts';
import type { FleetCounts } from './nodes/fleet.ts';
import { READINESS_CAUSES, type Readiness } from './services/readiness.ts';
import { WALK_INTERVAL_MS } from './services/sweeping/orphan-walk.ts';
import type { SweepBacklog } from './store/cluster/sweep-store.ts';

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

type Labels = Readonly<Record<string, string>>;
type Show = (value: number, labels?: Labels) => void;
type Define = (
  name: string,
  help: string,
  read: (show: Show) => void | Promise<void>,
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
        await read((value, labels = {}) => this.set(labels, value));
      },
    });
  };
  defineProcess(define, sources, onFailure);
  defineFleet(define, sources);
  const failed = (error: unknown) => onFailure('the database', error);
  defineQueue(define, sources, failed);
  defineWebhooks(define, sources, failed);
  defineMails(define, sources, failed);
  defineLedger(define, sources, failed);
  defineSweep(define, sources, failed);
}

function defineProcess(
  define: Define,
  sources: MetricSources,
  onFailure: (what: string, error: unknown) => void,
): void {
  const { version } = sources;
  define('matting_control_info', '1; what runs here', show => show(1, { version }), ['version']);
  const read = async (show: Show) => {
    const state = await sources.readiness();
    for (const cause of READINESS_CAUSES) {
      show(!state.ready && state.causes.includes(cause) ? 1 : 0, { cause });
    }
  };
  define('matting_control_unready', '1 for what keeps /readyz from 200', read, ['cause']);
  define('matting_control_http_connections', 'Open connections to the public port', show =>
    show(sources.connections()),
  );
  define('matting_control_result_readers', 'Results being sent to readers of links', show =>
    show(sources.resultReaders()),
  );
  define('matting_control_uploads', 'Images being received', show => show(sources.uploads().open));
  define('matting_control_database_waiting', 'Requests that wait to ask the database', show =>
    show(sources.databaseWaiting()),
  );
  define(
    'matting_control_database_clock_difference_seconds',
    'Between the clocks of two members of the database at least',
    show => {
      const differenceMs = sources.clockDifferenceMs();
      if (differenceMs !== undefined) show(differenceMs / 1000);
    },
  );
  define('matting_control_uploads_waiting', 'Images that wait to be received', show =>
    show(sources.uploads().waiting),
  );
  const free = shared(sources.storageFreeBytes, error => onFailure('the storage', error));
  define('matting_control_storage_free_bytes', 'What the storage still takes', show =>
    free(bytes => {
      if (bytes !== undefined) show(bytes);
    }),
  );
}

function defineFleet(define: Define, sources: MetricSources): void {
  const { fleet, running, downloading, registryConnections } = sources;
  const connections = (show: Show) => {
    const { known, strangers } = registryConnections();
    show(known, { kind: 'known' });
    show(strangers, { kind: 'stranger' });
  };
  const what = 'Open connections to the registry port, by whether they have shown the token';
  define('matting_control_registry_connections', what, connections, ['kind']);
  const nodes = (show: Show) => {
    const { members, routable } = fleet();
    show(routable, { state: 'routable' });
    show(members - routable, { state: 'unroutable' });
  };
  define('matting_control_nodes', 'Nodes by what this replica sees of them', nodes, ['state']);
  define('matting_control_node_slots_free', 'Images the nodes would admit now', show =>
    show(fleet().imagesFree),
  );
  define('matting_control_attempts_in_flight', 'Attempts on nodes from here', show =>
    show(fleet().attemptsInFlight),
  );
  define('matting_control_jobs_running', 'Jobs this replica holds', show => show(running()));
  define('matting_control_source_fetches_in_flight', 'Downloads of images from here', show =>
    show(downloading()),
  );
}

function defineQueue(
  define: Define,
  { queued, queueMegapixelsMax, nodesWanted, playgroundJobs }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const read = shared(queued, onFailure);
  define('matting_control_queue_jobs', 'Open jobs that wait for a node', show =>
    read(queue => show(queue.jobs)),
  );
  define('matting_control_queue_megapixels', 'Megapixels of those jobs', show =>
    read(queue => show(queue.megapixels)),
  );
  define(
    'matting_control_queue_megapixels_max',
    'Above it accounts over their share of it get 503',
    show => show(queueMegapixelsMax),
  );
  define('matting_control_queue_oldest_age_seconds', 'Age of the oldest of them', show =>
    read(({ oldestAgeMs }) => show(oldestAgeMs / 1000)),
  );
  if (nodesWanted !== undefined) {
    const wanted = shared(nodesWanted, onFailure);
    const what = 'Nodes the fleet should have by what waits and comes; follow the maximum';
    define('matting_control_nodes_wanted', what, show =>
      wanted(count => {
        if (count !== undefined) show(count);
      }),
    );
  }
  const unpaid = shared(playgroundJobs, onFailure);
  define('matting_control_playground_jobs', 'Open jobs of playgrounds, counted up to 64', show =>
    unpaid(show),
  );
}

function defineWebhooks(
  define: Define,
  { webhooksInFlight, webhooksDue }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  define('matting_control_webhooks_in_flight', 'Notifications under way from here', show =>
    show(webhooksInFlight()),
  );
  const read = shared(webhooksDue, onFailure);
  define('matting_control_webhooks_due', 'Notifications whose time has come', show =>
    read(({ count }) => show(count)),
  );
  define('matting_control_webhooks_oldest_due_seconds', 'Since when, the oldest', show =>
    read(({ oldestMs }) => show(oldestMs / 1000)),
  );
}

function defineMails(
  define: Define,
  { mailsWaiting }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const read = shared(mailsWaiting, onFailure);
  define('matting_control_mails_waiting', 'Mails that wait for the mail server', show =>
    read(({ count }) => show(count)),
  );
  const since = 'Since when the oldest was to be sent, however often it was tried';
  define('matting_control_mails_oldest_due_seconds', since, show =>
    read(({ oldestMs }) => show(oldestMs / 1000)),
  );
}

function defineLedger(
  define: Define,
  { ledgerAudits }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const read = shared(ledgerAudits, onFailure);
  const age = (show: Show) =>
    read(audits => {
      for (const { kind, ageMs } of audits) show(ageMs / 1000, { kind });
    });
  define('matting_control_ledger_audit_age_seconds', 'Since the last check of it ended', age, [
    'kind',
  ]);
  const problems = (show: Show) =>
    read(audits => {
      for (const { kind, problems: count } of audits) show(count, { kind });
    });
  define('matting_control_ledger_audit_problems', 'What that check found wrong', problems, [
    'kind',
  ]);
}

function defineSweep(
  define: Define,
  { sweepBacklog }: MetricSources,
  onFailure: (error: unknown) => void,
): void {
  const read = shared(sweepBacklog, onFailure);
  define(
    'matting_control_sweep_overdue_seconds',
    'Since when the oldest of what is to be cleared away is due',
    show =>
      read(({ resultsMs, secretsMs, rowsMs, walkMs }) => {
        show(resultsMs / 1000, { step: 'results' });
        show(secretsMs / 1000, { step: 'secrets' });
        show(rowsMs / 1000, { step: 'rows' });
        show(Math.max(0, (walkMs ?? 0) - WALK_INTERVAL_MS) / 1000, { step: 'orphans' });
      }),
    ['step'],
  );
}

/**
 * One reading for all gauges that show it. No second one begins while the first hangs, and a scrape
 * waits at most READ_MS_MAX for it.
 */
function shared<T>(
  ask: () => Promise<T>,
  onFailure: (error: unknown) => void,
): (show: (answer: T) => void) => Promise<void> {
  let reading: Reading<T> | undefined;
  return async show => {
    if (reading === undefined || performance.now() >= reading.validUntilMs) {
      reading = begin(ask, onFailure);
    }
    let answer: T | undefined;
    const answered = reading.answer.then(found => {
      answer = found;
    });
    await settledWithin(answered, READ_MS_MAX);
    if (answer !== undefined) show(answer);
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
