import { createHash } from 'node:crypto';
import { writeFileWhole } from '@matting/serving/models/cache-files.ts';
import { encodeModel, type Graph } from '@matting/serving/onnx/graph.ts';
import type { LoadOptions } from '@matting/serving/prepared/load-prepared.ts';

/** Piece by piece: a graph of 1 GB is never assembled a second time. */
export async function writeGraph(
  path: string,
  graph: Graph,
  onProgress?: LoadOptions['onProgress'],
): Promise<{ readonly bytes: number; readonly sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0;
  await writeFileWhole(path, async file => {
    for (const piece of encodeModel(graph)) {
      hash.update(piece);
      await file.write(piece, bytes);
      bytes += piece.length;
      onProgress?.({ step: 'write', writtenBytes: bytes });
    }
  });
  return { bytes, sha256: hash.digest('hex') };
}
