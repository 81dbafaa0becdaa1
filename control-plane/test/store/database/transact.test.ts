/** How often and how long the one place tries again, by errors told to a real database's callers. */
import ava from 'ava';
import { ContractError } from '#contract/errors.ts';
import { useTestDatabase } from '../../../../test/support/database.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import {
  CONFLICT_RETRIES_MAX,
  CONNECTION_RETRIES_MAX,
  OvertakenError,
  query,
  transact,
} from '../../../src/store/database/transact.ts';
import { brokenConnection, failingDisk } from './faulty-database.ts';
import { shortenWaits } from './short-waits.ts';

const test = ava.serial;

shortenWaits(5);

const NEVER = new AbortController().signal;
const overtaken = () => new OvertakenError('somebody was faster');
const isUnavailable = (error: unknown) =>
  error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE';

const databases = useTestDatabase(test, 'sqlite');
const warnings: unknown[] = [];
let database: Database;

test.before(async () => {
  database = await databases.open({
    info: () => undefined,
    warn: (...args: unknown[]) => warnings.push(args),
  });
});

/** Rounds until the answer, or with the error that ended them. */
async function rounds(
  errorAt: (round: number) => Error | undefined,
  giveUp?: AbortSignal,
): Promise<{ rounds: number; error: unknown }> {
  let round = 0;
  const work = async () => {
    round += 1;
    const error = errorAt(round);
    if (error !== undefined) throw error;
  };
  const error = await query(database, work, giveUp).catch((thrown: unknown) => thrown);
  return { rounds: round, error };
}

test('is repeated within the bound of its kind, then the database is not available', async t => {
  const kinds = [brokenConnection, overtaken, failingDisk];
  const ended = await Promise.all(kinds.map(errorAt => rounds(errorAt)));
  t.deepEqual(
    ended.map(one => one.rounds),
    [1 + CONNECTION_RETRIES_MAX, 1 + CONFLICT_RETRIES_MAX, 1],
  );
  t.true(ended.every(one => isUnavailable(one.error)));
  t.is(warnings.length, 3, 'each was logged once');
});

test('that is a transaction leaves nothing behind when it was overtaken', async t => {
  let round = 0;
  await transact(database, async tx => {
    round += 1;
    await tx.insertInto('sweeps').values({ id: 'sweep', fence: round, walk_part: 0 }).execute();
    if (round < 3) throw overtaken();
  });
  const { fence } = await database.kysely
    .selectFrom('sweeps')
    .select('fence')
    .executeTakeFirstOrThrow();
  t.is(fence, 3);
});

test('is repeated beyond the bound where the caller is patient', async t => {
  const failing = await rounds(round => (round < 4 ? failingDisk() : undefined), NEVER);
  t.deepEqual(failing, { rounds: 4, error: undefined });
  const bursts = CONNECTION_RETRIES_MAX + 3;
  const lost = await rounds(round => (round < bursts ? brokenConnection() : undefined), NEVER);
  t.deepEqual(lost, { rounds: bursts, error: undefined });
});

test('is repeated until the caller gives up, and then once', async t => {
  const controller = new AbortController();
  const ended = await rounds(round => {
    // A moment later, within the pause.
    if (round === 3) setImmediate(() => controller.abort());
    return failingDisk();
  }, controller.signal);
  t.is(ended.rounds, 4);
  t.truthy(isUnavailable(ended.error));
  const begun = await rounds(failingDisk, AbortSignal.abort());
  t.is(begun.rounds, 1, 'one try is always made');
});

test('for any other reason is not repeated', async t => {
  const bug = new TypeError('bug');
  t.deepEqual(await rounds(() => bug, NEVER), { rounds: 1, error: bug });
  const duplicate = Object.assign(new Error('duplicate'), { errno: 1062 });
  t.deepEqual(await rounds(() => duplicate, NEVER), { rounds: 1, error: duplicate });
});
