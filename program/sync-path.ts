import { open } from 'node:fs/promises';

/** Makes durable what was written into a file, or renamed into a directory. */
export async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
