/**
 * Runs the suites on engines of several servers (targets.ts), and then the tests that hurt those
 * servers (`*.databases.ts`). Arguments: names of targets, or of such tests; none means all.
 * Says first and last what is not installed. Exits 0 only when something passed and nothing failed,
 * and nothing is missing of what `MATTING_TEST_REQUIRE_DATABASES=galera,mysql` names.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { suiteFiles } from './suites.ts';
import { type Named, OWN_TESTS, TARGETS, type Target } from './targets.ts';

const RUNNER = path.resolve(import.meta.dirname, '../support/run-tests.ts');
/** A target that takes longer hangs: the slowest takes some three minutes on two cores. */
const TARGET_MS_MAX = 15 * 60_000;

const names = process.argv.slice(2);
const known = [...TARGETS, ...OWN_TESTS].map(({ name }) => name);
const unknown = names.filter(name => !known.includes(name));
if (unknown.length > 0) {
  console.error(`nothing is called ${unknown.join(', ')}; there are: ${known.join(', ')}`);
  process.exit(64);
}
const isChosen = ({ name }: Named) => names.length === 0 || names.includes(name);

let child: ChildProcess | undefined;
// The exit handlers of servers run then.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => process.exit(1));
}
process.once('exit', () => child?.kill('SIGKILL'));

const required = (process.env.MATTING_TEST_REQUIRE_DATABASES ?? '').split(',');
const missing = new Map<Named, string>();
for (const named of [...TARGETS, ...OWN_TESTS].filter(isChosen)) {
  const reason = named.skipReason();
  if (reason !== false) missing.set(named, reason);
}
const isRun = (named: Named) => isChosen(named) && !missing.has(named);
warnOfMissing();

const scratch = mkdtempSync(path.join(tmpdir(), 'matting-databases-'));
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }));
const tally = process.env.MATTING_TEST_TALLY || path.join(scratch, 'tally');

let failed = [...missing.keys()].some(({ engine }) => required.includes(engine));
for (const target of TARGETS.filter(isRun)) failed = !(await runTarget(target)) || failed;
const files = OWN_TESTS.filter(isRun).map(({ name }) =>
  path.join(import.meta.dirname, `${name}.databases.ts`),
);
if (files.length > 0) failed = !(await runTests(files, {})) || failed;

warnOfMissing();
console.log(lastLine());
// What is left open is of servers that have been killed.
process.exit(failed ? 1 : 0);

/** Said before and after everything else: a skip among a thousand lines is not seen. */
function warnOfMissing(): void {
  if (missing.size === 0) return;
  const lines = [...missing].map(([{ about }, reason]) => `NOT TESTED on ${about}: ${reason}`);
  const rule = '*'.repeat(100);
  console.error([rule, ...lines, rule].join('\n'));
}

function lastLine(): string {
  try {
    const { passed, failed } = JSON.parse(readFileSync(tally, 'utf8'));
    return `${passed} passed, ${failed} failed`;
  } catch {
    return '0 passed, 0 failed';
  }
}

async function runTarget({ name, about, open }: Target): Promise<boolean> {
  console.log(`\n=== ${name}: ${about}`);
  const startedAtMs = performance.now();
  const opened = await open();
  try {
    const env = { MATTING_TEST_DATABASE_URL: opened.url, MATTING_TEST_ONLY_SERVER: '1' };
    return await runTests(suiteFiles(), env);
  } finally {
    await opened.close();
    console.log(`=== ${name}: ${Math.round((performance.now() - startedAtMs) / 1000)} s`);
  }
}

/** False: something failed. */
async function runTests(files: readonly string[], env: NodeJS.ProcessEnv): Promise<boolean> {
  child = spawn(process.execPath, [RUNNER, ...files], {
    stdio: 'inherit',
    env: { ...process.env, ...env, MATTING_TEST_TALLY: tally },
  });
  const hung = setTimeout(() => child?.kill('SIGKILL'), TARGET_MS_MAX);
  const [code] = await once(child, 'exit');
  clearTimeout(hung);
  return code === 0;
}
