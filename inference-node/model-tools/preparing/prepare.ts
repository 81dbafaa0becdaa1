/** Makes what a node starts from: the prepared graph of checked weights, with its sidecar. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { writeFileWhole } from '../../serving/models/cache-files.ts';
import type { ModelManifest } from '../../serving/models/manifest.ts';
import { diskError } from '../../serving/models/model-error.ts';
import type { ExecutionProvider, PreparedModel } from '../../serving/models/prepared-model.ts';
import { decodeModel, encodeModel } from '../../serving/onnx/model-file.ts';
import {
  type LoadOptions,
  loadPrepared,
  type MakePrepared,
} from '../../serving/prepared/load-prepared.ts';
import {
  cleanPrepared,
  preparedPath,
  writeSidecar,
} from '../../serving/prepared/prepared-cache.ts';
import { alteredWeights } from '../../serving/prepared/weights-cache.ts';
import { prepareGraph } from '../onnx/passes/prepare-graph.ts';
import { fitRanges } from './fit-ranges.ts';

export type PrepareOptions = Omit<LoadOptions, 'make'>;

/** As `loadPrepared`: what is not prepared yet is made. */
export function prepareModel(options: PrepareOptions): Promise<PreparedModel> {
  return loadPrepared({ ...options, make: makePrepared });
}

/** Two processes on one cache that make the same file at once make the same bytes. */
export const makePrepared: MakePrepared = async (
  source,
  key,
  { manifest, cacheDir, onProgress },
) => {
  onProgress?.({ step: 'rewrite' });
  const bytes = await readChecked(source, manifest);
  const { inputName, outputName, inputWidth, inputHeight } = manifest.graph;
  const { precision, provider, ranges } = key;
  const { normalisation, colourOrder, activation } = manifest;
  const graph = prepareGraph(decodeModel(bytes, source), {
    inputName,
    outputName,
    exported: { width: inputWidth, height: inputHeight },
    wanted: { width: key.inputWidth, height: key.inputHeight },
    precision,
    pixels: takesBytes(provider) ? { normalisation, colourOrder, activation } : undefined,
    quantise: ranges && (float32 => fitRanges(ranges, manifest, float32)),
  });
  const hash = createHash('sha256');
  let writtenBytes = 0;
  await writeFileWhole(preparedPath(cacheDir, manifest, key), async file => {
    for (const piece of encodeModel(graph)) {
      hash.update(piece);
      await file.write(piece, writtenBytes);
      writtenBytes += piece.length;
      onProgress?.({ step: 'write', writtenBytes });
    }
  });
  const sha256 = hash.digest('hex');
  await writeSidecar(cacheDir, manifest, key, writtenBytes, sha256);
  await cleanPrepared(cacheDir, manifest);
  return sha256;
};

/**
 * What copies to another device, and has kernels for bytes and float64. On a CPU the conversion in
 * the graph takes as long as ours beside it; WebGPU has neither type.
 */
function takesBytes(provider: ExecutionProvider): boolean {
  return provider === 'cuda' || provider === 'tensorrt';
}

/** Hashes the bytes that the graph is made from: a record of an earlier check is not enough. */
async function readChecked(path: string, manifest: ModelManifest): Promise<Buffer> {
  const file = manifest.files.find(({ name }) => name === manifest.graph.file);
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (error) {
    throw diskError(error, 'read', path);
  }
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  if (sha256 !== file?.sha256) {
    throw alteredWeights(manifest, path, `its sha256 is ${sha256}, not ${file?.sha256}`);
  }
  return bytes;
}
