/**
 * An added model's graph runs as it is, but for deformable convolutions, which are replaced
 * (onnx/mend.ts). The new graph is compared with the original before use.
 */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { answerOnce, MemoryBoundError } from '@matting/serving/engine/choice/run-once.ts';
import { PROBE_MEMORY_MAX_BYTES } from '@matting/serving/engine/probe/probe-process.ts';
import { hashFile } from '@matting/serving/models/cache-files.ts';
import type { PreparedModel } from '@matting/serving/models/prepared-model.ts';
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
import { alteredWeights } from '@matting/serving/prepared/weights-cache.ts';
import { DIFFERENCES_OUTPUT } from '../onnx/compare-blocks.ts';
import { mendInWorker } from './mend-in-worker.ts';

/** A load and two runs of each form: one minute for BiRefNet lite at 1024 on two cores. */
const COMPARE_TIMEOUT_MS = 900_000;

/** Levels of 255. BiRefNet lite at 1024 differs by 1 in one of 460 pixels. */
const ALPHA_DIFFERENCE_MAX = 2;

type Options = Parameters<MakePrepared>[2];

export const prepareAdded: MakePrepared = async (source, key, options) => {
  const { manifest, cacheDir, onProgress } = options;
  const file = manifest.files.find(({ name }) => name === manifest.graph.file);
  const sha256 = await hashFile(source);
  if (file === undefined || sha256 !== file.sha256) {
    throw alteredWeights(manifest, source, `its sha256 is ${sha256}, not ${file?.sha256}`);
  }
  const path = preparedPath(cacheDir, manifest, key);
  const asItIs = async (reason?: string) => {
    if (reason !== undefined) onProgress?.({ step: 'keep', reason });
    await rm(path, { force: true });
    await writeSidecar(cacheDir, manifest, key, file.bytes, sha256);
    await cleanPrepared(cacheDir, manifest);
    return undefined;
  };
  // If this process is killed, a later cleaning removes a file of this name.
  const name = `.compare.${randomBytes(6).toString('hex')}.tmp`;
  const comparison = join(preparedDirectory(cacheDir, manifest), name);
  try {
    const outcome = await mendInWorker({ source, target: path, comparison });
    if (outcome.state === 'nothing') return await asItIs();
    if (outcome.state === 'failed') return await asItIs(outcome.reason);
    const { blocks, written, compared } = outcome;
    onProgress?.({ step: 'compare', blocks });
    // Compares the graphs on the CPU. A later check of the model tests the provider.
    const onCpu = { ...key, provider: 'cpu' } as const;
    const comparing = {
      answer: boundedAnswer(options),
      stock: describeAsItIs(source, onCpu, options),
      mended: describePrepared(manifest, onCpu, path, written.sha256),
    };
    const comparisonGraph = { path: comparison, sha256: compared?.sha256 ?? '' };
    const wrong =
      (await compareEachBlock(comparing, comparisonGraph, options)) ??
      (await compareMattes(comparing, options));
    if (wrong !== undefined) return await asItIs(wrong);
    await writeSidecar(cacheDir, manifest, key, written.bytes, written.sha256);
    await cleanPrepared(cacheDir, manifest);
    return written.sha256;
  } finally {
    await rm(comparison, { force: true });
  }
};

type Answer = ReturnType<typeof answerOnce>;

function boundedAnswer({ memoryMaxBytes = PROBE_MEMORY_MAX_BYTES }: Options): Answer {
  return answerOnce({ childEnv: {}, timeoutMs: COMPARE_TIMEOUT_MS, memoryMaxBytes });
}

function memoryReason(
  error: unknown,
  { memoryMaxBytes = PROBE_MEMORY_MAX_BYTES }: Options,
): string {
  if (!(error instanceof MemoryBoundError)) return (error as Error).message;
  return `that takes more memory than ${(memoryMaxBytes / 1024 ** 3).toFixed(1)} GiB (--memory-max)`;
}

interface Comparing {
  readonly answer: Answer;
  readonly stock: PreparedModel;
  readonly mended: PreparedModel;
}

async function compareEachBlock(
  { answer, mended }: Comparing,
  comparison: Pick<PreparedModel, 'path' | 'sha256'>,
  options: Options,
): Promise<string | undefined> {
  try {
    // The output is read as a matte, so a difference of 1 is 255.
    const read = { outputName: DIFFERENCES_OUTPUT, activation: 'none' } as const;
    const form = mended.form && { form: { ...mended.form, inverted: false } };
    const spec = { ...mended, ...read, ...form, ...comparison };
    const { alpha } = await answer(spec);
    const wrong = alpha.filter(difference => difference === 255).length;
    if (wrong === 0) return undefined;
    return `${wrong} of ${alpha.length} parts of what was mended answer otherwise`;
  } catch (error) {
    return `what was mended could not be compared: ${memoryReason(error, options)}`;
  }
}

/** Compares the mattes if memory allows: BiRefNet's original graph takes over 7 GB. */
async function compareMattes({ answer, stock, mended }: Comparing, options: Options) {
  let expected: Uint8Array;
  try {
    expected = (await answer(stock)).alpha;
  } catch (error) {
    const reason = `the whole was not compared: ${memoryReason(error, options)}`;
    options.onProgress?.({ step: 'mended', reason });
    return undefined;
  }
  try {
    const { alpha } = await answer(mended);
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
