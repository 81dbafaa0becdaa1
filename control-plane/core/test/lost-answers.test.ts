/**
 * Each statement that changes something, and each commit, of every method of the stores: the
 * database does not receive it, or its answer is lost after it took effect, or the database stays
 * away after that; then whatever the product does next. And each call that comes late, when its
 * lease is somebody else's. Nothing is lost, and nothing done twice.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { ContractError } from '#contract/errors.ts';
import { Semaphore } from '#program/semaphore.ts';
import {
  createTestDatabase,
  onDatabases,
  SILENT_LOG,
  type TestDatabase,
} from '../../../test/support/database.ts';
import { openDatabase } from '../../database/connect.ts';
import { type Database, query, type Schema } from '../../database/database.ts';
import type { DatabaseDialect } from '../../database/engines.ts';
import { DatabaseProxy } from '../../database/test/database-proxy.ts';
import { Fault, type Loss, openFaultySqlite } from '../../database/test/faulty-database.ts';
import { shortenWaits } from '../../database/test/short-waits.ts';
import { assertUsageAgrees } from '../../portal/test/usage-agrees.ts';
import { type Stores, series, storesOn } from '../../test/every-store.ts';
import { CHANGING, LIKE_ANOTHER } from './changing.ts';
import { type ChangingMethod, type Fixture, kindOf, type LateCall } from './changing-methods.ts';
import { assertBalanced, fundedAccount, methodsOf, newJob } from './fixtures.ts';
import { READING } from './reading-methods.ts';

// Longer than any lease that runs out here.
// On a cluster, where one dialect is tested alone, a member that lags needs them.
if (!process.env.MATTING_TEST_DIALECT) shortenWaits(20);

const titleOf = ({ name, which }: ChangingMethod) =>
  which === undefined ? name : `${name} ${which}`;

/** More than any method has. */
const STATEMENTS_MAX = 50;

/** Methods at once: each waits for most of its time, until it may try again. */
const methods = new Semaphore({
  max: 16,
  waitingMax: 2 * CHANGING.length,
  refusal: () => new Error('more methods than there are'),
});

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

async function openFaulty(own: TestDatabase, at: number, loss: Loss): Promise<Faulty> {
  if (own.dialect === 'sqlite') {
    const fault = new Fault(at, loss);
    const database = openFaultySqlite(own.url, fault);
    const close = () => database.close();
    return { stores: storesOn(database), database, fired: () => fault.fired, close };
  }
  assert.ok(loss !== 'given-up');
  const proxy = new DatabaseProxy(own.url);
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
  own: TestDatabase,
  fault: { at: number; loss: Loss },
): Promise<boolean> {
  const { act, check } = await method.arrange(fixture);
  const faulty = await openFaulty(own, fault.at, fault.loss);
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

async function contents({ database }: Fixture, tables: readonly string[]): Promise<unknown> {
  const read = async (name: string) => {
    const rows = await database.kysely
      .selectFrom(name as keyof Schema)
      .selectAll()
      .execute();
    // How often an account's row was taken is read by nobody, and a refusal may have taken it.
    return [name, rows.map(row => JSON.stringify({ ...row, turns: undefined })).sort()] as const;
  };
  return Promise.all(tables.map(read));
}

/** A call by somebody whose time is over, or one that was made before. */
async function lateCallOf(
  { arrange, late, again }: ChangingMethod,
  place: Fixture,
): Promise<LateCall | undefined> {
  if (again === undefined) return late?.(place);
  const { act } = await arrange(place);
  await act(place.stores, place.database);
  return { act: async stores => kindOf(await act(stores, place.database)), told: again };
}

function fixtureOn(database: Database): Fixture {
  const stores = storesOn(database);
  const account = (credits: number) => fundedAccount(stores, credits);
  return { stores, database, account, apiKeyId: newJob('').apiKeyId };
}

/** What `work` does in a database of its own, whose ledger is balanced then. */
async function onOwn(
  dialect: DatabaseDialect,
  work: (fixture: Fixture, own: TestDatabase) => Promise<void>,
): Promise<void> {
  const own = await createTestDatabase(dialect, { series });
  try {
    const database = await own.open();
    const fixture = fixtureOn(database);
    await work(fixture, own);
    await assertBalanced(fixture.stores);
    await assertUsageAgrees(database);
  } finally {
    await own.close();
  }
}

onDatabases(ava, 'what changes something', (test, dialect) => {
  let shared: TestDatabase;
  let fixture: Fixture;

  test.before(async () => {
    shared = await createTestDatabase(dialect, { series });
    fixture = fixtureOn(await shared.open());
  });
  // Whatever was lost in it: the ledger is balanced, and the figures of usage agree with it.
  test.after.always(async () => {
    try {
      await assertBalanced(fixture.stores);
      await assertUsageAgrees(fixture.database);
    } finally {
      await shared.close();
    }
  });

  for (const method of CHANGING) {
    test(`and whose answer is lost › ${titleOf(method)}`, t => {
      const work = async (place: Fixture, own: TestDatabase) => {
        for (const loss of LOSSES[dialect]) {
          let at = 1;
          while (await lose(method, place, own, { at, loss })) {
            at += 1;
            t.true(at < STATEMENTS_MAX);
          }
          t.true(at > 1, 'it changes something');
        }
      };
      // Its own where it reads all rows, and on SQLite, whose writers wait for each other.
      const isAlone = method.alone || dialect === 'sqlite';
      return methods.run({}, () => (isAlone ? onOwn(dialect, work) : work(fixture, shared)));
    });
  }

  // One after the other, and where no other test writes.
  test('and comes late changes nothing', t =>
    onOwn(dialect, async place => {
      // A cluster's member may end it for the tables that other tests make.
      const tables = await query(place.database, db => db.introspection.getTables());
      const names = tables.map(({ name }) => name);
      for (const method of CHANGING) {
        const late = await lateCallOf(method, place);
        if (late === undefined) continue;
        const { act, told } = late;
        const beforehand = await contents(place, names);
        t.deepEqual(await act(place.stores), told, titleOf(method));
        t.deepEqual(await contents(place, names), beforehand, titleOf(method));
      }
    }));

  test('is every method that is not known to change nothing', t => {
    const changing = new Set(CHANGING.map(({ name }) => name));
    for (const other of Object.values(LIKE_ANOTHER)) t.true(changing.has(other), other);
    const known = [...changing, ...Object.keys(LIKE_ANOTHER), ...Object.keys(READING), 'close'];
    t.deepEqual(methodsOf(fixture.stores).sort(), known.sort());
  });
});
