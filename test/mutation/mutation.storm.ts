/**
 * The suite notices when a guard is gone: every mutation, run in a process of its own, makes the
 * test fail that is named for it.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { describe, it } from 'node:test';
import { skipReason } from '../support/database.ts';
import { startMariadb } from '../support/mariadb-server.ts';
import type { Mutation } from './mutation.ts';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** A mutated test that takes longer hangs: ended here, it has not failed by name. */
const RUN_MS_MAX = 60_000;

/** The server that tests on MySQL share, instead of starting one for each mutation. */
async function databaseUrl(): Promise<string> {
  const given = process.env.MATTING_TEST_DATABASE_URL;
  if (given) return given;
  return `mysql://root@localhost/mysql?socket=${encodeURIComponent(await startMariadb())}`;
}

/** Runs the one test of that name; resolves with what the process says. */
async function runMutated(number: number, { caughtBy }: Mutation): Promise<string> {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  if (needsServer(caughtBy.test)) env.MATTING_TEST_DATABASE_URL = await databaseUrl();
  const pattern = `/^${caughtBy.test.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')}$/`;
  const options = ['--test-reporter=tap', `--test-name-pattern=${pattern}`];
  const mutate = path.join(import.meta.dirname, 'mutate.ts');
  const child = spawn(process.execPath, ['--import', mutate, ...options, caughtBy.file], {
    cwd: ROOT,
    env: { ...env, MATTING_TEST_MUTATION: String(number) },
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

const needsServer = (test: string) => test.includes('on mysql');

describe('a service in which', { concurrency: 2 }, () => {
  for (const [number, mutation] of MUTATIONS.entries()) {
    const { name, caughtBy } = mutation;
    const skip = needsServer(caughtBy.test) && skipReason('mysql');
    it(`${name} does not pass its test`, { skip }, async () => {
      const output = await runMutated(number, mutation);
      assert.match(output, /^mutated file:/m, output);
      assert.match(output, /^# tests 1$/m, `not one test is called that:\n${output}`);
      assert.match(output, /^# fail 1$/m, `nothing noticed:\n${output}`);
      assert.match(output, /failureType: 'testCodeFailure'/, output);
      assert.doesNotMatch(output, /\b(Syntax|Reference|Type)Error\b/, 'it broke everything');
    });
  }
});
