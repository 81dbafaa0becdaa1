/** Every mutation still has its place in the sources; mutation.storm.ts runs the tests of each. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { it } from 'node:test';
import { mutated } from './mutation.ts';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

it('each mutation names its own text, which occurs once, and a test file that is there', () => {
  for (const mutation of MUTATIONS) {
    const source = readFileSync(path.join(ROOT, mutation.file), 'utf8');
    assert.notEqual(mutated(mutation, source), source);
    readFileSync(path.join(ROOT, mutation.caughtBy.file));
  }
  assert.equal(new Set(MUTATIONS.map(({ name }) => name)).size, MUTATIONS.length);
});
