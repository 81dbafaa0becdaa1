import { createHash } from 'node:crypto';
import { writeFileWhole } from '@matting/serving/models/cache-files.ts';
import { encodeModel, type Graph } from '@matting/serving/onnx/graph.ts';

export interface WrittenGraph {
  readonly bytes: number;
  readonly sha256: string;
}

/** Writes in pieces, so that memory never has a second copy of a graph of 1 GB. */
export async function writeGraph(
  path: string,
  graph: Graph,
  onBytes: (bytes: number) => void = () => undefined,
): Promise<WrittenGraph> {
  const hash = createHash('sha256');
  let bytes = 0;
  await writeFileWhole(path, async file => {
    for (const piece of encodeModel(graph)) {
      hash.update(piece);
      await file.write(piece, bytes);
      bytes += piece.length;
      onBytes(bytes);
    }
  });
  return { bytes, sha256: hash.digest('hex') };
}
