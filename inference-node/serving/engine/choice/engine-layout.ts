/**
 * How many engines a node opens for a model and with how many threads each. Pure.
 *
 * Measured with ISNet at 1024x1024 on 2 cores of an AMD EPYC (docs/performance.md), one engine of
 * two threads against two engines of one: in fp32 the one is ahead in latency and in throughput; in
 * int8 it answers in 0.56 of the time, and the two together give 1.17 of its images a second, for
 * twice the memory. Threads of one engine wait for each other after every operator, and an
 * operator in int8 is short. With MODNet in fp32 beside it engines of one thread are ahead as much.
 */
import type { ExecutionProvider, Precision } from '../../models/prepared-model.ts';

export interface EngineLayout {
  readonly engines: number;
  readonly threadsPerEngine: number;
}

/** latency: a picture alone is answered soonest. throughput: most pictures a second. */
export const ENGINE_GOALS = ['latency', 'throughput'] as const;
export type EngineGoal = (typeof ENGINE_GOALS)[number];

export interface LayoutInputs {
  readonly provider: ExecutionProvider;
  /** Precisions of the plan's models, each of which gets this layout. */
  readonly precisions: readonly Precision[];
  /** CPUs this process may use, fractions allowed (cpu-share.ts). */
  readonly cpuShare: number;
  readonly goal: EngineGoal;
  /** Engines that the memory holds beside the pictures. */
  readonly enginesMax: number;
  /** Engines that have their GPUs already; 1 where GPUs are not known. */
  readonly enginesPlaced?: number;
}

/**
 * Threads of one CPU engine. Beyond about this many, one picture's convolutions no longer fill them
 * and engines side by side do better.
 */
export const THREADS_PER_ENGINE_MAX = 16;

/**
 * GPU: one engine of one thread each; its work is elsewhere, and more threads only spin. CPU: one
 * engine with all the threads, which also holds the weights once; on large machines several, the
 * threads shared out evenly. CPU for throughput where a model is in int8: of each model an engine a
 * core, as many as the memory holds. That holds for MODNet in fp32 beside ISNet in int8 too: those
 * of two models would otherwise each want all cores, for two images at once.
 */
export function chooseEngineLayout(inputs: LayoutInputs): EngineLayout {
  const { provider, precisions, cpuShare, goal, enginesMax } = inputs;
  if (provider !== 'cpu') return { engines: inputs.enginesPlaced ?? 1, threadsPerEngine: 1 };
  // A thread over the quota is throttled together with those that wait for it.
  const threads = Math.max(1, Math.floor(cpuShare));
  const apart = goal === 'throughput' && precisions.includes('int8');
  const wanted = apart ? threads : Math.ceil(threads / THREADS_PER_ENGINE_MAX);
  const engines = Math.max(1, Math.min(wanted, enginesMax));
  const share = Math.floor(threads / engines);
  return { engines, threadsPerEngine: Math.min(THREADS_PER_ENGINE_MAX, share) };
}
