/** What a blob is known by, wherever it lies. */
import { createHash } from 'node:crypto';
import type { BlobStore } from './blob-store.ts';

export interface HashedBlob {
  readonly bytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

/** Reads all of it. Rejects with BlobNotFoundError. */
export async function hashOf(
  store: Pick<BlobStore, 'openRead'>,
  name: string,
): Promise<HashedBlob> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const piece of (await store.openRead(name)) as AsyncIterable<Buffer>) {
    hash.update(piece);
    bytes += piece.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}
