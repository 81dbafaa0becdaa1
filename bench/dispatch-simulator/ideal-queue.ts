/**
 * The ideal for dispatch: one queue in the product's order, which knows every engine at every
 * instant, gives its head to the fastest free engine, and pays the same for database and wire.
 */
import { orderJobs } from '@matting/queue/fair-order.ts';
import { EventQueue } from './event-queue.ts';
import { DISPATCH_MS } from './simulated-replica.ts';
import { type NodeKind, type Scenario, type SimulatedJob, serviceMs } from './workload.ts';

export interface JobTimes {
  readonly waitMs: number;
  readonly totalMs: number;
}

interface Engines {
  readonly slowness: number;
  free: number;
  /** Gone with their nodes once their image is done. */
  vanishing: number;
}

class IdealQueue {
  readonly events = new EventQueue();
  readonly times = new Map<SimulatedJob, JobTimes>();
  readonly #engines: readonly Engines[];
  readonly #waiting = new Set<SimulatedJob>();
  readonly #accounts = new Map<string, number>();
  readonly #apiKeys = new Map<string, number>();

  constructor(fleet: readonly NodeKind[]) {
    const kinds = new Map<number, Engines>();
    for (const { slowness, engines } of fleet) {
      const kind = kinds.get(slowness) ?? { slowness, free: 0, vanishing: 0 };
      kind.free += engines;
      kinds.set(slowness, kind);
    }
    this.#engines = [...kinds.values()].sort((a, b) => a.slowness - b.slowness);
  }

  submit(job: SimulatedJob): void {
    this.#waiting.add(job);
    this.#begin();
  }

  vanish({ slowness, engines }: NodeKind): void {
    for (const kind of this.#engines) {
      if (kind.slowness !== slowness) continue;
      const idle = Math.min(engines, kind.free);
      kind.free -= idle;
      // The job that runs there ends elsewhere in the real fleet; here its engine is gone after it.
      kind.vanishing += engines - idle;
    }
  }

  #begin(): void {
    if (this.#waiting.size === 0 || !this.#engines.some(({ free }) => free > 0)) return;
    const { nowMs } = this.events;
    const waiting = [...this.#waiting].map(job => {
      return { ...job, createdAtMs: job.arrivesMs, readAtMs: nowMs, job };
    });
    const shares = { accounts: this.#accounts, apiKeys: this.#apiKeys };
    for (const { job } of orderJobs(waiting, shares)) {
      const fastest = this.#engines.find(({ free }) => free > 0);
      if (fastest === undefined) return;
      this.#run(job, fastest);
    }
  }

  #run(job: SimulatedJob, engines: Engines): void {
    const waitMs = this.events.nowMs - job.arrivesMs + DISPATCH_MS;
    const workMs = serviceMs(job, engines.slowness);
    this.times.set(job, { waitMs, totalMs: waitMs + workMs });
    this.#waiting.delete(job);
    this.#count(job, 1);
    engines.free -= 1;
    this.events.in(workMs, () => {
      this.#count(job, -1);
      if (engines.vanishing > 0) engines.vanishing -= 1;
      else engines.free += 1;
      this.#begin();
    });
  }

  #count({ accountId, apiKeyId }: SimulatedJob, change: 1 | -1): void {
    this.#accounts.set(accountId, (this.#accounts.get(accountId) ?? 0) + change);
    this.#apiKeys.set(apiKeyId, (this.#apiKeys.get(apiKeyId) ?? 0) + change);
  }
}

export async function runIdealQueue(
  scenario: Scenario,
  fleet: readonly NodeKind[],
  jobs: readonly SimulatedJob[],
): Promise<ReadonlyMap<SimulatedJob, JobTimes>> {
  const queue = new IdealQueue(fleet);
  const lostAtMs = vanishingAtMs(scenario, jobs);
  if (lostAtMs !== undefined) {
    queue.events.at(lostAtMs, () => {
      for (const node of vanishing(scenario, fleet)) queue.vanish(node);
    });
  }
  for (const job of jobs) queue.events.at(job.arrivesMs, () => queue.submit(job));
  await queue.events.run(() => queue.times.size === jobs.length);
  return queue.times;
}

export function vanishingAtMs(
  { vanishing }: Scenario,
  jobs: readonly SimulatedJob[],
): number | undefined {
  if (vanishing === undefined) return undefined;
  return jobs[Math.floor(jobs.length * vanishing.afterShare)]?.arrivesMs;
}

export function vanishing<T>(scenario: Scenario, nodes: readonly T[]): T[] {
  const every = Math.round(1 / (scenario.vanishing?.share ?? 1));
  return nodes.filter((_, index) => index % every === 0);
}
