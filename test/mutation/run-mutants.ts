/**
 * Runs a file of tests beside each of several mutants in turn, and then without any. One process
 * that starts once and loads anew only what can reach the bug takes a fraction of the time of a
 * process for each. The runner of the tests is ava's own; the parent (judge.ts) says what to run.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import type { Change } from './change.ts';
import { loadAnew } from './mutate.ts';

/** A test, and changes of a file of which it must fail for one; they are tried in turn. */
export interface Guarded {
  /** Paths are from the root of the project. */
  readonly file: string;
  readonly title: string;
  readonly changes: readonly Change[];
}

export interface Order {
  readonly tests: string;
  readonly guarded: readonly Guarded[];
  /** A folder for files of this process. */
  readonly scratch: string;
}

export interface Verdict {
  /** The test fails as it should; the run without a bug has passed. */
  readonly isCaught: boolean;
  readonly said: string;
}

/** Outcome of a change; the last one is of the tests without any change, and has no `number`. */
export interface Outcome extends Verdict {
  readonly number?: number;
}

const ROOT = path.resolve(import.meta.dirname, '../..');
const { default: Runner } = await import(path.join(ROOT, 'node_modules/ava/lib/runner.js'));
/** A failure by one of these is a crash, which any test would notice. */
const CRASH = /\b(Syntax|Reference|Type)Error\b/;
/** Hooks may wait half a minute for what a failed test left open; a server keeps its databases. */
const CLOSING_MS = process.env.MATTING_TEST_DIALECT === 'mysql' ? 30_000 : 1_000;
/** A test may leave other variables. */
const ENVIRONMENT = { ...process.env };

const urlOf = (file: string) => pathToFileURL(path.join(ROOT, file)).href;
/** Quotes for `matcher`, which has `*` and a leading `!`. */
const patternOf = (title: string) => title.replace(/[*!\\]/g, '\\$&');

let runs = 0;
/** Runs the tests of these titles, and resolves with the errors of those that ended. */
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

/** Resolves with what the test says of the change, and whether it fails for it as it should. */
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
  // Loads what the tests import, to know who imports what; no test has that title.
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

// Work that an earlier run left open may fail now.
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
