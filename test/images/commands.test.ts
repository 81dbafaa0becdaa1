/** The commands where only one program's files are, as in the images of the two programs. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { temporaryFolder } from '../support/temporary-folder.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** What deploy/images/assemble.sh lays out for either. */
const SHARED = ['package.json', 'bin', 'client/src', 'program', 'proto'];
const UNAVAILABLE = 69;

const directory = await temporaryFolder({ after });
before(() => {
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
  test(`${command} says in which image it is`, () => {
    const { status, stderr } = matting(...command.split(' '));
    assert.deepEqual([status, stderr], [UNAVAILABLE, `matting: ${line}\n`]);
  });
}
