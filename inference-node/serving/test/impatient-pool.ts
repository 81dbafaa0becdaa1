/** The engine pool with short timeouts. */
import type { EnginePool, EnginePoolOptions } from '../engine/pool/engine-pool.ts';
import * as real from '../engine/pool/open-engine-pool.ts';

const killWaitMaxMs = Number(process.env.TEST_KILL_WAIT_MAX_MS);
const TIMING = { runTimeoutMinMs: 500, runTimeoutMeans: 1, killWaitMaxMs };

export function openEnginePool(options: EnginePoolOptions): EnginePool {
  return real.openEnginePool({ ...options, timing: TIMING });
}
