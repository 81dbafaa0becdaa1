/** Proves what the service asks of a directory, by doing it. Removes what it wrote. */

import { randomBytes, randomUUID } from 'node:crypto';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { fileClockMs } from '@matting/program/files.ts';
import { type BlobStore, writeBlob } from './blob-store.ts';
import { missingDirectories, openDirectoryBlobStore } from './directory-store.ts';
import {
  clockProblem,
  problemOf,
  requireThat,
  type StorageFinding,
  StorageProblem,
} from './storage-finding.ts';

/** The instant is so far ahead that nothing is too young to be listed. */
const AHEAD_MS = 3_600_000;

/** Never rejects because of the directory: what is wrong is in the findings. */
export async function checkDirectory(root: string): Promise<readonly StorageFinding[]> {
  const findings: StorageFinding[] = [];
  const attempt = async (ability: string, run: () => Promise<void>) => {
    const problem = await run().then(() => undefined, problemOf);
    findings.push({ ability, problem });
  };
  let store: BlobStore | undefined;
  await attempt('open', async () => {
    // Trying it would make it, with this user's rights in place of the service's.
    const [missing] = await missingDirectories(root);
    requireThat(missing === undefined, `${missing} does not exist; a control plane makes it`);
    store = await openDirectoryBlobStore(root);
  });
  if (store === undefined) return findings;
  const blobs = store;
  const name = `results/check-${randomUUID()}`;
  const bytes = randomBytes(1000);
  await attempt('clock', async () => {
    const problem = clockProblem(await fileClockMs(path.join(root, 'tmp', randomUUID())));
    if (problem !== undefined) throw new StorageProblem(problem);
  });
  await attempt('write', () => writeBlob(blobs, name, bytes));
  await attempt('read', async () => {
    const read = await buffer(await blobs.openRead(name));
    requireThat(read.equals(bytes), 'other bytes were read');
  });
  await attempt('range', async () => {
    const read = await buffer(await blobs.openRead(name, { start: 10, end: 19 }));
    requireThat(read.equals(bytes.subarray(10, 20)), 'a range gave other bytes');
  });
  await attempt('list', async () => {
    for await (const found of blobs.listOlderThan(-AHEAD_MS)) if (found === name) return;
    throw new StorageProblem('what was written is not listed');
  });
  await attempt('remove', async () => {
    await blobs.remove(name);
    requireThat((await blobs.stat(name)) === undefined, 'what was removed is still there');
  });
  return findings;
}
