/** Pools on tiny graphs, closed when the test ends. */

import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { type Ending, temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import {
  createUniformRgb,
  type TinyModelOptions,
  writeTinyModel,
} from '@matting/test-support/tiny-model.ts';
import { soon } from '@matting/test-support/waiting.ts';
import pino from 'pino';
import type {
  EnginePool,
  EnginePoolOptions,
  EnginePriority,
  EngineResult,
} from '../engine/pool/engine-pool.ts';
import { openEnginePool } from '../engine/pool/open-engine-pool.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { untilBusy } from './processes.ts';

export const SIDE_PX = 32;
/** Brightnesses for the paced model: no work, and up to `tripsMax`. */
export const QUICK = 10;
export const SLOW = 255;
/** Seconds of work: killed long before it ends. */
export const ENDLESS_TRIPS = 20_000;

/** Absent `openvino`: ONNX Runtime. */
export type RuntimeContext = Pick<PreparedModel, 'openvino'>;

interface Running extends Ending {
  readonly context?: unknown;
}

export async function createModel(
  test: Running,
  options: TinyModelOptions,
): Promise<PreparedModel> {
  const folder = await temporaryFolder(test);
  const model = await writeTinyModel(folder, { width: SIDE_PX, height: SIDE_PX, ...options });
  return { ...model, ...(test.context as RuntimeContext | undefined) };
}

export async function openPool(
  context: Running,
  modelOptions: TinyModelOptions,
  options: Partial<EnginePoolOptions> = {},
): Promise<EnginePool> {
  const pool = openEnginePool({
    model: await createModel(context, modelOptions),
    engines: 1,
    threadsPerEngine: 1,
    childEnv: CACHE_ENV,
    log: pino({ level: 'silent' }),
    ...options,
  });
  context.teardown(() => pool.close(0));
  return pool;
}

export async function openReady(...opened: Parameters<typeof openPool>) {
  const pool = await openPool(...opened);
  await pool.ready();
  return { pool, pid: pidOf(pool) };
}

export function run(
  pool: EnginePool,
  brightness: number,
  options: { priority?: EnginePriority; signal?: AbortSignal; failsWhenDown?: boolean } = {},
): Promise<EngineResult> {
  const { priority = 'sync', signal = new AbortController().signal } = options;
  const rgb = createUniformRgb(SIDE_PX, SIDE_PX, brightness);
  return pool.run({ ...options, rgb, priority, signal });
}

export function pidOf(pool: EnginePool): number {
  const [first] = pool.processes();
  if (first === undefined) throw new Error('no engine has a process');
  return first.pid;
}

/** Engines may have to start or be killed first. */
const POOL_SECONDS_MAX = 60;

/** @throws Error after a minute, with the snapshot */
export async function untilPool(
  pool: Pick<EnginePool, 'onChange'> & { snapshot(): object },
  wanted: () => boolean,
): Promise<void> {
  if (wanted()) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const unsubscribe = pool.onChange(() => {
    if (wanted()) resolve();
  });
  const what = () => `${wanted}; the pool: ${JSON.stringify(pool.snapshot())}`;
  await soon(what, promise, POOL_SECONDS_MAX).finally(unsubscribe);
}

export async function untilStarted(pool: EnginePool): Promise<void> {
  await untilPool(pool, () => pool.snapshot().running === 1);
  await untilBusy(pidOf(pool));
}
