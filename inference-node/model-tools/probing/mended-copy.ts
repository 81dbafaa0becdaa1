import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { mendInWorker } from '../preparing/mend-in-worker.ts';

/**
 * A copy with replaced deformable convolutions, or the file itself if it has none, so that the
 * probe measures what runs later.
 */
export async function openMendedCopy(file: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'matting-mended-'));
  // Keeps the file's name, which errors of the runtime contain.
  const target = path.join(folder, path.basename(file));
  const outcome = await mendInWorker({ source: file, target });
  const isMended = outcome.state === 'mended';
  return {
    path: isMended ? target : file,
    isMended,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}
