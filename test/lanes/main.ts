/**
 * Runs a lane: `change` (as `.ci/run`) or `nightly`; prints what does not run, and why. Ends with
 * `N passed, N failed`; exits 0 only if nothing failed.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sayTally, type Tally } from '../support/run-ava.ts';
import { git } from './changes.ts';
import { LAST_GREEN, nameOf, type Planned, planOfChange, writtenGreen } from './plan.ts';
import { SUITES } from './suites.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** Then it is ended, and the next commands run. */
const COMMAND_MS_MAX = 30 * 60_000;
const KILL_MS = 30_000;

const scratch = mkdtempSync(path.join(tmpdir(), 'matting-lane-'));
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }));
const tallyFile = path.join(scratch, 'tally');

/** Suites of one command that run together. */
interface Group {
  readonly command: string;
  readonly only: string;
}

function groupsOf(planned: readonly Planned[]): Group[] {
  const byCommand = Map.groupBy(planned, ({ suite: { command } }) => command);
  return [...byCommand].map(([command, members]) => ({
    command,
    only: members.flatMap(({ only }) => only ?? []).join(' '),
  }));
}

/** @returns the command's tallies; a failure without a count is one failure */
async function runGroup({ command, only }: Group): Promise<Tally[]> {
  const name = only === '' ? command : `${command} ONLY='${only}'`;
  console.log(`\n=== ${name}`);
  const startedAtMs = performance.now();
  writeFileSync(tallyFile, '');
  // They would apply `make nightly`'s arguments to nested makes.
  const { MAKEFLAGS: _flags, MAKEOVERRIDES: _overrides, ...own } = process.env;
  const [program = '', ...args] = command.split(' ');
  const child = spawn(program, only === '' ? args : [...args, `ONLY=${only}`], {
    cwd: ROOT,
    env: { ...own, MATTING_TEST_TALLY: tallyFile },
    stdio: ['ignore', 'inherit', 'inherit'],
    // A process group, so that all of it can be ended.
    detached: true,
  });
  const end = () => process.kill(-child.pid!, 'SIGTERM');
  process.once('exit', end);
  const timers = [
    setTimeout(end, COMMAND_MS_MAX),
    setTimeout(() => process.kill(-child.pid!, 'SIGKILL'), COMMAND_MS_MAX + KILL_MS),
  ];
  const [code] = await once(child, 'exit');
  for (const timer of timers) clearTimeout(timer);
  process.off('exit', end);
  console.log(`=== ${name}: ${Math.round((performance.now() - startedAtMs) / 1000)} s`);
  const lines = readFileSync(tallyFile, 'utf8')
    .split('\n')
    .filter(line => line !== '');
  const tallies = lines.map((line): Tally => JSON.parse(line));
  if (code === 0 || tallies.some(({ failed }) => failed > 0)) return tallies;
  const failures = [`failed: ${name} ended with ${code ?? 'a signal'}`];
  return [...tallies, { passed: 0, failed: 1, skipped: 0, failures, tookMs: [] }];
}

/** Only without local changes. */
function writeGreen(notTested: readonly string[]): void {
  if (git(ROOT, 'status', '--porcelain') !== '') {
    console.error(`${LAST_GREEN} was not written: this tree has changes. Commit them and repeat.`);
    return;
  }
  const commit = git(ROOT, 'rev-parse', 'HEAD').trim();
  writeFileSync(path.join(ROOT, LAST_GREEN), writtenGreen({ commit, notTested }));
  console.log(`Commit ${LAST_GREEN}: it names ${commit}.`);
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => process.exit(1));
}
const [lane] = process.argv.slice(2);
if (lane !== 'change' && lane !== 'nightly') {
  console.error('name a lane: change or nightly');
  process.exit(64);
}
// `make test` uses only SQLite for most suites.
process.env.MATTING_TEST_ALL_DATABASES = '1';
// A failed file runs once more, alone. If it passes then, it is flaky: a defect to look for.
process.env.MATTING_TEST_RETRY = '1';
const nightly = SUITES.filter(suite => suite.lane === 'nightly');
const planned: Planned[] =
  lane === 'change'
    ? planOfChange(ROOT, SUITES)
    : nightly.map(suite => ({ suite, isRun: true, reason: 'it is nightly', only: suite.only }));
const lines: string[] = [];
const run: Planned[] = [];
const notTested: string[] = [];
for (const each of planned) {
  const name = nameOf(each.suite);
  const missing = each.isRun && (each.suite.skipReason?.() ?? false);
  if (!each.isRun) lines.push(`not run: ${name}: ${each.reason}`);
  else if (missing === false) {
    run.push(each);
    if (each.suite.lane === 'nightly') lines.push(`runs: ${name}: ${each.reason}`);
  } else {
    notTested.push(name);
    lines.push(`NOT TESTED: ${name}: ${missing}`);
  }
}
console.log(lines.join('\n'));
const tallies: Tally[] = [];
for (const group of groupsOf(run)) tallies.push(...(await runGroup(group)));
if (lane === 'nightly' && tallies.every(({ failed }) => failed === 0)) writeGreen(notTested);
console.log(lines.join('\n'));
sayTally(tallies);
