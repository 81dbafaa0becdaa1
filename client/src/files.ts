/** Files for Node, Deno and Bun. The rest of the package needs no file system. */
import { createHash } from 'node:crypto';
import { open, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MattingError } from './errors.ts';
import { IMAGE_BYTES_MAX } from './submission.ts';

/**
 * @throws MattingError IMAGE_TOO_LARGE before it reads the file; system errors
 * @example const image = await readImage('photo.jpg');
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
 * Writes to a temporary name and renames the complete file.
 * @returns its size in bytes
 * @example await saveImage('cutout.png', [bytes]);
 */
export async function saveImage(
  path: string,
  pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<number> {
  // The digest is short enough for a target's name of any length.
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
