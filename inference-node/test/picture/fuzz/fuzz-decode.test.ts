import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fuzzDecode } from './fuzz-decode.ts';

/** `make fuzz` takes 10,000. */
const FILES = 300;

test('hostile files get an answer of the contract, within the budgets', async t => {
  const summary = await fuzzDecode({ count: FILES, seed: 1, workers: 2 });
  t.diagnostic(JSON.stringify(summary));
  assert.deepEqual(summary.violations, []);
  assert.ok(summary.files >= FILES);
  // Mutants that were all whole, or all broken at the first byte, would prove nothing.
  for (const answer of ['picture', 'PROCESSING_FAILED']) {
    assert.ok((summary.answers[answer] ?? 0) > 30, answer);
  }
  assert.ok((summary.answers.UNSUPPORTED_IMAGE_FORMAT ?? 0) > 0);
  assert.ok((summary.answers.IMAGE_RESOLUTION_TOO_LARGE ?? 0) > 0);
});
