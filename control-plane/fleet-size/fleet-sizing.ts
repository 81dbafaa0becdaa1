/**
 * Says how many nodes a fleet that sleeps should have. Every replica measures what comes to it and
 * what nodes do for it, reports that, and says what it would have by what all of them reported; the
 * fleet should have the highest that any of them says. So all replicas show the same number, one
 * that dies is left out soon, and what was measured and wanted outlives every process.
 *
 * A replica's report is a row that it alone writes, so that saying it twice says it once. It is
 * fresh for FRESH_MS; an older one is a memory of the pace and of what was wanted, for a process
 * that starts, until another report removes it.
 */

import type { JobStore } from '@matting/core/jobs/job-store.ts';
import { MEGAPIXELS_MIN, queuedMegapixels } from '@matting/core/jobs/queue-bound.ts';
import type { MetricSet } from '@matting/core/metrics/metric-set.ts';
import type { NodeSnapshot } from '@matting/core/nodes/node-view.ts';
import type { Core } from '@matting/core/package.ts';
import type { JobEvents } from '@matting/core/results/job-events.ts';
import { type Database, query } from '@matting/database/database.ts';
import { pollingLoop } from '@matting/database/round-loop.ts';
import { isInserted, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type { Logger } from 'pino';
import {
  type FleetSizePolicy,
  HeldPeak,
  type MeasuredWork,
  type MeterReading,
  pacePerS,
  WorkMeter,
  wantedNodes,
  workOf,
} from './wanted-nodes.ts';

/** Several reports late: its process is gone, or cut off. */
const FRESH_MS = 30_000;
/** Removed by the next report of any process. */
const MEMORY_MS = 3_600_000;
/** Rows of an hour in which processes start again and again. */
const ROWS_MAX = 1000;
const PIXELS_PER_MEGAPIXEL = 1_000_000;

interface FleetReport {
  /** Megapixels submitted to it a second, lately. */
  readonly inflowPerS: number;
  readonly work: MeasuredWork;
  readonly wantedNodes: number;
}

interface StoredFleetReport extends FleetReport {
  readonly replica: string;
  /** By the database's clock. */
  readonly ageMs: number;
  readonly fresh: boolean;
}

type FleetReportStore = ReturnType<typeof createFleetReportStore>;

export function createFleetReportStore(database: Database) {
  return {
    save: (replica: string, report: FleetReport) => save(database, replica, report),
    /** The newest first, ROWS_MAX at most. */
    list: () => list(database),
  };
}

async function save(database: Database, replica: string, report: FleetReport): Promise<void> {
  const { nowMs } = database;
  const values = {
    reported_at: nowMs,
    inflow_pixels: pixelsOf(report.inflowPerS),
    done_pixels: pixelsOf(report.work.megapixels),
    node_ms: Math.round(report.work.nodeMs),
    wanted_nodes: report.wantedNodes,
  };
  const update = () =>
    query(database, db =>
      matchesOne(db.updateTable('fleet_reports').set(values).where('replica', '=', replica)),
    );
  if (await update()) return;
  // Only a process's first report comes here: it forgets those of processes long gone.
  await query(database, db =>
    db
      .deleteFrom('fleet_reports')
      .where('reported_at', '<', nowPlusMs(nowMs, -MEMORY_MS))
      .execute(),
  );
  const row = { replica, ...values };
  const insert = query(database, db => db.insertInto('fleet_reports').values(row).execute());
  // It is there where an answer was lost.
  if (!(await isInserted(insert))) await update();
}

async function list(database: Database): Promise<StoredFleetReport[]> {
  const rows = await query(database, db =>
    db
      .selectFrom('fleet_reports')
      .selectAll()
      .select(() => database.nowMs.as('read_at'))
      .orderBy('reported_at', 'desc')
      .limit(ROWS_MAX)
      .execute(),
  );
  return rows.map(row => {
    const ageMs = Math.max(0, row.read_at - row.reported_at);
    return {
      replica: row.replica,
      ageMs,
      fresh: ageMs < FRESH_MS,
      inflowPerS: row.inflow_pixels / PIXELS_PER_MEGAPIXEL,
      work: { megapixels: row.done_pixels / PIXELS_PER_MEGAPIXEL, nodeMs: row.node_ms },
      wantedNodes: row.wanted_nodes,
    };
  });
}

function pixelsOf(megapixels: number): number {
  return Math.round(megapixels * PIXELS_PER_MEGAPIXEL);
}

/** Between two reports; nodes need a minute or more to come. */
const REPORT_EVERY_MS = 5000;
/** Between two looks at the nodes. */
const SAMPLE_EVERY_MS = 250;
/** How long what was wanted is held. Chosen in simulated time (bench/MEASUREMENTS.md). */
export const HOLD_MS = 300_000;

interface FleetSizingDependencies {
  readonly jobs: Pick<JobStore, 'queued' | 'openUnpaid'>;
  readonly reports: FleetReportStore;
  readonly fleet: { snapshots(): readonly NodeSnapshot[]; unroutableMs(): number };
  readonly running: () => number;
  readonly events: Pick<JobEvents, 'onSubmitted' | 'onImageDone'>;
  readonly policy: FleetSizePolicy;
  readonly replica: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Milliseconds of a clock that never goes back. */
  readonly now?: () => number;
}

/** Its gauge is what scales the nodes. */
export function openFleetSize(core: Core, policy: FleetSizePolicy): FleetSizing {
  const { database, stores, fleet, running, events, log, metrics, replicaId: replica } = core;
  const reports = createFleetReportStore(database);
  const { jobs } = stores;
  const sizing = new FleetSizing({ jobs, reports, fleet, running, events, policy, replica, log });
  registerWanted(metrics, () => sizing.wanted());
  return sizing;
}

/** @param wanted undefined: nobody has said it yet */
export function registerWanted(
  metrics: MetricSet,
  wanted: () => Promise<number | undefined>,
): void {
  const reading = metrics.reading('the database', wanted);
  metrics.gauge(
    'matting_control_nodes_wanted',
    'Nodes the fleet should have by what waits and comes; follow the maximum',
    reading(count => count),
  );
}

export class FleetSizing {
  readonly #dependencies: FleetSizingDependencies;
  readonly #now: () => number;
  readonly #peak = new HeldPeak(HOLD_MS);
  readonly #loop = pollingLoop(
    REPORT_EVERY_MS,
    () => this.report(),
    err => this.#dependencies.log.warn({ err }, 'the fleet was not measured'),
  );
  readonly #unsubscribe: (() => void)[] = [];
  #meter: WorkMeter | undefined;
  #sampling: NodeJS.Timeout | undefined;
  #saidWanted: number | undefined;

  constructor(dependencies: FleetSizingDependencies) {
    this.#dependencies = dependencies;
    this.#now = dependencies.now ?? (() => performance.now());
  }

  start(): void {
    const { events } = this.#dependencies;
    this.#unsubscribe.push(
      events.onSubmitted(job => {
        if (job.class !== 'playground') this.#meter?.submitted(queuedMegapixels(job));
      }),
      events.onImageDone(megapixels => {
        this.#meter?.finished(Math.max(MEGAPIXELS_MIN, megapixels));
      }),
    );
    this.#sampling = setInterval(() => this.sample(), SAMPLE_EVERY_MS);
    this.#loop.start();
  }

  async stop(): Promise<void> {
    clearInterval(this.#sampling);
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    await this.#loop.stop();
  }

  /** For the metrics; undefined: no replica has reported lately. */
  async wanted(): Promise<number | undefined> {
    const fresh = (await this.#dependencies.reports.list()).filter(report => report.fresh);
    return fresh.length === 0 ? undefined : Math.max(...fresh.map(each => each.wantedNodes));
  }

  sample(): void {
    this.#meter?.sample(this.#dependencies.fleet.snapshots(), this.#now());
  }

  async report(): Promise<void> {
    const { jobs, reports, replica, policy } = this.#dependencies;
    const known = await reports.list();
    const meter = this.#meter ?? this.#remember(known);
    const [queue, playgroundJobs] = await Promise.all([jobs.queued(), jobs.openUnpaid()]);
    const reading = meter.take(this.#now());
    const others = known.filter(report => report.fresh && report.replica !== replica);
    const inflowPerS = others.reduce((sum, report) => sum + report.inflowPerS, reading.inflowPerS);
    const wanted = wantedNodes(
      {
        waitingJobs: queue.jobs,
        waitingMegapixels: queue.megapixels,
        playgroundJobs,
        runningJobs: this.#dependencies.running(),
        inflowPerS,
        pacePerS: pacePerS(workOf([reading.work, ...others.map(({ work }) => work)])),
        oldestAgeMs: queue.oldestAgeMs,
        unroutableMs: this.#dependencies.fleet.unroutableMs(),
        routableNodes: reading.routableNodes,
        utilisation: reading.utilisation,
      },
      policy,
    );
    const held = this.#peak.hold(wanted, this.#now());
    const { work } = reading;
    await reports.save(replica, { work, inflowPerS: reading.inflowPerS, wantedNodes: held });
    if (held !== this.#saidWanted) this.#say(held, wanted, queue, reading);
  }

  /** The first report of a process goes on where those before it stopped. */
  #remember(known: readonly StoredFleetReport[]): WorkMeter {
    const fresh = known.filter(report => report.fresh);
    const remembered = fresh.length > 0 ? fresh : known.slice(0, 1);
    for (const { ageMs, wantedNodes: nodes } of remembered) {
      if (ageMs < HOLD_MS) this.#peak.hold(nodes, this.#now());
    }
    this.#meter = new WorkMeter(workOf(remembered.map(({ work }) => work)));
    return this.#meter;
  }

  #say(
    nodes: number,
    now: number,
    { jobs, megapixels }: { readonly jobs: number; readonly megapixels: number },
    { work, inflowPerS, routableNodes }: MeterReading,
  ): void {
    this.#saidWanted = nodes;
    const queue = { jobs, megapixels: Math.round(megapixels) };
    const lately = { inflowPerS: rounded(inflowPerS), pacePerS: rounded(pacePerS(work)) };
    this.#dependencies.log.info({ nodes, now, routableNodes, queue, lately }, 'nodes wanted');
  }
}

function rounded(value: number | undefined): number | undefined {
  return value === undefined ? undefined : Math.round(value * 100) / 100;
}
