import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { mendInWorker } from '../preparing/mend-in-worker.ts';

/**
 * The graph as it will be prepared, or the file itself, so that the probe measures what runs later.
 */
export async function openMendedCopy(file: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'matting-mended-'));
  // The runtime names the file if it does not load.
  const target = path.join(folder, path.basename(file));
  const outcome = await mendInWorker({ source: file, target });
  const isMended = outcome.state === 'mended';
  return {
    path: isMended ? target : file,
    isMended,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}
