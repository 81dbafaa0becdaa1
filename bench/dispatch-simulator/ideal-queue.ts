/**
 * The ideal that the policy is measured against: one central queue that knows every engine at every
 * instant, gives the head of the line to the fastest engine that is free, and never binds a job
 * early. It pays the same for the database and the wire as the real thing.
 */
import { EventQueue } from './event-queue.ts';
import { DISPATCH_MS } from './simulated-replica.ts';
import { type NodeKind, type Scenario, type SimulatedJob, serviceMs } from './workload.ts';

/** When a job was begun and done, ms since its submission. */
export interface JobTimes {
  waitMs: number;
  totalMs: number;
}

export function runIdealQueue(
  scenario: Scenario,
  fleet: readonly NodeKind[],
  jobs: readonly SimulatedJob[],
): JobTimes[] {
  const events = new EventQueue();
  const times: JobTimes[] = jobs.map(() => ({ waitMs: 0, totalMs: 0 }));
  const waiting: SimulatedJob[] = [];
  let head = 0;
  let done = 0;
  // By slowness: engines of one kind are as good as each other.
  const free = new Map<number, number>();
  for (const { slowness, engines } of fleet) {
    free.set(slowness, (free.get(slowness) ?? 0) + engines);
  }
  const kinds = [...free.keys()].sort((a, b) => a - b);
  const vanished = new Map<number, number>();
  const start = () => {
    while (head < waiting.length) {
      const slowness = kinds.find(kind => free.get(kind)! > 0);
      if (slowness === undefined) return;
      const job = waiting[head++];
      free.set(slowness, free.get(slowness)! - 1);
      const waitMs = events.nowMs - job.arrivesMs + DISPATCH_MS;
      const workMs = serviceMs(job, slowness);
      times[job.index] = { waitMs, totalMs: waitMs + workMs };
      events.in(workMs, () => {
        done += 1;
        const gone = vanished.get(slowness) ?? 0;
        if (gone > 0) vanished.set(slowness, gone - 1);
        else free.set(slowness, free.get(slowness)! + 1);
        start();
      });
    }
  };
  for (const job of jobs) {
    events.at(job.arrivesMs, () => {
      waiting.push(job);
      start();
    });
  }
  const { vanishing } = scenario;
  if (vanishing !== undefined) {
    events.at(jobs[Math.floor(jobs.length * vanishing.afterShare)].arrivesMs, () => {
      for (const node of vanishingNodes(scenario, fleet)) {
        const { slowness, engines } = fleet[node];
        const idle = Math.min(engines, free.get(slowness)!);
        free.set(slowness, free.get(slowness)! - idle);
        // What runs there ends elsewhere in the real fleet; here the engine is gone after it.
        vanished.set(slowness, (vanished.get(slowness) ?? 0) + engines - idle);
      }
    });
  }
  events.run(() => done === jobs.length);
  return times;
}

/** Indices, spread evenly over the kinds. */
export function vanishingNodes(scenario: Scenario, fleet: readonly NodeKind[]): number[] {
  const every = Math.round(1 / (scenario.vanishing?.share ?? 1));
  return fleet.flatMap((_, index) => (index % every === 0 ? [index] : []));
}
