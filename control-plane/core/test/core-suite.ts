import { fillLargeLog, fillLargeTables } from '@matting/test-support/large-tables.ts';
import { CHANGING, LIKE_ANOTHER } from './changing.ts';
import { assertCounted, COUNTING, createCountedJobs } from './counted-jobs.ts';
import { TABLES } from './exercise.ts';
import { assertBalanced } from './fixtures.ts';
import type { MethodSuite } from './method-suite.ts';
import { READING } from './reading-methods.ts';
import { EXERCISES } from './statements.ts';

export const CORE_SUITE: MethodSuite = {
  fixtures: COUNTING,
  own: database => {
    const { groups: _, close: __, ...own } = COUNTING.storesOn(database);
    return own;
  },
  prepare: createCountedJobs,
  changing: CHANGING,
  likeAnother: LIKE_ANOTHER,
  reading: READING,
  exercises: EXERCISES,
  assertSound: async (stores, database) => {
    await assertBalanced(stores);
    await assertCounted(database);
  },
  fillLarge: async database => {
    await fillLargeTables(database, TABLES);
    await fillLargeLog(database);
  },
  opening: ['jobs.find', 'nodes.find', 'rateQuotas.lease'],
  folders: ['core', 'database'],
  elsewhere: 'groups',
};
