import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ModelManifest } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { ExecutionProvider, Precision } from '../models/prepared-model.ts';
import { carriesInt8 } from './instruction-set.ts';

interface PrecisionWish {
  readonly wanted: Precision | 'auto';
  readonly size: Size;
  readonly provider: ExecutionProvider;
  readonly instructionSet: string;
}

interface PrecisionChoice {
  readonly precision: Precision;
  /** Why `auto` did not choose int8, in one line. */
  readonly fallback?: string;
}

/**
 * `auto` on a CPU: int8 if it has the instructions and the model the ranges, else fp32. On a GPU:
 * fp16 if the model has it. A graph that runs as it is keeps its own.
 * @throws ModelError `settings`: a named precision is never replaced
 */
export function choosePrecision(manifest: ModelManifest, wish: PrecisionWish): PrecisionChoice {
  const { wanted, provider, instructionSet } = wish;
  if (wanted !== 'auto') return { precision: requireNamed(manifest, wanted, wish) };
  if (manifest.graph.dynamic !== undefined) return { precision: manifest.graph.precision };
  if (provider !== 'cpu') {
    return { precision: manifest.precisions.includes('fp16') ? 'fp16' : 'fp32' };
  }
  if (!manifest.precisions.includes('int8')) return { precision: 'fp32' };
  if (!hasRanges(manifest, wish.size)) {
    const sizes = (manifest.inputSize.int8 ?? []).join(', ');
    const fallback = `it has ranges for int8 at ${sizes}, not at ${describeMiss(wish.size)}`;
    return { precision: 'fp32', fallback };
  }
  if (carriesInt8(instructionSet)) return { precision: 'int8' };
  const fallback = `this CPU (${instructionSet}) has no instruction for int8: no VNNI, no DOTPROD`;
  return { precision: 'fp32', fallback };
}

function requireNamed(
  manifest: ModelManifest,
  wanted: Precision,
  { size, provider }: PrecisionWish,
): Precision {
  const refuse = (why: string): never => {
    const what = `${manifest.name} cannot be prepared in ${wanted} (MATTING_PRECISION)`;
    throw new ModelError('settings', `${what}: ${why}`);
  };
  const { precisions, inputSize } = manifest;
  if (!precisions.includes(wanted)) refuse(`it can in ${precisions.join(', ')}`);
  if (wanted !== 'int8') return wanted;
  if (provider !== 'cpu') refuse(`int8 is for CPUs, the execution provider is ${provider}`);
  if (!hasRanges(manifest, size)) {
    refuse(`it has ranges at ${(inputSize.int8 ?? []).join(', ')}, not at ${describeMiss(size)}`);
  }
  return wanted;
}

function hasRanges({ inputSize }: ModelManifest, { width, height }: Size): boolean {
  return width === height && (inputSize.int8 ?? []).includes(width);
}

function describeMiss({ width, height }: Size): string {
  return width === height ? String(width) : `${width}x${height}`;
}
