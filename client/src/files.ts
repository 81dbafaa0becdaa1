/** Files on a disk, for Node, Deno and Bun: what the rest of the package does without. */
import { createHash } from 'node:crypto';
import { open, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MattingError } from './errors.ts';
import { IMAGE_BYTES_MAX } from './submission.ts';

/**
 * Reads an image file whole.
 * @throws MattingError IMAGE_TOO_LARGE before it is read; the system's errors.
 */
export async function readImage(path: string | URL | Uint8Array): Promise<Uint8Array> {
  const file = await open(path as string);
  try {
    const { size } = await file.stat();
    if (size > IMAGE_BYTES_MAX) {
      const detail = `${path} is larger than ${IMAGE_BYTES_MAX / 1_048_576} MiB`;
      throw new MattingError(detail, { code: 'IMAGE_TOO_LARGE', retryable: false });
    }
    return new Uint8Array(await file.readFile());
  } finally {
    await file.close();
  }
}

/**
 * Writes a file under another name beside it and renames it when it is whole.
 * @returns its bytes.
 */
export async function saveImage(
  path: string,
  pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<number> {
  // No longer than any name may be, whatever its own length.
  const digest = createHash('sha256').update(basename(path)).digest('hex').slice(0, 32);
  const partial = join(dirname(path), `.${digest}.part`);
  try {
    const file = await open(partial, 'w');
    try {
      for await (const piece of pieces) await file.writeFile(piece);
    } finally {
      await file.close();
    }
    await rename(partial, path);
    return (await stat(path)).size;
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}
