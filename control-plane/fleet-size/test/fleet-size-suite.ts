/** Every method of the store of reports. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ChangingMethod } from '@matting/core/test/changing-methods.ts';
import { exercisesOf, TABLES } from '@matting/core/test/exercise.ts';
import { assertBalanced } from '@matting/core/test/fixtures.ts';
import type { MethodSuite } from '@matting/core/test/method-suite.ts';
import { at } from '@matting/test-support/at.ts';
import { fillLargeTables } from '@matting/test-support/large-tables.ts';
import { FLEET_SIZE_FIXTURES, fleetReports, type Stores } from './fixtures.ts';

const CHANGING: readonly ChangingMethod<Stores>[] = [
  {
    name: 'fleetReports.save',
    arrange: async ({ stores }) => {
      const replica = randomUUID();
      const report = { inflowPerS: 1.5, work: { megapixels: 20, nodeMs: 3000 }, wantedNodes: 4 };
      return {
        act: async faulty => {
          await faulty.fleetReports.save(replica, { ...report, wantedNodes: 1 });
          await faulty.fleetReports.save(replica, report);
        },
        check: async () => {
          const saved = (await stores.fleetReports.list()).filter(one => one.replica === replica);
          assert.equal(saved.length, 1);
          const { inflowPerS, work, wantedNodes, fresh } = at(saved, 0);
          assert.deepEqual({ inflowPerS, work, wantedNodes }, report);
          assert.ok(fresh);
        },
      };
    },
  },
];

const READING: MethodSuite<Stores>['reading'] = {
  'fleetReports.list': stores => stores.fleetReports.list(),
};

export const FLEET_SIZE_SUITE: MethodSuite<Stores> = {
  fixtures: FLEET_SIZE_FIXTURES,
  own: fleetReports,
  changing: CHANGING,
  likeAnother: {},
  reading: READING,
  exercises: { ...READING, ...exercisesOf(CHANGING, { beside: {} }) },
  assertSound: stores => assertBalanced(stores),
  fillLarge: database => fillLargeTables(database, TABLES),
  opening: ['fleetReports.list'],
  folders: ['fleet-size'],
};
