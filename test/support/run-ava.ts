import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');
const AVA = path.join(ROOT, 'node_modules/ava/entrypoints/cli.js');
const CONFIG = path.join(import.meta.dirname, 'suite.config.js');

export interface AvaRun {
  readonly files: readonly string[];
  readonly concurrency: number;
  /** Longest time between two ends of tests; then the running files are named and killed. */
  readonly timeoutMs: number;
  readonly match?: string;
  readonly isQuiet?: boolean;
  readonly env?: NodeJS.ProcessEnv;
}

export interface AvaResult {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** A line each: file, title, start of the reason. */
  readonly failures: readonly string[];
  /** `file: title`, skipped tests included. */
  readonly titles: readonly string[];
  /** Failures of files that passed when retried. */
  readonly flaky: readonly string[];
  readonly output: string;
  /** Each file's process time by path from the root, slowest first. */
  readonly tookMs: readonly (readonly [file: string, ms: number])[];
}

interface Results {
  readonly passedTests: number;
  readonly skippedTests: number;
  readonly failedTests: number;
  readonly failedHooks: number;
  readonly failedWorkers: number;
  readonly internalErrors: number;
  readonly remainingTests: number;
  readonly uncaughtExceptions: number;
  readonly unhandledRejections: number;
  readonly tookMs: Readonly<Record<string, number>>;
  readonly failures: readonly string[];
  readonly titles: readonly string[];
  readonly byFile: Readonly<Record<string, { passedTests: number; skippedTests: number }>>;
  /** Null: a failure outside of files. */
  readonly failedFiles: readonly (string | null)[];
}

type Counted = Omit<AvaResult, 'output' | 'flaky'>;

/**
 * No process that a file started outlives the call. With `MATTING_TEST_RETRY=1` failed files run
 * once more, alone, because the machine may have been busy.
 */
export async function runAva(run: AvaRun): Promise<AvaResult> {
  const { output, results, succeeded } = await runOnce(run);
  const first = { ...resultOf(results, succeeded), output, flaky: [] };
  const failed = results.failedFiles.filter(file => file !== null);
  const isRetried = process.env.MATTING_TEST_RETRY === '1' && failed.length > 0;
  if (!isRetried || failed.length < results.failedFiles.length) return first;
  const again = await runOnce({ ...run, files: failed, concurrency: 1 });
  const second = resultOf(again.results, again.succeeded);
  const without = (of: 'passedTests' | 'skippedTests') =>
    failed.reduce((count, file) => count - (results.byFile[file]?.[of] ?? 0), results[of]);
  const stillFail = again.results.failedFiles.map(file => `${path.relative(ROOT, file ?? '')}:`);
  return {
    passed: without('passedTests') + second.passed,
    skipped: without('skippedTests') + second.skipped,
    failed: second.failed,
    failures: second.failures,
    titles: first.titles,
    flaky: first.failures.filter(line => !stillFail.some(file => line.startsWith(file))),
    tookMs: first.tookMs,
    output: output + again.output,
  };
}

async function runOnce(run: AvaRun) {
  const { files, concurrency, timeoutMs, match, isQuiet, env } = run;
  const scratch = mkdtempSync(path.join(tmpdir(), 'matting-ava-'));
  const resultsFile = path.join(scratch, 'results.json');
  const relative = files.map(file => path.relative(ROOT, path.resolve(file)));
  const config = { files: relative, timeoutMs, resultsFile };
  const args = [AVA, '--config', CONFIG, '--concurrency', String(concurrency)];
  if (match !== undefined) args.push('--match', match);
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env: { ...process.env, ...env, MATTING_TEST_RUN: JSON.stringify(config) },
    stdio: ['ignore', isQuiet ? 'pipe' : 'inherit', 'inherit'],
    // A process group, so that all of it can be killed.
    detached: true,
  });
  const end = () => {
    try {
      process.kill(-child.pid!, 'SIGKILL');
    } catch {
      // The whole group has ended.
    }
  };
  const endAll = () => process.exit(1);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  process.once('exit', end);
  for (const signal of signals) process.once(signal, endAll);
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const closed = once(child, 'close');
  const [code] = await once(child, 'exit');
  end();
  await closed;
  process.off('exit', end);
  for (const signal of signals) process.off(signal, endAll);
  const results: Results = JSON.parse(readFileSync(resultsFile, 'utf8'));
  rmSync(scratch, { recursive: true });
  return { output, results, succeeded: code === 0 };
}

function resultOf(results: Results, succeeded: boolean): Counted {
  const { failedTests, failedHooks, failedWorkers, internalErrors, remainingTests } = results;
  const counted =
    failedTests +
    failedHooks +
    failedWorkers +
    internalErrors +
    remainingTests +
    results.uncaughtExceptions +
    results.unhandledRejections;
  // A file without tests, for example, fails the run but is not counted.
  const failed = succeeded ? counted : Math.max(counted, 1);
  const tookMs = Object.entries(results.tookMs)
    .map(([file, ms]) => [path.relative(ROOT, file), ms] as const)
    .sort(([, one], [, other]) => other - one);
  const { passedTests: passed, skippedTests: skipped, failures, titles } = results;
  return { passed, failed, skipped, failures, titles, tookMs };
}

/** Failures are whole lines, flaky ones included. */
export interface Tally extends Pick<AvaResult, 'passed' | 'failed' | 'skipped' | 'tookMs'> {
  readonly failures: readonly string[];
}

const SLOWEST = 20;

/**
 * Sets the exit code, 0 only if something passed and nothing failed. Prints the slowest files, the
 * failures and finally `N passed, N failed`. Appends a line of JSON to `MATTING_TEST_TALLY`, for a
 * program that runs several.
 */
export function concludeWith(results: readonly AvaResult[], lastWords?: () => void): void {
  const tallies = results.map(({ passed, failed, skipped, failures, flaky, tookMs }) => ({
    ...{ passed, failed, skipped, tookMs },
    failures: [
      ...flaky.map(failure => `flaky: ${failure}`),
      ...failures.map(failure => `failed: ${failure}`),
    ],
  }));
  const { MATTING_TEST_TALLY: file } = process.env;
  if (file) appendFileSync(file, tallies.map(tally => `${JSON.stringify(tally)}\n`).join(''));
  sayTally(tallies, lastWords);
}

export function sayTally(tallies: readonly Tally[], lastWords?: () => void): void {
  const sum = (of: (tally: Tally) => number) => tallies.reduce((n, one) => n + of(one), 0);
  const passed = sum(tally => tally.passed);
  const failed = sum(tally => tally.failed);
  const skipped = sum(tally => tally.skipped);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
  process.once('exit', () => {
    const tookMs = tallies.flatMap(tally => tally.tookMs);
    for (const [file, ms] of tookMs.sort(([, one], [, other]) => other - one).slice(0, SLOWEST)) {
      console.log(`${(ms / 1000).toFixed(1).padStart(6)} s  ${file}`);
    }
    lastWords?.();
    for (const failure of tallies.flatMap(tally => tally.failures)) console.log(failure);
    if (skipped > 0) console.log(`${skipped} skipped`);
    console.log(`${passed} passed, ${failed} failed`);
  });
}
