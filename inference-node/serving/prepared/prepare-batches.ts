/**
 * Graphs for several pictures at once beside a prepared one: the same graph with another number
 * written into it. Its weights stay in the file of the first, which it names with their places: the
 * other files are some 0.1 to 0.4 MB each. They are made at every start, in the time that a check
 * of them would take, and written where they are not there.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { hashFile, statOrNull, writeFileWhole } from '../models/cache-files.ts';
import { diskError, ModelError } from '../models/model-error.ts';
import { BATCH_SIZES, type BatchGraph, type PreparedModel } from '../models/prepared-model.ts';
import type { Graph, Tensor } from '../onnx/graph.ts';
import { decodeModel, encodeModel } from '../onnx/model-file.ts';
import { setBatch } from '../onnx/set-batch.ts';
import { batchPath, noteUse } from './prepared-cache.ts';

/** Below this it may be a shape, which the runtime wants to read while it loads the graph. */
const PLACED_BYTES_MIN = 128;

/**
 * @param imagesMax 1: the model as it is.
 * @throws ModelError `prepare` where the graph cannot take several; `disk`.
 */
export async function prepareBatches(
  model: PreparedModel,
  imagesMax: number,
): Promise<PreparedModel> {
  const { batches: _, ...single } = model;
  const sizes = BATCH_SIZES.filter(images => images <= imagesMax);
  if (sizes.length === 0) return single;
  const bytes = await readPrepared(model.path);
  const graph = decodeModel(bytes, model.path);
  const batches: BatchGraph[] = [];
  for (const images of sizes) {
    const path = batchPath(model.path, images);
    const written = encodeBatch(graph, images, { file: model.path, bytes });
    const sha256 = createHash('sha256').update(written).digest('hex');
    await requireFile(path, written, sha256);
    batches.push({ images, path, sha256 });
  }
  return { ...single, batches };
}

async function readPrepared(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw diskError(error, 'read', path);
  }
}

/** @param of the file that `graph` is a view of. */
function encodeBatch(
  graph: Graph,
  images: number,
  { file, bytes }: { readonly file: string; readonly bytes: Buffer },
): Buffer {
  const placeOf = ({ data }: Tensor) =>
    data.buffer === bytes.buffer && data.length >= PLACED_BYTES_MIN
      ? { file: basename(file), offset: data.byteOffset - bytes.byteOffset }
      : undefined;
  try {
    return Buffer.concat([...encodeModel(setBatch(graph, images), placeOf)]);
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    throw new ModelError('prepare', `${file}: ${error.message} (MATTING_BATCH_MAX)`, error);
  }
}

/** Another release on the same cache makes files of other names: what is there is ours. */
async function requireFile(path: string, bytes: Buffer, sha256: string): Promise<void> {
  const there = (await statOrNull(path))?.size === bytes.length;
  if (there && (await hashFile(path)) === sha256) await noteUse(path);
  else await writeFileWhole(path, file => file.write(bytes, 0));
}
