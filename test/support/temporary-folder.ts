import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** A test, or `{ teardown: test.after.always }` for a file. */
export interface Ending {
  teardown(clean: () => unknown): void;
}

export async function temporaryFolder(ending: Ending): Promise<string> {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'matting-test-')));
  ending.teardown(() => rm(folder, { recursive: true }));
  return folder;
}
