/**
 * Runs a test file with several mutants in turn, then without any. One process that reloads only
 * what reaches the bug takes a fraction of the time of one process each. The runner is ava's own;
 * judge.ts is the parent.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import type { Change } from './change.ts';
import { loadAnew } from './mutate.ts';

/** Changes of a file, tried in turn; the test must fail for one. */
export interface Guarded {
  readonly file: string;
  readonly title: string;
  readonly changes: readonly Change[];
}

export interface Order {
  readonly tests: string;
  readonly guarded: readonly Guarded[];
  readonly scratch: string;
}

export interface Verdict {
  /** The test failed by name, and passes without the bug. */
  readonly isCaught: boolean;
  readonly said: string;
}

/** The last outcome, without `number`, is of the tests without any change. */
export interface Outcome extends Verdict {
  readonly number?: number;
}

const ROOT = path.resolve(import.meta.dirname, '../..');
const { default: Runner } = await import(path.join(ROOT, 'node_modules/ava/lib/runner.js'));
/** A crash, which any test would notice. */
const CRASH = /\b(Syntax|Reference|Type)Error\b/;
/** Hooks may wait 30 s for leftovers of a failed test; a server keeps databases. */
const CLOSING_MS = process.env.MATTING_TEST_DIALECT === 'mysql' ? 30_000 : 1_000;
/** Restored before each run, because tests change it. */
const ENVIRONMENT = { ...process.env };

const urlOf = (file: string) => pathToFileURL(path.join(ROOT, file)).href;
/** For ava's matcher, which interprets `*` and a leading `!`. */
const patternOf = (title: string) => title.replace(/[*!\\]/g, '\\$&');

let runs = 0;
/** Resolves with the errors of tests that ended, by title. */
async function runTests(tests: string, titles: readonly string[], files: string[], bug = '') {
  const errors = new Map<string, string | undefined>();
  const match = titles.map(patternOf);
  const runner = new Runner({ file: path.join(ROOT, tests), projectDir: ROOT, match });
  const ended = Promise.withResolvers<void>();
  const judged = Promise.withResolvers<void>();
  runner.on('stateChange', ({ data }: { data: { type: string; title: string; err: unknown } }) => {
    if (data.type === 'test-passed') errors.set(data.title, undefined);
    if (data.type === 'test-failed') errors.set(data.title, inspect(data.err, { depth: 5 }));
    if (titles.every(title => errors.has(title))) judged.resolve();
  });
  runner.on('finish', ended.resolve);
  runner.on('error', ({ data }: { data: unknown }) => ended.reject(data));
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, ENVIRONMENT, { MATTING_TEST_MUTANT: bug });
  runs += 1;
  loadAnew({ run: runs, test: runner.chain }, [tests, ...files].map(urlOf));
  await import(`${urlOf(tests)}?run=${runs}`);
  await Promise.race([ended.promise, judged.promise]);
  await Promise.race([ended.promise, delay(CLOSING_MS)]);
  return errors;
}

async function runChange({ tests, scratch }: Order, { file, title }: Guarded, change: Change) {
  const loadedBy = path.join(scratch, `loaded-${runs}`);
  try {
    const bug = JSON.stringify({ ...change, url: urlOf(file), loadedBy });
    const errors = await runTests(tests, [title], [file], bug);
    const said = errors.get(title);
    if (!existsSync(loadedBy)) return { isCaught: false, said: `the test does not load ${file}` };
    if (!errors.has(title)) return { isCaught: false, said: 'no test of that title ended' };
    if (said === undefined) return { isCaught: false, said: 'the test passed' };
    return { isCaught: !CRASH.test(said), said };
  } catch (error) {
    return { isCaught: false, said: inspect(error) };
  }
}

async function run(order: Order, send: (outcome: Outcome) => void): Promise<void> {
  const { tests, guarded } = order;
  // A title that no test has: only loads modules, to learn their importers.
  await runTests(tests, ['-'], []);
  for (const [number, one] of guarded.entries()) {
    for (const change of one.changes) {
      const outcome = await runChange(order, one, change);
      send({ number, ...outcome });
      if (outcome.isCaught) break;
    }
  }
  const titles = [...new Set(guarded.map(({ title }) => title))];
  const files = guarded.map(({ file }) => file);
  const errors = await runTests(tests, titles, files);
  const wrong = titles.filter(title => !errors.has(title) || errors.get(title) !== undefined);
  const said = wrong.map(title => `${title}: ${errors.get(title)}`).join('\n');
  send({ isCaught: wrong.length === 0, said });
}

// Leftover work of an earlier run may fail now.
process.on('uncaughtException', () => undefined);
process.on('unhandledRejection', () => undefined);
process.once('disconnect', () => process.exit());
process.once('message', (order: Order) => {
  process.channel!.unref();
  const send = (outcome: Outcome) => process.send!(outcome);
  run(order, send)
    .catch(error => send({ isCaught: false, said: inspect(error) }))
    .finally(() => process.exit());
});
