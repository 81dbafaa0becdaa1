/** The commands where only one program's files are, as in the images of the two programs. */
import { spawnSync } from 'node:child_process';
import { cpSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');
/** What deploy/images/assemble.sh lays out for either. */
const SHARED = ['package.json', 'bin', 'client/src', 'program', 'proto'];
const UNAVAILABLE = 69;

const directory = await temporaryFolder({ teardown: test.after.always });
test.before(() => {
  for (const each of SHARED) {
    const filter = (file: string) => !file.includes('/node_modules');
    cpSync(path.join(ROOT, each), path.join(directory, each), { recursive: true, filter });
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(directory, 'node_modules'));
});

function matting(...args: string[]) {
  const main = path.join(directory, 'bin/matting.ts');
  return spawnSync(process.execPath, [main, ...args], { encoding: 'utf8' });
}

for (const [command, line] of [
  ['models list', 'there is no inference node here: run this in the image matting or matting-node'],
  [
    'doctor --node',
    'there is no inference node here: run this in the image matting or matting-node',
  ],
  [
    'keys list',
    'there is no control plane here: run this in the image matting or matting-control-plane',
  ],
  ['cutout photo.jpg', 'there is no control plane here: run this in the image matting'],
  ['up', 'there is no control plane here: run this in the image matting'],
] as const) {
  test(`${command} says in which image it is`, t => {
    const { status, stderr } = matting(...command.split(' '));
    t.deepEqual([status, stderr], [UNAVAILABLE, `matting: ${line}\n`]);
  });
}
