/**
 * Replaces deformable convolutions in a thread with its own limits, since the file decides how much
 * memory this takes.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { WrittenGraph } from './write-graph.ts';

export interface MendOrder {
  readonly source: string;
  readonly target: string;
  readonly comparison?: string;
}

export type MendOutcome =
  /** The graph has nothing to replace, or parts that no pass knows. */
  | { readonly state: 'nothing' }
  | { readonly state: 'failed'; readonly reason: string }
  | {
      readonly state: 'mended';
      readonly blocks: number;
      readonly written: WrittenGraph;
      readonly compared: WrittenGraph | undefined;
    };

/** In addition to the file's bytes. BiRefNet lite takes 60 MB. */
const HEAP_MB_MAX = 1024;
/** BiRefNet lite takes one second. */
const MEND_TIMEOUT_MS = 120_000;

export async function mendInWorker(order: MendOrder): Promise<MendOutcome> {
  await using worker = new Worker(new URL('./mend-worker.ts', import.meta.url), {
    workerData: order,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MB_MAX },
  });
  try {
    const signal = AbortSignal.timeout(MEND_TIMEOUT_MS);
    const [outcome] = (await once(worker, 'message', { signal })) as [MendOutcome];
    return outcome;
  } catch (error) {
    return { state: 'failed', reason: `it could not be mended: ${(error as Error).message}` };
  }
}
