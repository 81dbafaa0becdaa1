/** The image that has both programs, without a network: a file becomes a cut-out. */
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'ava';
import { ROOT } from '../support/running-service.ts';
import { isNotTested } from '../support/skip.ts';
import { requireTeapot } from '../support/teapot.ts';
import { ALL_IN_ONE, LOCKED, skipWithoutPodman, tried } from './podman.ts';

const START_MS_MAX = 280_000;
const DEMO = path.join(ROOT, 'docs/images/demo.jpg');

test.skipIf(isNotTested(skipWithoutPodman()))('cuts a file out without a network', async t => {
  t.timeout(START_MS_MAX);
  const folder = mkdtempSync(path.join(tmpdir(), 'matting-pictures-'));
  try {
    chmodSync(folder, 0o777);
    copyFileSync(DEMO, path.join(folder, 'teapot.jpg'));
    const volume = ['--volume', `${folder}:/pictures`];
    const cut = ['cutout', 'teapot.jpg', '--out', 'teapot.png'];
    const { code, output } = tried(['run', '--rm', ...LOCKED, ...volume, ALL_IN_ONE, ...cut]);
    t.is(code, 0, output);
    await requireTeapot(readFileSync(path.join(folder, 'teapot.png')));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
