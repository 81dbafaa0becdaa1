/**
 * Runs all tests, or named files and folders; `--kind=storm` takes `*.storm.ts`. Ends with `N
 * passed, N failed`; exits 0 only if something passed and nothing failed. It hangs if no test ends
 * for `--minutes`. `--shared`: named files share a server, too.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { PACKAGES } from '@matting/control-plane/packages.ts';
import { migrationsOf } from '@matting/core/test/internals.ts';
import { skipReason, writeTemplates } from '@matting/test-support/database.ts';
import { findMariadb, startMariadb } from '@matting/test-support/mariadb-server.ts';
import { openMemoryDirectory } from '@matting/test-support/memory-directory.ts';
import { missingStore, OBJECT_STORES } from '@matting/test-support/object-storage/object-store.ts';
import { type AvaResult, concludeWith, runAva } from '@matting/test-support/run-ava.ts';
import { NoTestsError, testFilesOf, testsIn } from '@matting/test-support/test-files.ts';
import { GUARDS } from './mutation/guards.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
/** Storms of `test` take longest, so they start first. */
const ROOMS = ['test', 'control-plane', 'inference-node', 'proto', 'program', 'client', 'bin'];

/** Exits with 2 if a name means no test, before databases are made. */
function requireFiles(targets: readonly string[], kind: string): string[] {
  try {
    return testFilesOf(targets, kind);
  } catch (error) {
    if (!(error instanceof NoTestsError)) throw error;
    console.error(error.message);
    process.exit(2);
  }
}

/** Shared by all files: a folder in memory, a MariaDB server, databases to copy. */
async function prepare(): Promise<void> {
  const inMemory = process.env.TMPDIR === undefined ? openMemoryDirectory() : undefined;
  if (inMemory !== undefined) process.env.TMPDIR = inMemory;
  if (!process.env.MATTING_TEST_DATABASE_URL && findMariadb() !== undefined) {
    const socket = encodeURIComponent(await startMariadb());
    process.env.MATTING_TEST_DATABASE_URL = `mysql://root@localhost/mysql?socket=${socket}`;
  }
  const templates = mkdtempSync(path.join(tmpdir(), 'matting-templates-'));
  process.once('exit', () => rmSync(templates, { recursive: true, force: true }));
  // A package's tests have the core's tables and its own; the program's have all.
  const suites = [[], ...PACKAGES.filter(one => one.migrations).map(one => [one]), PACKAGES];
  for (const packages of suites) await writeTemplates(templates, migrationsOf(packages));
  process.env.MATTING_TEST_TEMPLATES = templates;
}

/** Printed first and last: nobody sees a skip among a thousand lines. */
function warnWithoutServer(): void {
  const missing = [
    ['MySQL or MariaDB', skipReason('mysql')],
    ...OBJECT_STORES.map(kind => [kind, missingStore(kind)]),
  ].flatMap(([name, reason]) => (reason === false ? [] : [`NOT TESTED on ${name}: ${reason}`]));
  if (missing.length === 0) return;
  const line = '*'.repeat(90);
  console.error(`${line}\n${missing.join('\n')}\n${line}`);
}

/** Guards whose test is gone or renamed; the mutants themselves run at night. */
function withLostGuards(result: AvaResult): AvaResult {
  const titles = new Set(result.titles);
  const lost = GUARDS.map(({ tests, title }) => `${tests}: ${title}`)
    .filter(line => !titles.has(line))
    .map(line => `${line}: a guard of test/mutation names this test, which is not there`);
  return {
    ...result,
    failed: result.failed + lost.length,
    failures: [...result.failures, ...lost],
  };
}

const { values, positionals } = parseArgs({
  options: {
    kind: { type: 'string', default: 'test' },
    concurrency: { type: 'string', default: '3' },
    minutes: { type: 'string', default: '5' },
    shared: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const { kind } = values;
const named = requireFiles(positionals, kind);
const files = positionals.length > 0 ? named : ROOMS.flatMap(room => testsIn(room, kind));
warnWithoutServer();
const isFew =
  positionals.length > 0 && positionals.every(target => named.includes(path.resolve(ROOT, target)));
// A few named files may need a disk, or a server of their own.
if (!isFew || values.shared) await prepare();
const concurrency = Number(values.concurrency);
const timeoutMs = Number(values.minutes) * 60_000;
const result = await runAva({ files, concurrency, timeoutMs });
const isWhole = positionals.length === 0 && kind === 'test';
concludeWith([isWhole ? withLostGuards(result) : result], warnWithoutServer);
