/** A node gives a model its turn while control planes ask for it again and again. */
import test from 'ava';
import { REFUSED_WAIT_MAX_MS } from '../../control-plane/core/dispatch/job-memories.ts';
import { WANTED_MS } from '../../inference-node/serving/selectables/load-turns.ts';

test('a job that is refused comes again before a node forgets that its model is wanted', t => {
  t.true(2 * REFUSED_WAIT_MAX_MS < WANTED_MS);
});
