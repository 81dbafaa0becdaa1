/** The settings of a fleet that sleeps: nodes that come when there is work, and go when not. */
import type { EnvReader } from '#program/env.ts';

export interface OnDemandConfig {
  /** What waits is to be begun within this: the wanted number of nodes follows from it. */
  readonly waitTargetMs: number;
  /** Bounds of the wanted number of nodes. */
  readonly nodesMin: number;
  readonly nodesMax: number;
}

/** Chosen by a day in simulated time (docs/performance.md, "A fleet that sleeps"). */
const WAIT_TARGET_S_DEFAULT = 60;
/** A first admission comes within an hour, or the job ends. */
const WAIT_TARGET_S_MAX = 3600;
const NODES_MAX_DEFAULT = 100;
/** Beyond it no control plane has been measured. */
const NODES_MAX_MAX = 10_000;

/** Set without MATTING_NODES_ON_DEMAND they would be ignored. */
const ITS_OWN = ['MATTING_QUEUE_WAIT_TARGET_S', 'MATTING_NODES_MIN', 'MATTING_NODES_MAX'] as const;

/** Undefined: nodes are expected to live, and submissions are refused while none does. */
export function readOnDemand(reader: EnvReader): OnDemandConfig | undefined {
  const isOn = reader.boolean('MATTING_NODES_ON_DEMAND', { default: false });
  const waitTargetS = reader.integer('MATTING_QUEUE_WAIT_TARGET_S', {
    min: 1,
    max: WAIT_TARGET_S_MAX,
    default: WAIT_TARGET_S_DEFAULT,
  });
  const bounds = { min: 0, max: NODES_MAX_MAX };
  const nodesMin = reader.integer('MATTING_NODES_MIN', { ...bounds, default: 0 });
  const nodesMax = reader.integer('MATTING_NODES_MAX', {
    ...bounds,
    min: 1,
    default: Math.max(NODES_MAX_DEFAULT, nodesMin),
  });
  if (nodesMin > nodesMax) reader.problem('MATTING_NODES_MIN', 'at most MATTING_NODES_MAX');
  if (isOn) return { waitTargetMs: waitTargetS * 1000, nodesMin, nodesMax };
  for (const variable of ITS_OWN) {
    if (reader.has(variable))
      reader.problem(variable, 'set only with MATTING_NODES_ON_DEMAND=true');
  }
  return undefined;
}
