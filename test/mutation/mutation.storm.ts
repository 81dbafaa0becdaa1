/**
 * The suite notices when a guard is gone: every mutation, run in a process of its own, makes the
 * test fail that is named for it.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import ava from 'ava';
import { Semaphore } from '#program/semaphore.ts';
import { skipReason } from '../support/database.ts';
import { startMariadb } from '../support/mariadb-server.ts';
import type { Mutation } from './mutation.ts';
import { MUTATIONS } from './mutations.ts';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');
const AVA = path.join(ROOT, 'node_modules/ava/entrypoints/cli.js');
/** A mutated test that takes longer hangs: ended here, it has not failed by name. */
const RUN_MS_MAX = 60_000;

/** The server that tests on MySQL share, instead of starting one for each mutation. */
async function databaseUrl(): Promise<string> {
  const given = process.env.MATTING_TEST_DATABASE_URL;
  if (given) return given;
  return `mysql://root@localhost/mysql?socket=${encodeURIComponent(await startMariadb())}`;
}

/** Of `matcher`, which has `*` and a leading `!`. */
const patternOf = (title: string) => title.replace(/[*!\\]/g, '\\$&');

/** Runs the one test of that name; resolves with what the process says. */
async function runMutated(number: number, { caughtBy }: Mutation): Promise<string> {
  const { MATTING_TEST_TEMPLATES: _madeWithoutIt, ...inherited } = process.env;
  const env: NodeJS.ProcessEnv = { ...inherited, MATTING_TEST_MUTATION: String(number) };
  // Hooks of tests that do not match run, too: they need not make databases on a server.
  env.MATTING_TEST_DIALECT = needsServer(caughtBy.test) ? 'mysql' : 'sqlite';
  if (needsServer(caughtBy.test)) env.MATTING_TEST_DATABASE_URL = await databaseUrl();
  const mutate = `--node-arguments=--import=${path.join(import.meta.dirname, 'mutate.ts')}`;
  const match = `--match=${patternOf(caughtBy.test)}`;
  const child = spawn(process.execPath, [AVA, '--tap', mutate, match, caughtBy.file], {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: RUN_MS_MAX,
    killSignal: 'SIGKILL',
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      output += text;
    });
  }
  await once(child, 'close');
  return output;
}

const needsServer = (title: string) => title.includes('on mysql');
const processors = new Semaphore({
  max: 2,
  waitingMax: Number.POSITIVE_INFINITY,
  refusal: () => new Error('all may wait'),
});

for (const [number, mutation] of MUTATIONS.entries()) {
  const { name, caughtBy } = mutation;
  const skip = needsServer(caughtBy.test) && skipReason('mysql') !== false;
  test.skipIf(skip)(`a service in which ${name} does not pass its test`, async t => {
    const output = await processors.run({}, () => runMutated(number, mutation));
    t.regex(output, /^mutated file:/m, output);
    t.regex(output, /^(not )?ok 1 - /m, `no test is called that:\n${output}`);
    const failed = output.split('\n').find(line => line.startsWith('not ok 1 - ')) ?? '';
    t.true(failed.includes(caughtBy.test), `nothing noticed:\n${output}`);
    t.notRegex(output, /\b(Syntax|Reference|Type)Error\b/, 'it broke everything');
  });
}
