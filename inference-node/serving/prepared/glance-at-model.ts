import { type ModelManifest, requireInputSize } from '../models/manifest.ts';
import type { ExecutionProvider, PreparedModel } from '../models/prepared-model.ts';
import { choosePrecision } from './choose-precision.ts';
import { detectInstructionSet } from './instruction-set.ts';
import {
  describeAsItIs,
  describePrepared,
  type LoadOptions,
  requireGraphFile,
} from './load-prepared.ts';
import { glanceAtPrepared } from './prepared-cache.ts';
import { loadRanges } from './ranges.ts';
import { weightsBySize } from './weights-cache.ts';

/**
 * Finds what loadPrepared would use, by names, sizes and sidecars; it hashes, makes and runs
 * nothing. Undefined: the weights are not here, or the model is not prepared and needs it. A graph
 * that is made when it is loaded has no sum yet.
 */
export async function glanceAtModel(
  options: Pick<
    LoadOptions,
    'manifest' | 'cacheDir' | 'weightsDir' | 'inputSize' | 'provider' | 'instructionSet'
  >,
): Promise<PreparedModel | undefined> {
  const { manifest, cacheDir, provider } = options;
  const { instructionSet = await detectInstructionSet() } = options;
  const size = requireInputSize(manifest, options.inputSize);
  const wish = { wanted: 'auto', size, provider, instructionSet } as const;
  const { precision, fallback: precisionFallback } = choosePrecision(manifest, wish);
  const weights = await weightsBySize(options, manifest);
  if (weights === undefined) return undefined;
  const ranges = precision === 'int8' ? await loadRanges(manifest, size.width) : undefined;
  const { width: inputWidth, height: inputHeight } = size;
  const key = { inputWidth, inputHeight, precision, provider, instructionSet, ranges };
  const there = await glanceAtPrepared(cacheDir, manifest, key);
  if (there.state === 'ready') {
    const model = describePrepared(manifest, key, there.path, there.sha256);
    return precisionFallback === undefined ? model : { ...model, precisionFallback };
  }
  if (!isMadeOnLoad(manifest, provider)) return undefined;
  if (manifest.graph.dynamic === undefined) return describePrepared(manifest, key, '', '');
  return describeAsItIs(requireGraphFile(weights, manifest), key, options);
}

/**
 * An added graph takes a look, or is mended. `models fetch` prepares others for a CPU alone, and a
 * GPU's host has the memory for it.
 */
export function isMadeOnLoad({ graph }: ModelManifest, provider: ExecutionProvider): boolean {
  return graph.dynamic !== undefined || provider !== 'cpu';
}
