import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { SuiteContext, TestContext } from 'node:test';

/** Cleans up when a test ends, or a file of them: `after` itself. */
type Ending = { after(clean: () => unknown): unknown };

/** A folder of the test's own, which goes with all that is in it. */
export async function temporaryFolder(ending: TestContext | SuiteContext | Ending) {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'matting-test-')));
  // Before each test a hook is given that test's own context.
  (ending as Ending).after(() => rm(folder, { recursive: true }));
  return folder;
}
