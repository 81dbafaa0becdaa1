import type { FleetCounts } from '@matting/nodes/fleet.ts';
import { type GaugeValues, type MetricSet, seconds } from '@matting/program/metric-set.ts';
import type { CertificateEnd } from '@matting/program/tls/certificate-ends.ts';
import type { QueuedWork } from '@matting/queue/queue.ts';
import type { StorageRoom } from '@matting/storage/blob-store.ts';
import { READINESS_CAUSES, type Readiness } from '../http/readiness.ts';
import { WALK_INTERVAL_MS } from '../retention/orphan-walk.ts';
import type { SweepBacklog } from '../retention/sweep-store.ts';
import { waitingMegapixels } from './work-by-model.ts';

interface QueueSources {
  readonly queueMegapixelsMax: number;
  readonly queued: () => Promise<Omit<QueuedWork, 'byAccount'>>;
  readonly modelsOffered: readonly string[];
  readonly onDemand: boolean;
}

export interface MetricSources extends QueueSources {
  readonly version: string;
  readonly readiness: () => Promise<Readiness>;
  readonly fleet: () => FleetCounts;
  readonly running: () => number;
  readonly downloading: () => number;
  readonly certificateEnds: () => readonly CertificateEnd[];
  readonly uploads: () => { readonly open: number; readonly waiting: number };
  readonly databaseWaiting: () => number;
  readonly connections: () => number;
  /** `known`: showed the node token. */
  readonly registryConnections: () => { readonly known: number; readonly strangers: number };
  readonly resultReaders: () => number;
  readonly storageRoom: () => Promise<StorageRoom | undefined>;
  readonly webhooks: {
    readonly inFlight: () => number;
    readonly due: () => Promise<{ readonly count: number; readonly oldestMs: number }>;
  };
  readonly ledgerAudits: () => Promise<
    readonly { readonly kind: string; readonly ageMs: number; readonly problems: number }[]
  >;
  readonly sweepBacklog: () => Promise<SweepBacklog>;
}

type GaugeOf = readonly [
  help: string,
  read: () => GaugeValues | Promise<GaugeValues>,
  labelNames?: readonly string[],
];
type Gauges = Readonly<Record<string, GaugeOf>>;

export function registerGauges(metrics: MetricSet, sources: MetricSources): void {
  const gauges: Gauges = {
    ...gaugesOfProcess(metrics, sources),
    ...gaugesOfFleet(sources),
    ...gaugesOfQueue(metrics, sources),
    ...gaugesOfRest(metrics, sources),
  };
  for (const [name, gauge] of Object.entries(gauges)) metrics.gauge(name, ...gauge);
}

function gaugesOfProcess(metrics: MetricSet, sources: MetricSources): Gauges {
  const { version, connections, resultReaders, uploads, databaseWaiting } = sources;
  const unready = async () => {
    const state = await sources.readiness();
    const causes: readonly string[] = state.ready ? [] : state.causes;
    return READINESS_CAUSES.map(cause => [causes.includes(cause) ? 1 : 0, { cause }] as const);
  };
  const room = metrics.reading('the storage', sources.storageRoom);
  return {
    matting_control_info: ['1; what runs here', () => [[1, { version }]], ['version']],
    matting_control_unready: ['1 for what keeps /readyz from 200', unready, ['cause']],
    matting_control_http_connections: ['Open connections to the public port', connections],
    matting_control_result_readers: ['Results being sent to readers of links', resultReaders],
    matting_control_uploads: ['Images being received', () => uploads().open],
    matting_control_database_waiting: ['Requests that wait to ask the database', databaseWaiting],
    matting_control_uploads_waiting: ['Images that wait to be received', () => uploads().waiting],
    matting_control_tls_expires_timestamp_seconds: [
      'When the certificates of a file in use expire',
      () => sources.certificateEnds().map(({ file, endMs }) => [endMs / 1000, { file }]),
      ['file'],
    ],
    matting_control_storage_free_bytes: ['What the storage still takes', room(it => it?.freeBytes)],
    matting_control_storage_size_bytes: [
      'What the storage takes in all',
      room(it => it?.sizeBytes),
    ],
  };
}

