/**
 * ava's configuration for run-ava.ts: package.json's, for the files in `MATTING_TEST_RUN`. At the
 * end it writes the counts that ava omits if a run fails.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';

const { ava } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const { files, timeoutMs, resultsFile } = JSON.parse(process.env.MATTING_TEST_RUN);

/** A worker in native code, or with a SIGTERM handler, outlives ava's request to end. */
const KILL_MS = 10_000;

const FAILURES = new Set([
  'test-failed',
  'hook-failed',
  'uncaught-exception',
  'unhandled-rejection',
  'internal-error',
  'worker-failed',
]);
const REASON_CHARACTERS = 600;

/** File, test or other source, and the start of the reason, on a line. */
function failureOf({ type, testFile, title, err, signal, nonZeroExitCode }) {
  const details = err?.formattedDetails?.map(({ label, formatted }) => `${label} ${formatted}`);
  const said = [err?.message ?? signal ?? nonZeroExitCode, ...(details ?? [])].join(' ');
  const reason = stripVTControlCharacters(said).replace(/\s+/g, ' ').slice(0, REASON_CHARACTERS);
  return `${path.relative('', testFile ?? '')}: ${title ?? type}: ${reason}`;
}

async function observeRun({ events }) {
  const began = new Map();
  const tookMs = {};
  const failures = [];
  const titles = [];
  /** Undefined: a failure outside of files. */
  const failedFiles = new Set();
  let stats;
  /** A test with a longer timeout may be silent until then. */
  let silentUntilMs = 0;
  let lastAtMs = Date.now();
  const nameWhatRuns = () => {
    for (const file of order.keys()) {
      if (file in tookMs) continue;
      failedFiles.add(file);
      const fate = began.has(file) ? 'killed, it did not end by itself' : 'it did not begin';
      console.error(`${fate}: ${file}`);
      failures.push(`${path.relative('', file)}: ${fate}`);
    }
  };
  process.once('exit', () => {
    const byFile = Object.fromEntries(stats?.byFile ?? []);
    const files = { byFile, failedFiles: [...failedFiles] };
    writeFileSync(resultsFile, JSON.stringify({ ...stats, tookMs, titles, failures, ...files }));
  });
  // Ava's own timer restarts at the next event. None comes if a file hangs after a test with a
  // longer timeout.
  setInterval(() => {
    if (Date.now() < Math.max(lastAtMs + timeoutMs + KILL_MS, silentUntilMs)) return;
    nameWhatRuns();
    process.exit(1);
  }, KILL_MS).unref();
  for await (const event of events) {
    if (event.type !== 'worker-stdout' && event.type !== 'worker-stderr') lastAtMs = Date.now();
    if (event.type === 'test-timeout-configured') {
      silentUntilMs = Math.max(silentUntilMs, Date.now() + event.period + KILL_MS);
    }
    if (event.type === 'stats') {
      stats = event.stats;
      for (const file of stats.byFile.keys()) {
        if (!began.has(file)) began.set(file, performance.now());
      }
    }
    if (event.type === 'declared-test') {
      titles.push(`${path.relative('', event.testFile)}: ${event.title}`);
    }
    if (FAILURES.has(event.type)) {
      failures.push(failureOf(event));
      failedFiles.add(event.testFile);
    }
    if (event.type === 'worker-finished' || event.type === 'worker-failed') {
      tookMs[event.testFile] = performance.now() - began.get(event.testFile);
    } else if (event.type === 'timeout') {
      nameWhatRuns();
      setTimeout(() => process.exit(1), KILL_MS);
    }
  }
}

const order = new Map(files.map((file, index) => [path.resolve(file), index]));

export default {
  ...ava,
  files,
  sortTestFiles: (one, other) => order.get(one) - order.get(other),
  timeout: `${timeoutMs}ms`,
  nonSemVerExperiments: { observeRunsFromConfig: true },
  observeRun,
};
