/** Which part of a machine that is kept full keeps it from doing more. Pure. */
import type { ProcessRole } from '../processes.ts';

export interface Loads {
  readonly cores: number;
  /** Mean, 0 to 1; undefined: nothing says it. */
  readonly gpuBusy: number | undefined;
  /** Cores that the service takes, by role. */
  readonly coresOf: Readonly<Record<ProcessRole, number>>;
  /** That everything on the machine takes. */
  readonly machineCores: number;
  /** Share of time that an event loop had work, the busiest: of the client's threads. */
  readonly clientBusy: number;
  readonly controlPlaneBusy: number;
  readonly nodeBusy: number;
  /** Share of time that an engine had a run, of all engines. */
  readonly enginesBusy: number;
  /** What an image waited for a picture worker, as a share of what it took in the node. */
  readonly workerWaitShare: number;
}

const FULL = 0.9;
/** More than what a place that is free at once takes. */
const WAITS = 0.1;

/** In words for a table. The first that is full, from what nothing can be done about onwards. */
export function limitOf(loads: Loads): string {
  const { cores, gpuBusy = 0, coresOf, machineCores } = loads;
  if (gpuBusy >= FULL) return 'GPU';
  if (loads.clientBusy >= FULL) return 'the client: not a figure of the service';
  if (machineCores >= FULL * cores) return `cores, most in ${largest(coresOf)}`;
  if (loads.controlPlaneBusy >= FULL) return 'control plane, one thread';
  if (loads.nodeBusy >= FULL) return 'node, one thread';
  if (loads.enginesBusy >= FULL) return 'engines: more of them, or several images at once';
  if (loads.workerWaitShare >= WAITS) return 'picture workers: more of them';
  return 'nothing is full';
}

function largest(coresOf: Loads['coresOf']): string {
  const [first] = Object.entries(coresOf).toSorted(([, a], [, b]) => b - a);
  return first?.[0] ?? 'nothing';
}
