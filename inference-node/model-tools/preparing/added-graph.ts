/**
 * Prepares an operator's own model: its bytes run as they are, unless they hold deformable
 * convolutions that can be mended. Those are held against their stock form before they are used.
 */
import { createHash, randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { answerOnce } from '@matting/serving/engine/choice/answer-picture.ts';
import { readCpuShare } from '@matting/serving/engine/choice/engine-layout.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import type { ExecutionProvider, PreparedModel } from '@matting/serving/models/prepared-model.ts';
import { decodeModel, type Graph } from '@matting/serving/onnx/graph.ts';
import { drawCheckPicture } from '@matting/serving/prepared/answer-check.ts';
import {
  describeAsItIs,
  describePrepared,
  type MakePrepared,
} from '@matting/serving/prepared/load-prepared.ts';
import {
  cleanPrepared,
  preparedDirectory,
  preparedPath,
  writeSidecar,
} from '@matting/serving/prepared/prepared-cache.ts';
import { compareBlocks, DIFFERENCES_OUTPUT } from '../onnx/compare-blocks.ts';
import { type DeformableForm, type Mended, mendDeformableConvolutions } from '../onnx/mend.ts';
import { liftConstants } from '../onnx/rewrites.ts';
import { PROBE_MEMORY_MAX_BYTES } from '../probing/probe.ts';
import { writeGraph } from './write-graph.ts';

/**
 * ONNX Runtime 1.30: DeformConv has kernels for CPU and CUDA, which stands behind TensorRT; WebGPU
 * has GridSample alone.
 */
const FORMS: Readonly<Record<ExecutionProvider, DeformableForm>> = {
  cpu: 'deform-conv',
  cuda: 'deform-conv',
  tensorrt: 'deform-conv',
  webgpu: 'grid-sample-taps',
};

/** A load and two runs each: BiRefNet lite at 1024 takes one minute of two cores. */
const COMPARE_TIMEOUT_MS = 900_000;

/** Levels of 255. BiRefNet lite at 1024 differs by 1 in one pixel of 460. */
const ALPHA_DIFFERENCE_MAX = 2;

type Options = Parameters<MakePrepared>[2];

export async function prepareAdded(
  bytes: Uint8Array,
  source: string,
  key: Parameters<MakePrepared>[1],
  options: Options,
): Promise<string | undefined> {
  const { manifest, cacheDir, memoryMaxBytes = PROBE_MEMORY_MAX_BYTES, onProgress } = options;
  const path = preparedPath(cacheDir, manifest, key);
  const asItIs = async () => {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    await writeSidecar(cacheDir, manifest, key, bytes.length, sha256);
    return undefined;
  };
  const stock = readStock(bytes, source);
  const mended = stock && mend(stock, FORMS[key.provider]);
  if (stock === undefined || mended === undefined) return await asItIs();
  onProgress?.({ step: 'compare', blocks: mended.blocks.length });
  const written = await writeGraph(path, mended.graph, onProgress);
  // The CPU's answers: what is compared are graphs, and the provider is checked with the model.
  const onCpu = { ...key, provider: 'cpu' } as const;
  const comparing: Comparing = {
    answer: answerOnce({
      ...{ childEnv: {}, threads: Math.max(1, Math.floor(await readCpuShare())) },
      ...{ timeoutMs: COMPARE_TIMEOUT_MS, memoryMaxBytes },
    }),
    stock: describeAsItIs(source, onCpu, options),
    mended: describePrepared(manifest, onCpu, path, written.sha256),
    directory: preparedDirectory(cacheDir, manifest),
  };
  const wrong =
    (await compareEachBlock(comparing, compareBlocks(stock, mended))) ??
    (await compareMattes(comparing, options));
  if (wrong !== undefined) {
    onProgress?.({ step: 'keep', reason: wrong });
    await rm(path, { force: true });
    return await asItIs();
  }
  await writeSidecar(cacheDir, manifest, key, written.bytes, written.sha256);
  await cleanPrepared(cacheDir, manifest);
  return written.sha256;
}

/** Undefined: it holds what passes do not know, such as subgraphs, and runs as it is. */
function readStock(bytes: Uint8Array, source: string): Graph | undefined {
  try {
    return liftConstants(decodeModel(bytes, source));
  } catch (error) {
    if (error instanceof ModelError) return undefined;
    throw error;
  }
}

/** Undefined: nothing is to be mended, or not in this graph's opset. */
function mend(stock: Graph, form: DeformableForm): Mended | undefined {
  try {
    const mended = mendDeformableConvolutions(stock, form);
    return mended.blocks.length === 0 ? undefined : mended;
  } catch (error) {
    if (error instanceof ModelError) return undefined;
    throw error;
  }
}

interface Comparing {
  readonly answer: ReturnType<typeof answerOnce>;
  readonly stock: PreparedModel;
  readonly mended: PreparedModel;
  readonly directory: string;
}

function checkPicture({ inputWidth, inputHeight }: PreparedModel): Buffer {
  return drawCheckPicture(inputWidth, inputHeight);
}

/** Else one line that says what is wrong. */
async function compareEachBlock(
  { answer, mended, directory }: Comparing,
  comparison: Graph,
): Promise<string | undefined> {
  // The name of what is removed later, should this process be killed.
  const path = join(directory, `.compare.${randomBytes(6).toString('hex')}.tmp`);
  try {
    const { sha256 } = await writeGraph(path, comparison);
    // Its output is read as a matte: 1 is the most that a block may differ by.
    const read = { outputName: DIFFERENCES_OUTPUT, activation: 'none' } as const;
    const form = mended.form && { form: { ...mended.form, inverted: false } };
    const spec = { ...mended, ...read, ...form, path, sha256 };
    const { alpha } = await answer(spec, checkPicture(mended));
    const wrong = alpha.filter(difference => difference === 255).length;
    if (wrong === 0) return undefined;
    return `${wrong} of ${alpha.length} parts of what was mended answer otherwise`;
  } catch (error) {
    return `what was mended could not be compared: ${(error as Error).message}`;
  } finally {
    await rm(path, { force: true });
  }
}

/** As a whole, where memory allows: the stock form of BiRefNet takes 7 GB and more. */
async function compareMattes(
  { answer, stock, mended }: Comparing,
  { onProgress }: Options,
): Promise<string | undefined> {
  const rgb = checkPicture(mended);
  let expected: Uint8Array;
  try {
    expected = (await answer(stock, rgb)).alpha;
  } catch (error) {
    const reason = `the whole was not compared: ${(error as Error).message}`;
    onProgress?.({ step: 'mended', reason });
    return undefined;
  }
  try {
    const { alpha } = await answer(mended, rgb);
    const difference = largestDifference(expected, alpha);
    if (difference <= ALPHA_DIFFERENCE_MAX) return undefined;
    return `its matte differs by ${difference} levels of 255`;
  } catch (error) {
    return `it does not run mended: ${(error as Error).message}`;
  }
}

function largestDifference(one: Uint8Array, other: Uint8Array): number {
  if (one.length !== other.length) return 255;
  return one.reduce(
    (largest, value, at) => Math.max(largest, Math.abs(value - (other[at] ?? 0))),
    0,
  );
}
