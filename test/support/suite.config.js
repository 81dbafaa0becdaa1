/**
 * ava's configuration for run-ava.ts: that of package.json, for the files that `MATTING_TEST_RUN`
 * names, whatever their kind. When the run ends, the counts that ava's own output leaves out of a
 * run that failed are written where run-ava.ts reads them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';

const { ava } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const { files, timeoutMs, resultsFile } = JSON.parse(process.env.MATTING_TEST_RUN);

/** A worker that spins in native code, or handles SIGTERM, outlives ava's request to end. */
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

/** One line: the file, the test or what else failed, and the beginning of the reason. */
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
  /** Undefined among them is a failure of no file. */
  const failedFiles = new Set();
  let stats;
  /** A test that asked for more time is silent until then. */
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
  // Ava's own bound is wound up by the next event, and there is none where a file does not end
  // after a test that had asked for more time.
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
