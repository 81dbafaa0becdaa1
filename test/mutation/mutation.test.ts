/** Every mutation still has its place in the sources; mutation.storm.ts runs the tests of each. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { mutated } from './mutation.ts';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

test('each mutation names its own text, which occurs once, and a test file that is there', t => {
  for (const mutation of MUTATIONS) {
    const source = readFileSync(path.join(ROOT, mutation.file), 'utf8');
    t.not(mutated(mutation, source), source);
    readFileSync(path.join(ROOT, mutation.caughtBy.file));
  }
  t.is(new Set(MUTATIONS.map(({ name }) => name)).size, MUTATIONS.length);
});
