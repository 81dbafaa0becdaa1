import { spawnSync } from 'node:child_process';
import { cpSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { linkPackages } from '../support/linked-packages.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { ROOT } from '../tidy/source-files.ts';

/** As deploy/images/assemble.sh does. */
const SHARED = ['package.json', 'bin', 'client/src', 'program', 'proto'];
const UNAVAILABLE = 69;

test('commands say in which image they are', async t => {
  const directory = await temporaryFolder(t);
  for (const each of SHARED) {
    const filter = (file: string) => !file.includes('/node_modules');
    cpSync(path.join(ROOT, each), path.join(directory, each), { recursive: true, filter });
  }
  linkPackages(directory);
  const main = path.join(directory, 'bin/matting.ts');
  for (const [command, line] of [
    [
      'doctor --node',
      'this installation has no inference node; run this in the image matting or matting-node',
    ],
    [
      'keys list',
      'this installation has no control plane; run this in the image matting or matting-control-plane',
    ],
    ['cutout photo.jpg', 'this installation has no control plane; run this in the image matting'],
    ['up', 'this installation has no control plane; run this in the image matting'],
  ] as const) {
    const args = [main, ...command.split(' ')];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    t.deepEqual([status, stderr], [UNAVAILABLE, `matting: ${line}\n`]);
  }
});
