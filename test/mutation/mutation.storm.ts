/** Every mutation, in a process of its own, makes the test fail that is named for it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'ava';
import { Semaphore } from '../../program/semaphore.ts';
import { skipReason } from '../support/database.ts';
import { startMariadb } from '../support/mariadb-server.ts';
import { missingStore, OBJECT_STORE } from '../support/object-storage/object-store.ts';
import type { Mutation } from './mutation.ts';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const AVA = path.join(ROOT, 'node_modules/ava/entrypoints/cli.js');
/** A mutated test that takes longer hangs: ended here, it has not failed by name. */
const RUN_MS_MAX = 60_000;
/** Hooks may wait half a minute for what a failed test left open: they are given so long. */
const CLOSING_MS = 1_000;
const RESULT = /^(not )?ok 1 - /m;
const FAILED = /^not ok 1 - /m;
/** A mutation that breaks a race alone may win it once. */
const RUNS_MAX = 3;

/** The server that tests on MySQL share, instead of starting one for each mutation. */
let server: Promise<string> | undefined;
async function databaseUrl(): Promise<string> {
  const given = process.env.MATTING_TEST_DATABASE_URL;
  if (given) return given;
  server ??= startMariadb();
  return `mysql://root@localhost/mysql?socket=${encodeURIComponent(await server)}`;
}

/** Quotes for `matcher`, which has `*` and a leading `!`. */
const patternOf = (title: string) => title.replace(/[*!\\]/g, '\\$&');

/** Mutated tests write there: they are killed before they could clear away. */
const scratch = mkdtempSync(path.join(tmpdir(), 'mutated-'));
test.after.always(() => rmSync(scratch, { recursive: true }));

/** Runs the one test of that name; resolves with what the process says of it. */
async function runMutated(number: number, { caughtBy }: Mutation): Promise<string> {
  const { MATTING_TEST_TEMPLATES: _madeWithoutIt, ...inherited } = process.env;
  const env: NodeJS.ProcessEnv = { ...inherited, MATTING_TEST_MUTATION: String(number) };
  env.TMPDIR = scratch;
  // Hooks of tests that do not match run, too: they need not make databases on a server.
  env.MATTING_TEST_DIALECT = needsServer(caughtBy.test) ? 'mysql' : 'sqlite';
  if (needsServer(caughtBy.test)) env.MATTING_TEST_DATABASE_URL = await databaseUrl();
  const mutate = `--node-arguments=--import=${path.join(import.meta.dirname, 'mutate.ts')}`;
  const match = `--match=${patternOf(caughtBy.test)}`;
  const child = spawn(process.execPath, [AVA, '--tap', mutate, match, caughtBy.file], {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    // A group of its own, so that all of it can be ended.
    detached: true,
  });
  const end = () => process.kill(-child.pid!, 'SIGKILL');
  let ending = setTimeout(end, RUN_MS_MAX);
  let output = '';
  let isClosing = false;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      output += text;
      // A database on the server outlives a process that is killed.
      if (isClosing || needsServer(caughtBy.test) || !RESULT.test(output)) return;
      isClosing = true;
      clearTimeout(ending);
      ending = setTimeout(end, CLOSING_MS);
    });
  }
  await once(child, 'close');
  clearTimeout(ending);
  return output;
}

const needsServer = (title: string) => title.includes('on mysql');
const needsStore = (file: string) => file.endsWith('/direct.test.ts');
const processors = new Semaphore({
  max: 2,
  waitingMax: Number.POSITIVE_INFINITY,
  refusal: () => new Error('all may wait'),
});

for (const [number, mutation] of MUTATIONS.entries()) {
  const { name, caughtBy } = mutation;
  const skip =
    (needsServer(caughtBy.test) && skipReason('mysql') !== false) ||
    (needsStore(caughtBy.file) && missingStore(OBJECT_STORE) !== false);
  test.skipIf(skip)(`a service in which ${name} does not pass its test`, async t => {
    let output = '';
    for (let runs = 1; runs <= RUNS_MAX && !FAILED.test(output); runs += 1) {
      if (runs > 1) t.log(`unnoticed by run ${runs - 1} of ${caughtBy.test}`);
      output = await processors.run({}, () => runMutated(number, mutation));
      t.regex(output, /^mutated file:/m, output);
      t.regex(output, RESULT, `no test is called that:\n${output}`);
    }
    const failed = output.split('\n').find(line => FAILED.test(line)) ?? '';
    t.true(failed.includes(caughtBy.test), `nothing noticed:\n${output}`);
    t.notRegex(output, /\b(Syntax|Reference|Type)Error\b/, 'it broke everything');
  });
}
