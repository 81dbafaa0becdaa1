/**
 * Each statement that changes something, and each commit, of every method of the stores: the
 * database does not receive it, or its answer is lost after it took effect, or the database stays
 * away after that; then whatever the product does next. And each call that comes late, when its
 * lease is somebody else's. Nothing is lost, and nothing done twice.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import {
  createTestDatabase,
  describeOnDatabases,
  SILENT_LOG,
  type TestDatabase,
} from '../../../test/support/database.ts';
import type { DatabaseDialect } from '../../src/store/database/clock.ts';
import { type Database, openDatabase } from '../../src/store/database/connect.ts';
import type { Schema } from '../../src/store/database/schema.ts';
import { query } from '../../src/store/database/transact.ts';
import type { Stores } from '../../src/store/stores.ts';
import { CHANGING_ALERTS } from './changing-alerts.ts';
import { CHANGING_API_KEYS } from './changing-api-keys.ts';
import { CHANGING_JOBS } from './changing-jobs.ts';
import { CHANGING_KEYS } from './changing-keys.ts';
import { CHANGING_LOST_RESULTS } from './changing-lost-results.ts';
import {
  type ChangingMethod,
  type Fixture,
  LIKE_ANOTHER,
  READING_METHODS,
} from './changing-methods.ts';
import { CHANGING_NOTIFICATIONS } from './changing-notifications.ts';
import { CHANGING_ORDERS } from './changing-orders.ts';
import { CHANGING_OTHERS } from './changing-others.ts';
import { CHANGING_PEOPLE } from './changing-people.ts';
import { CHANGING_PLAYGROUND } from './changing-playground.ts';
import { CHANGING_SWEEPS } from './changing-sweeps.ts';
import { CHANGING_USAGE } from './changing-usage.ts';
import { DatabaseProxy } from './database/database-proxy.ts';
import { Fault, type Loss, openFaultySqlite } from './database/faulty-database.ts';
import { assertBalanced, methodsOf, storesOn } from './fixtures.ts';
import { assertUsageAgrees } from './usage/usage-agrees.ts';

const CHANGING: readonly ChangingMethod[] = [
  ...CHANGING_API_KEYS,
  ...CHANGING_ALERTS,
  ...CHANGING_JOBS,
  ...CHANGING_KEYS,
  ...CHANGING_NOTIFICATIONS,
  ...CHANGING_ORDERS,
  ...CHANGING_OTHERS,
  ...CHANGING_PEOPLE,
  ...CHANGING_PLAYGROUND,
  ...CHANGING_LOST_RESULTS,
  ...CHANGING_SWEEPS,
  ...CHANGING_USAGE,
];
/** More than any method has. */
const STATEMENTS_MAX = 50;

/** On a server the two first of them are what a broken connection can do. */
const LOSSES: Readonly<Record<DatabaseDialect, readonly Loss[]>> = {
  sqlite: ['unheard', 'unanswered', 'given-up'],
  mysql: ['unheard', 'unanswered'],
};

interface Faulty {
  readonly stores: Stores;
  readonly database: Database;
  readonly fired: () => boolean;
  close(): Promise<void>;
}

async function openFaulty(test: TestDatabase, at: number, loss: Loss): Promise<Faulty> {
  if (test.dialect === 'sqlite') {
    const fault = new Fault(at, loss);
    const database = openFaultySqlite(test.url, fault);
    const close = () => database.close();
    return { stores: storesOn(database), database, fired: () => fault.fired, close };
  }
  assert.ok(loss !== 'given-up');
  const proxy = new DatabaseProxy(test.url);
  await proxy.open();
  const database = await openDatabase(proxy.url, { log: SILENT_LOG });
  proxy.loseChange(at, loss);
  const close = async () => {
    await database.close();
    await proxy.close();
  };
  return { stores: storesOn(database), database, fired: () => proxy.changeLost, close };
}

/** False: the method has fewer statements than that. */
async function lose(
  method: ChangingMethod,
  fixture: Fixture,
  test: TestDatabase,
  fault: { at: number; loss: Loss },
): Promise<boolean> {
  const { act, check } = await method.arrange(fixture);
  const faulty = await openFaulty(test, fault.at, fault.loss);
  try {
    let repeated = false;
    const outcome = await act(faulty.stores, faulty.database).catch((error: unknown) => {
      assert.ok(error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE', `${error}`);
      repeated = true;
      return act(faulty.stores, faulty.database);
    });
    await check(outcome, repeated);
    assert.ok(!repeated || fault.loss === 'given-up', 'the store itself came over it');
    return faulty.fired();
  } finally {
    await faulty.close();
  }
}

async function contents(fixture: Fixture): Promise<unknown> {
  // A cluster's member may end it for the tables that other tests make.
  const tables = await query(fixture.database, db => db.introspection.getTables());
  const found: Record<string, unknown[]> = {};
  for (const { name } of tables) {
    const rows = await fixture.database.kysely
      .selectFrom(name as keyof Schema)
      .selectAll()
      .execute();
    // How often an account's row was taken is read by nobody, and a refusal may have taken it.
    found[name] = rows.map(row => JSON.stringify({ ...row, turns: undefined })).sort();
  }
  return found;
}

describeOnDatabases('what changes something', dialect => {
  let shared: TestDatabase;
  let fixture: Fixture;

  before(async () => {
    shared = await createTestDatabase(dialect);
    const database = await shared.open();
    fixture = { stores: storesOn(database), database };
  });
  after(() => shared?.close());

  /**
   * The method's own database where it reads all rows, and on SQLite, whose writers wait for
   * each other. Whatever was lost, its ledger is balanced then.
   */
  async function on(
    method: ChangingMethod,
    work: (fixture: Fixture, test: TestDatabase) => Promise<void>,
  ): Promise<void> {
    if (!method.alone && dialect !== 'sqlite') return work(fixture, shared);
    const own = await createTestDatabase(dialect);
    try {
      const database = await own.open();
      const stores = storesOn(database);
      await work({ stores, database }, own);
      await assertBalanced(stores);
      await assertUsageAgrees(database);
    } finally {
      await own.close();
    }
  }

  describe('and whose answer is lost', { concurrency: 16 }, () => {
    for (const method of CHANGING) {
      it(method.name, () =>
        on(method, async (place, test) => {
          for (const loss of LOSSES[dialect]) {
            let at = 1;
            while (await lose(method, place, test, { at, loss })) {
              at += 1;
              assert.ok(at < STATEMENTS_MAX);
            }
            assert.ok(at > 1, 'it changes something');
          }
        }),
      );
    }
  });

  describe('and comes late', () => {
    for (const { name, late } of CHANGING) {
      if (late === undefined) continue;
      it(name, async () => {
        const { act, told } = await late(fixture);
        const beforehand = await contents(fixture);
        assert.deepEqual(await act(fixture.stores), told);
        assert.deepEqual(await contents(fixture), beforehand);
      });
    }
  });

  it('leaves the ledger balanced, and the figures of usage agree with it', async () => {
    await assertBalanced(fixture.stores);
    await assertUsageAgrees(fixture.database);
  });

  it('is every method that is not known to change nothing', () => {
    const changing = new Set(CHANGING.map(({ name }) => name));
    for (const other of Object.values(LIKE_ANOTHER)) assert.ok(changing.has(other), other);
    const known = [...changing, ...Object.keys(LIKE_ANOTHER), ...READING_METHODS];
    assert.deepEqual(methodsOf(fixture.stores).sort(), known.sort());
  });
});
