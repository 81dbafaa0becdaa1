import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Cleans up when a test ends; `{ teardown: test.after.always }`: when the tests of a file do. */
export interface Ending {
  teardown(clean: () => unknown): void;
}

/** A folder of the test's own, which goes with all that is in it. */
export async function temporaryFolder(ending: Ending): Promise<string> {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'matting-test-')));
  ending.teardown(() => rm(folder, { recursive: true }));
  return folder;
}
