/**
 * For each writing statement and commit of every method: the database misses it, or its answer is
 * lost, or the database then stays away. Also calls that come after their lease passed on. Nothing
 * may be lost or done twice.
 */
import assert from 'node:assert/strict';
import { openDatabase } from '@matting/database/connect.ts';
import { type Database, query, type Schema } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { DatabaseProxy } from '@matting/database/test/database-proxy.ts';
import { Fault, type Loss, openFaultySqlite } from '@matting/database/test/faulty-database.ts';
import { shortenWaits } from '@matting/database/test/short-waits.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import {
  createTestDatabase,
  onDatabases,
  SILENT_LOG,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import type { SerialFn } from 'ava';
import type { Stores } from '../stores.ts';
import { type ChangingMethod, type Fixture, kindOf, type LateCall } from './changing-methods.ts';
import { fundedAccount, newJob } from './fixtures.ts';
import { type MethodSuite, ownMethods } from './method-suite.ts';

const titleOf = ({ name, which }: Pick<ChangingMethod, 'name' | 'which'>) =>
  which === undefined ? name : `${name} ${which}`;

const STATEMENTS_MAX = 50;

/** In parallel: each waits most of its time for a retry. */
const METHODS_MAX = 16;

/** Broken connections to a server lose the first two. */
const LOSSES: Readonly<Record<DatabaseDialect, readonly Loss[]>> = {
  sqlite: ['unheard', 'unanswered', 'given-up'],
  mysql: ['unheard', 'unanswered'],
};

interface Faulty<S extends Stores> {
  readonly stores: S;
  readonly database: Database;
  readonly fired: () => boolean;
  close(): Promise<void>;
}

async function openFaulty<S extends Stores>(
  { storesOn }: MethodSuite<S>['fixtures'],
  own: TestDatabase,
  { at, loss }: LostAnswer,
): Promise<Faulty<S>> {
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

interface LostAnswer {
  readonly at: number;
  readonly loss: Loss;
}

/** False: the method has fewer statements. */
async function lose<S extends Stores>(
  fixtures: MethodSuite<S>['fixtures'],
  method: ChangingMethod<S>,
  { fixture, own }: Place<S>,
  fault: LostAnswer,
): Promise<boolean> {
  const { act, check } = await method.arrange(fixture);
  const faulty = await openFaulty(fixtures, own, fault);
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

async function contents(
  { database }: Pick<Fixture, 'database'>,
  tables: readonly string[],
): Promise<unknown> {
  const read = async (name: string) => {
    const rows = await database.kysely
      .selectFrom(name as keyof Schema)
      .selectAll()
      .execute();
    // `turns` is read by nobody, and a refusal may raise it.
    return [name, rows.map(row => JSON.stringify({ ...row, turns: undefined })).sort()] as const;
  };
  return Promise.all(tables.map(read));
}

async function lateCallOf<S extends Stores>(
  { arrange, late, again }: ChangingMethod<S>,
  place: Fixture<S>,
): Promise<LateCall<S>> {
  if (again === undefined) return late!(place);
  const { act } = await arrange(place);
  await act(place.stores, place.database);
  return { act: async stores => kindOf(await act(stores, place.database)), told: again };
}

interface Place<S extends Stores> {
  readonly fixture: Fixture<S>;
  readonly own: TestDatabase;
  readonly close: () => Promise<void>;
}

async function openPlace<S extends Stores>(
  { fixtures, prepare, assertSound }: MethodSuite<S>,
  dialect: DatabaseDialect,
): Promise<Place<S>> {
  const { series, storesOn } = fixtures;
  const own = await createTestDatabase(dialect, { series });
  const database = await own.open();
  await prepare?.(database);
  const stores = storesOn(database);
  const account = (credits: number) => fundedAccount(stores, credits);
  const close = async () => {
    try {
      await assertSound(stores, database);
    } finally {
      await own.close();
    }
  };
  return { fixture: { stores, database, account, apiKeyId: newJob('').apiKeyId }, own, close };
}

async function onOwn<S extends Stores>(
  suite: MethodSuite<S>,
  dialect: DatabaseDialect,
  work: (place: Place<S>) => Promise<void>,
): Promise<void> {
  const place = await openPlace(suite, dialect);
  try {
    await work(place);
  } catch (error) {
    await place.own.close();
    throw error;
  }
  await place.close();
}

export function loseAnswers<S extends Stores>(ava: SerialFn, suite: MethodSuite<S>): void {
  // Longer than any lease that runs out here. A lagging cluster member, tested with one dialect,
  // needs real waits.
  if (!process.env.MATTING_TEST_DIALECT) shortenWaits(20);
  const { fixtures, changing } = suite;
  const methods = new Semaphore({
    max: METHODS_MAX,
    waitingMax: 2 * changing.length,
    refusal: () => new Error('more methods than there are'),
  });

  onDatabases(ava, 'what changes something', (test, dialect) => {
    let shared: Place<S>;

    test.before(async () => {
      shared = await openPlace(suite, dialect);
    });
    test.after.always(() => shared?.close());

    for (const method of changing) {
      test(`and whose answer is lost › ${titleOf(method)}`, t => {
        const work = async (place: Place<S>) => {
          for (const loss of LOSSES[dialect]) {
            let at = 1;
            while (await lose(fixtures, method, place, { at, loss })) {
              at += 1;
              t.true(at < STATEMENTS_MAX);
            }
            t.true(at > 1, 'it changes something');
          }
        };
        // Its own database if it reads all rows, and on SQLite, which has one writer at a time.
        const isAlone = method.alone || dialect === 'sqlite';
        return methods.run({}, () => (isAlone ? onOwn(suite, dialect, work) : work(shared)));
      });
    }

    const late = changing.filter(({ late, again }) => late !== undefined || again !== undefined);
    // One after the other, while no other test writes.
    test('and comes late changes nothing', t =>
      onOwn(suite, dialect, async ({ fixture }) => {
        // On a cluster, other tests' new tables may end it.
        const tables = await query(fixture.database, db => db.introspection.getTables());
        const names = tables.map(({ name }) => name);
        t.true(names.length > 0);
        for (const method of late) {
          const { act, told } = await lateCallOf(method, fixture);
          const beforehand = await contents(fixture, names);
          t.deepEqual(await act(fixture.stores), told, titleOf(method));
          t.deepEqual(await contents(fixture, names), beforehand, titleOf(method));
        }
      }));

    test('is every method that is not known to change nothing', t => {
      const { own, others } = ownMethods(suite, shared.fixture.database);
      const names = new Set(changing.map(({ name }) => name));
      for (const other of Object.values(suite.likeAnother)) t.true(names.has(other), other);
      const known = [...names, ...Object.keys(suite.likeAnother), ...Object.keys(suite.reading)];
      t.deepEqual(known.filter(name => !others.includes(name)).sort(), own.sort());
    });
  });
}
