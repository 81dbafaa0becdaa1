/** Machines set up by docs/install.md as printed, with this machine's addresses. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../running-service.ts';
import type { Env } from './program.ts';

const execute = promisify(execFile);
const KEY = /\bmk_\w+/;
const NODE_COMMAND = '/bin/sh bin/node24 ';

/** A section's indented blocks in order, without indentation. */
export function blocksOf(page: string, heading: string): string[] {
  const text = readFileSync(path.join(ROOT, page), 'utf8');
  const [, section = ''] = text.split(new RegExp(`\n##+ ${heading}\n`));
  const [own = ''] = section.split(/\n##+ /);
  return [...own.matchAll(/(?:^ {4}.*\n)+/gm)].map(([block]) =>
    block.replace(/^ {4}/gm, '').trim(),
  );
}

/** From "Run it on several machines". Without systemd, Node's option loads the settings. */
export function documentedMachines() {
  const blocks = blocksOf('docs/install.md', 'Run it on several machines');
  assert.equal(blocks.length, 4, 'a block of the section that this does not know');
  const [controlPlane = '', node = '', migrator = '', once = ''] = blocks;
  const commandOf = (file: string, command: string) =>
    `sh bin/node24 --env-file=${file} ${command.replace(/^matting /, 'bin/matting.ts ')}`;
  assert.deepEqual(namesOf(migrator), ['MATTING_DATABASE_URL']);
  return {
    controlPlane: { file: 'control-plane.env', names: namesOf(controlPlane) },
    node: { file: 'node.env', names: namesOf(node) },
    once: once.split('\n').map(line => commandOf('control-plane.env', line)),
    controlPlaneStart: startOf('control-plane'),
    nodeFetch: commandOf('node.env', argumentsOf('node', 'ExecStartPre').join(' ')),
    nodeStart: startOf('node'),
  };

  function startOf(program: 'control-plane' | 'node'): readonly string[] {
    return [`--env-file=${program}.env`, ...argumentsOf(program, 'ExecStart')];
  }
}

function namesOf(block: string): readonly string[] {
  return block.split('\n').map(line => line.slice(0, line.indexOf('=')));
}

/** From the unit of the program. */
function argumentsOf(program: string, name: string): readonly string[] {
  const unit = readFileSync(path.join(ROOT, `deploy/systemd/matting-${program}.service`), 'utf8');
  const [, command = ''] = new RegExp(`^${name}=(.*)$`, 'm').exec(unit) ?? [];
  assert.ok(command.startsWith(NODE_COMMAND), command);
  return command.slice(NODE_COMMAND.length).split(' ');
}

/** A directory with the project and a completed environment file. */
export function createMachine(
  root: string,
  { file, names }: { readonly file: string; readonly names: readonly string[] },
  values: Env,
): void {
  assert.deepEqual(names.toSorted(), Object.keys(values).toSorted(), 'the page names others');
  mkdirSync(root);
  for (const entry of readdirSync(ROOT)) {
    if (entry !== 'data') symlinkSync(path.join(ROOT, entry), path.join(root, entry));
  }
  const lines = Object.entries(values).map(([key, value]) => `${key}=${value}\n`);
  writeFileSync(path.join(root, file), lines.join(''));
}

export async function runOn(root: string, command: string, more: Env): Promise<string> {
  const env = { PATH: process.env.PATH ?? '', ...more };
  return (await execute('sh', ['-c', command], { cwd: root, env })).stdout;
}

/** Returns the key that the last command prints. */
export async function setUpOnce(
  root: string,
  once: readonly string[],
  { models, migratorUrl }: { readonly models: Env; readonly migratorUrl: string },
) {
  let printed = '';
  for (const command of once) {
    const env = / migrate$/.test(command) ? { MATTING_DATABASE_URL: migratorUrl } : {};
    printed = await runOn(root, command, { ...models, ...env });
  }
  const [key] = KEY.exec(printed) ?? [];
  assert.ok(key !== undefined, printed);
  return key;
}
