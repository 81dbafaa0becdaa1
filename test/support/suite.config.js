/**
 * ava's configuration for run-ava.ts: that of package.json, for the files that `MATTING_TEST_RUN`
 * names, whatever their kind. When the run ends, the counts that ava's own output leaves out of a
 * run that failed are written where run-ava.ts reads them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const { ava } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const { files, timeout, resultsFile } = JSON.parse(process.env.MATTING_TEST_RUN);

/** A worker that spins in native code, or handles SIGTERM, outlives ava's request to end. */
const KILL_MS = 10_000;

async function observeRun({ events }) {
  const began = new Map();
  const tookMs = {};
  let stats;
  process.once('exit', () => writeFileSync(resultsFile, JSON.stringify({ ...stats, tookMs })));
  for await (const event of events) {
    if (event.type === 'stats') {
      stats = event.stats;
      for (const file of stats.byFile.keys()) {
        if (!began.has(file)) began.set(file, performance.now());
      }
    } else if (event.type === 'worker-finished' || event.type === 'worker-failed') {
      tookMs[event.testFile] = performance.now() - began.get(event.testFile);
    } else if (event.type === 'timeout') {
      for (const file of began.keys()) {
        if (!(file in tookMs)) console.error(`killed, it did not end by itself: ${file}`);
      }
      setTimeout(() => process.exit(1), KILL_MS);
    }
  }
}

const order = new Map(files.map((file, index) => [path.resolve(file), index]));

export default {
  ...ava,
  files,
  sortTestFiles: (one, other) => order.get(one) - order.get(other),
  timeout,
  nonSemVerExperiments: { observeRunsFromConfig: true },
  observeRun,
};
