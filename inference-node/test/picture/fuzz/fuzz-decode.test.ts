import test from 'ava';
import { fuzzDecode } from './fuzz-decode.ts';

/** `make fuzz` takes 10,000. */
const FILES = 300;

test('hostile files get an answer of the contract, within the budgets', async t => {
  const summary = await fuzzDecode({ count: FILES, seed: 1, workers: 2 });
  t.log(JSON.stringify(summary));
  t.deepEqual(summary.violations, []);
  t.true(summary.files >= FILES);
  // Mutants that were all whole, or all broken at the first byte, would prove nothing.
  for (const answer of ['picture', 'PROCESSING_FAILED']) {
    t.true((summary.answers[answer] ?? 0) > 30, answer);
  }
  t.true((summary.answers.UNSUPPORTED_IMAGE_FORMAT ?? 0) > 0);
  t.true((summary.answers.IMAGE_RESOLUTION_TOO_LARGE ?? 0) > 0);
});
