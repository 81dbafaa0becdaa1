/**
 * `make fuzz`: bombs and seeded mutants through the decoder of a node.
 *
 *   sh bin/node24 inference-node/serving/test/picture/fuzz/main.ts [count] [seed]
 *
 * Exits 1 where an answer was outside the contract or a budget was exceeded.
 */
import { availableParallelism } from 'node:os';
import { fuzzDecode } from './fuzz-decode.ts';

const COUNT = 10_000;

function readNumber(argument: string | undefined, otherwise: number): number {
  const value = argument === undefined || argument === '' ? otherwise : Number(argument);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  console.error('usage: main.ts [count] [seed], both whole numbers');
  process.exit(64);
}

const count = readNumber(process.argv[2], COUNT);
const seed = readNumber(process.argv[3], 1);
const startedMs = performance.now();
const summary = await fuzzDecode({ count, seed, workers: Math.min(4, availableParallelism()) });
const { files, answers, violations, slowestMs, slowestName, peakBytes, workersKilled } = summary;
const elapsedS = Math.round((performance.now() - startedMs) / 1000);
console.log(`${files} files in ${elapsedS} s, seed ${seed}`);
for (const [answer, times] of Object.entries(answers)) console.log(`  ${times} ${answer}`);
console.log(`slowest: ${slowestMs} ms (${slowestName})`);
console.log(`largest worker: ${Math.round(peakBytes / 2 ** 20)} MiB`);
console.log(`workers killed at a budget or lost: ${workersKilled}`);
for (const violation of violations) console.error(`VIOLATION ${violation}`);
console.log(`${violations.length} violations`);
process.exitCode = violations.length === 0 ? 0 : 1;
