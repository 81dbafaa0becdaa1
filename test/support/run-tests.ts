/**
 * Runs every test of the project with Node's own runner and ends with one line for machines:
 * `N passed, N failed`. Exits 0 only when something passed and nothing failed. Arguments: files or
 * folders to run instead of all. `--storms` takes `*.storm.ts` instead of `*.test.ts`: what kills
 * processes, or takes too long for every run of the tests.
 *
 * `MATTING_TEST_TALLY=file` adds what earlier runs wrote there, and writes the sum: the last line of
 * the last of several runs then speaks of all, and the last fails where an earlier one did.
 */
import { existsSync, globSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { parseArgs } from 'node:util';
import { skipReason } from './database.ts';
import { killStuckFiles } from './kill-stuck.ts';
import { findMariadb, startMariadb } from './mariadb-server.ts';
import { openMemoryDirectory } from './memory-directory.ts';
import { missingStore, OBJECT_STORES } from './object-storage/object-store.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const ROOMS = ['proto', 'program', 'client', 'control-plane', 'inference-node', 'bin', 'test'];
/** A file or test that takes longer hangs: the longest starts the whole service and cuts photos. */
const TEST_TIMEOUT_MS = 300_000;
/** A file that takes longer is killed: what the limit above could end has ended before. */
const FILE_TIMEOUT_MS = 600_000;
/** Files at once. End-to-end files start whole services: more would only make them wait. */
const CONCURRENCY = 3;

function filesOf(target: string): string[] {
  const absolute = path.resolve(ROOT, target);
  if (statSync(absolute).isFile()) return [absolute];
  return globSync(`**/*.${storms ? 'storm' : 'test'}.ts`, {
    cwd: absolute,
    exclude: name => name === 'node_modules',
  })
    .map(name => path.join(absolute, name))
    .sort();
}

/**
 * What each file would else do for itself: a place for what it writes, in memory where there is
 * room, and a MariaDB server. What the environment names is taken instead.
 */
async function prepare(): Promise<void> {
  const inMemory = process.env.TMPDIR === undefined ? openMemoryDirectory() : undefined;
  if (inMemory !== undefined) process.env.TMPDIR = inMemory;
  if (process.env.MATTING_TEST_DATABASE_URL || findMariadb() === undefined) return;
  const socket = encodeURIComponent(await startMariadb());
  process.env.MATTING_TEST_DATABASE_URL = `mysql://root@localhost/mysql?socket=${socket}`;
}

/** Said before and after everything else: a skip among a thousand lines is not seen. */
function warnWithoutServer(): void {
  const missing = [
    ['MySQL or MariaDB', skipReason('mysql')],
    ...OBJECT_STORES.map(kind => [kind, missingStore(kind)]),
  ].flatMap(([name, reason]) => (reason === false ? [] : [`NOT TESTED on ${name}: ${reason}`]));
  if (missing.length === 0) return;
  const line = '*'.repeat(90);
  console.error(`${line}\n${missing.join('\n')}\n${line}`);
}

interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** With the runs before it, where there is a file for them. */
function addedUp(run: Tally): Tally {
  const file = process.env.MATTING_TEST_TALLY;
  if (!file) return run;
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const before: Tally = text === '' ? { passed: 0, failed: 0, skipped: 0 } : JSON.parse(text);
  const sum = {
    passed: before.passed + run.passed,
    failed: before.failed + run.failed,
    skipped: before.skipped + run.skipped,
  };
  writeFileSync(file, JSON.stringify(sum));
  return sum;
}

const { values, positionals: targets } = parseArgs({
  options: { storms: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const { storms } = values;
warnWithoutServer();
// A few files by name may need a disk, or a server of their own.
if (targets.length === 0) await prepare();
const files = (targets.length > 0 ? targets : ROOMS).flatMap(filesOf);
const unwatch = killStuckFiles(files, FILE_TIMEOUT_MS);
const stream = run({ files, concurrency: CONCURRENCY, timeout: TEST_TIMEOUT_MS });

let summary = { passed: 0, failed: 0, cancelled: 0, skipped: 0 };
stream.on('test:summary', data => {
  // One summary a file, then one for all, which names no file.
  if (data.file === undefined) summary = { ...summary, ...data.counts };
});
stream.compose(new spec()).pipe(process.stdout);
stream.once('end', () => {
  unwatch();
  const ended = summary.failed + summary.cancelled;
  const { passed, failed, skipped } = addedUp({ ...summary, failed: ended });
  process.exitCode = failed === 0 && summary.passed > 0 ? 0 : 1;
  process.once('exit', () => {
    warnWithoutServer();
    if (skipped > 0) console.log(`${skipped} skipped`);
    console.log(`${passed} passed, ${failed} failed`);
  });
});
