import { TABLES } from '@matting/core/test/exercise.ts';
import { assertBalanced } from '@matting/core/test/fixtures.ts';
import type { MethodSuite } from '@matting/core/test/method-suite.ts';
import { fillLargeLog, fillLargeTables } from '@matting/test-support/large-tables.ts';
import { createPortalStores } from '../../portal-stores.ts';
import { PORTAL_FIXTURES, type Stores } from '../fixtures.ts';
import { fillLargeOrders, fillLargePeople, fillLargeUsage } from '../large-tables.ts';
import { assertUsageAgrees } from '../usage-agrees.ts';
import { CHANGING } from './changing.ts';
import { READING } from './reading-methods.ts';
import { EXERCISES } from './statements.ts';

export const PORTAL_SUITE: MethodSuite<Stores> = {
  fixtures: PORTAL_FIXTURES,
  own: createPortalStores,
  changing: CHANGING,
  likeAnother: {},
  reading: READING,
  exercises: EXERCISES,
  assertSound: async (stores, database) => {
    await assertBalanced(stores);
    await assertUsageAgrees(database);
  },
  fillLarge: async database => {
    await fillLargeTables(database, TABLES);
    await fillLargeLog(database);
    await fillLargeUsage(database);
    await fillLargePeople(database);
    await fillLargeOrders(database);
  },
  opening: ['people.find'],
  folders: ['portal'],
};