function gaugesOfFleet({ fleet, running, downloading, ...sources }: MetricSources): Gauges {
  const connections = (): GaugeValues => {
    const { known, strangers } = sources.registryConnections();
    return [
      [known, { kind: 'known' }],
      [strangers, { kind: 'stranger' }],
    ];
  };
  const nodes = (): GaugeValues => {
    const { members, routable } = fleet();
    return [
      [routable, { state: 'routable' }],
      [members - routable, { state: 'unroutable' }],
    ];
  };
  return {
    matting_control_registry_connections: [
      'Open connections to the registry port, by whether they have shown the token',
      connections,
      ['kind'],
    ],
    matting_control_nodes: ['Nodes by what this replica sees of them', nodes, ['state']],
    matting_control_node_slots_free: ['Images the nodes would admit now', () => fleet().imagesFree],
    matting_control_attempts_in_flight: [
      'Attempts on nodes from here',
      () => fleet().attemptsInFlight,
    ],
    matting_control_jobs_running: ['Jobs this replica holds', running],
    matting_control_source_fetches_in_flight: ['Downloads of images from here', downloading],
  };
}

function gaugesOfQueue(metrics: MetricSet, sources: QueueSources): Gauges {
  const queue = metrics.reading('the database', sources.queued);
  return {
    matting_control_queue_jobs: ['Open jobs that wait for a node', queue(({ jobs }) => jobs)],
    matting_control_queue_megapixels: ['Megapixels of those jobs', queue(({ cost }) => cost)],
    matting_control_queue_megapixels_max: [
      'Above it accounts over their share of it get 503',
      () => sources.queueMegapixelsMax,
    ],
    matting_control_queue_oldest_age_seconds: [
      'Age of the oldest of them',
      queue(({ oldestAgeMs }) => seconds(oldestAgeMs)),
    ],
    matting_control_waiting_megapixels: [
      'Megapixels of the same jobs, by the model that they name',
      queue(work => waitingMegapixels(work, sources.modelsOffered)),
      ['model'],
    ],
    matting_control_nodes_on_demand: [
      '1 if submissions are taken while no node lives',
      () => Number(sources.onDemand),
    ],
  };
}

function gaugesOfRest(metrics: MetricSet, sources: MetricSources): Gauges {
  const webhooks = metrics.reading('the database', sources.webhooks.due);
  const audits = metrics.reading('the database', sources.ledgerAudits);
  const backlog = metrics.reading('the database', sources.sweepBacklog);
  return {
    matting_control_webhooks_in_flight: [
      'Notifications under way from here',
      sources.webhooks.inFlight,
    ],
    matting_control_webhooks_due: [
      'Notifications whose time has come',
      webhooks(({ count }) => count),
    ],
    matting_control_webhooks_oldest_due_seconds: [
      'Since when, the oldest',
      webhooks(({ oldestMs }) => seconds(oldestMs)),
    ],
    matting_control_ledger_audit_age_seconds: [
      'Since the last check of it ended; kind none: none has, since the database was set up',
      audits(all => all.map(({ kind, ageMs }) => [ageMs / 1000, { kind }])),
      ['kind'],
    ],
    matting_control_ledger_audit_problems: [
      'What that check found wrong',
      audits(all => all.map(({ kind, problems }) => [problems, { kind }])),
      ['kind'],
    ],
    matting_control_sweep_overdue_seconds: [
      'Since when the oldest of what is to be cleared away is due',
      backlog(({ resultsMs, secretsMs, rowsMs, walkMs }) => [
        [resultsMs / 1000, { step: 'results' }],
        [secretsMs / 1000, { step: 'secrets' }],
        [rowsMs / 1000, { step: 'rows' }],
        [Math.max(0, (walkMs ?? 0) - WALK_INTERVAL_MS) / 1000, { step: 'orphans' }],
      ]),
      ['step'],
    ],
  };
}
