/** The suite notices when the ledger or the leases are broken: each bug makes a test fail. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { describe, it } from 'node:test';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/** The tests on SQLite alone: a broken rule is broken on either database. */
async function runTests(files: readonly string[], mutation: number) {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(
    process.execPath,
    [
      ...['--import', path.join(import.meta.dirname, 'mutate.ts')],
      ...['--test', '--test-reporter=tap', '--test-name-pattern=/sqlite|lease/'],
      ...files,
    ],
    {
      cwd: ROOT,
      env: { ...env, MATTING_TEST_MUTATION: String(mutation) },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      output += text;
    });
  }
  const [code] = await once(child, 'close');
  return { code, output };
}

describe('a service in which', () => {
  for (const [number, { name, edits, caughtBy }] of MUTATIONS.entries()) {
    it(`${name} does not pass its tests`, async () => {
      const { code, output } = await runTests(caughtBy, number);
      const changed = new Set(edits.map(({ file }) => file)).size;
      // tap shows what a test process says on stderr as a comment.
      assert.equal(new Set(output.match(/mutated file:\S+/g)).size, changed, output);
      assert.match(output, /^# pass [1-9]/m, `the change broke everything:\n${output}`);
      assert.equal(code, 1, 'nobody noticed');
      const failed = [...output.matchAll(/^\s+not ok \d+ - (.*)$/gm)].map(([, test]) => test);
      assert.ok(failed.length > 0, output);
    });
  }
});
