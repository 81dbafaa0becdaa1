/** Half-written files of other nodes on a shared cache, seen by a node whose clock is wrong. */
import { execFile } from 'node:child_process';
import { readdir, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';

const test = ava.serial;

const run = promisify(execFile);
const MODULE = new URL('../../src/models/cache-files.ts', import.meta.url).href;
const PRELOAD = path.resolve(import.meta.dirname, '../../../test/support/shifted-clock.ts');
const HOUR_MS = 3_600_000;

for (const shiftMs of [HOUR_MS, -HOUR_MS]) {
  test(`a clock off by ${shiftMs / HOUR_MS} h keeps files being written and removes abandoned ones`, async t => {
    const directory = await temporaryFolder(t);
    const [written, dead] = ['.a.onnx.1.aa.tmp', '.a.onnx.2.bb.tmp'];
    for (const name of [written, dead]) await writeFile(path.join(directory, name), 'half');
    const longAgoS = Date.now() / 1000 - 1800;
    await utimes(path.join(directory, dead), longAgoS, longAgoS);
    const clean = `const { removeStaleTemporaries } = await import(${JSON.stringify(MODULE)});
      await removeStaleTemporaries(${JSON.stringify(directory)});`;
    await run(process.execPath, ['--import', PRELOAD, '--eval', `(async () => {${clean}})()`], {
      env: { PATH: process.env.PATH, MATTING_TEST_CLOCK_SHIFT_MS: String(shiftMs) },
    });
    t.deepEqual(await readdir(directory), [written]);
  });
}
