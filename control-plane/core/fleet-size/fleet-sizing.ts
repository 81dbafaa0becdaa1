/**
 * Says how many nodes a fleet that sleeps should have. Every replica measures what comes to it and
 * what nodes do for it, reports that, and says what it would have by what all of them reported; the
 * fleet should have the highest that any of them says. So all replicas show the same number, one
 * that dies is left out soon, and what was measured and wanted outlives every process.
 */
import type { Logger } from 'pino';
import type { NodeSnapshot } from '../dispatch/dispatch-policy.ts';
import { MEGAPIXELS_MIN, queuedMegapixels } from '../dispatch/queue-share.ts';
import type { JobEvents } from '../jobs/job-events.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { pollingLoop } from '../round-loop.ts';
import type { FleetReportStore, StoredFleetReport } from './fleet-report-store.ts';
import {
  type FleetSizePolicy,
  HeldPeak,
  type MeterReading,
  pacePerS,
  WorkMeter,
  wantedNodes,
  workOf,
} from './wanted-nodes.ts';

/** Between two reports; nodes need a minute or more to come. */
export const REPORT_EVERY_MS = 5000;
/** Between two looks at the nodes. */
const SAMPLE_EVERY_MS = 250;
/** How long what was wanted is held. Chosen in simulated time (docs/performance.md). */
export const HOLD_MS = 300_000;

export interface FleetSizingDependencies {
  readonly jobs: Pick<JobStore, 'queued' | 'openUnpaid'>;
  readonly reports: FleetReportStore;
  readonly fleet: { snapshots(): readonly NodeSnapshot[]; unroutableMs(): number };
  /** Jobs this replica holds. */
  readonly running: () => number;
  readonly events: Pick<JobEvents, 'onSubmitted' | 'onImageDone'>;
  readonly policy: FleetSizePolicy;
  /** This replica. */
  readonly replica: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Milliseconds of a clock that never goes back. */
  readonly now?: () => number;
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

  /** Looks at the nodes. */
  sample(): void {
    this.#meter?.sample(this.#dependencies.fleet.snapshots(), this.#now());
  }

  /** Measures, and says what it would have. */
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
