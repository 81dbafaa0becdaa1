import { readFile } from 'node:fs/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { decodeModel } from '@matting/serving/onnx/graph.ts';
import { compareBlocks } from '../onnx/compare-blocks.ts';
import { mendDeformableConvolutions } from '../onnx/mend.ts';
import { liftConstants } from '../onnx/rewrites.ts';
import type { MendOrder, MendOutcome } from './mend-in-worker.ts';
import { writeGraph } from './write-graph.ts';

async function mend({ source, target, comparison }: MendOrder): Promise<MendOutcome> {
  try {
    const stock = liftConstants(decodeModel(await readFile(source), source));
    const mended = mendDeformableConvolutions(stock);
    if (mended.blocks.length === 0) return { state: 'nothing' };
    const written = await writeGraph(target, mended.graph);
    const compared =
      comparison === undefined
        ? undefined
        : await writeGraph(comparison, compareBlocks(stock, mended));
    return { state: 'mended', blocks: mended.blocks.length, written, compared };
  } catch (error) {
    // Parts that no pass knows, such as subgraphs or another opset.
    if (error instanceof ModelError && error.kind === 'prepare') return { state: 'nothing' };
    throw error;
  }
}

parentPort?.postMessage(await mend(workerData as MendOrder));
