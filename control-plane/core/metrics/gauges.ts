/** What the core's gauges show, read at a scrape. */

import type { FleetCounts } from '../nodes/fleet.ts';
import { READINESS_CAUSES, type Readiness } from '../readiness.ts';
import { WALK_INTERVAL_MS } from '../retention/sweep.ts';
import type { SweepBacklog } from '../retention/sweep-store.ts';
import { type MetricSet, seconds } from './metric-set.ts';

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
  readonly webhooksInFlight: () => number;
  readonly webhooksDue: () => Promise<{ readonly count: number; readonly oldestMs: number }>;
  /** The last audit of each kind that read the whole ledger. */
  readonly ledgerAudits: () => Promise<
    readonly { readonly kind: string; readonly ageMs: number; readonly problems: number }[]
  >;
  readonly sweepBacklog: () => Promise<SweepBacklog>;
  /** Between the clocks of the database's members; undefined: it has one. */
  readonly clockDifferenceMs: () => number | undefined;
}

type Define = MetricSet['gauge'];

export function registerGauges(metrics: MetricSet, sources: MetricSources): void {
  const define: Define = (...gauge) => metrics.gauge(...gauge);
  defineProcess(metrics, define, sources);
  defineFleet(define, sources);
  defineQueue(metrics, define, sources);
  defineRest(metrics, define, sources);
}

function defineProcess(metrics: MetricSet, define: Define, sources: MetricSources): void {
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
  const free = metrics.reading('the storage', sources.storageFreeBytes);
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
  metrics: MetricSet,
  define: Define,
  { queued, queueMegapixelsMax }: MetricSources,
): void {
  const queue = metrics.reading('the database', queued);
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
}

/** Of messages, the ledger and what is to be deleted. */
function defineRest(
  metrics: MetricSet,
  define: Define,
  { webhooksInFlight, webhooksDue, ledgerAudits, sweepBacklog }: MetricSources,
): void {
  const webhooks = metrics.reading('the database', webhooksDue);
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
  const audits = metrics.reading('the database', ledgerAudits);
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
  const backlog = metrics.reading('the database', sweepBacklog);
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
