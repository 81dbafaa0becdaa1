/** Due notifications beside the backlog of a receiver that hangs: on every database. */
import assert from 'node:assert/strict';
import ava from 'ava';
import {
  accountOf,
  fillLargeTables,
  HANGING_RECEIVER,
  quietReceiverOf,
  SECRET_KEY_ID,
} from '../../../../test/support/large-tables.ts';
import type { FullPlaces } from '../../../src/domain/shared-places.ts';
import { countSealedWithOthers } from '../../../src/store/outbox/outbox-due.ts';
import { HOUR_MS, NONE_FULL, onStores } from '../fixtures.ts';

const test = ava.serial;

const BACKLOG = 1200;
const QUIET = 60;
const QUIET_RECEIVERS = Array.from({ length: QUIET }, (_, index) => quietReceiverOf(index)).sort();

type Without = Partial<Pick<FullPlaces, 'destinations' | 'accounts'>>;

onStores(test, `a backlog of ${BACKLOG}`, (test, { database, stores }) => {
  test.before(async () => {
    const due = { dueNotifications: BACKLOG, quietReceivers: QUIET };
    await fillLargeTables(database, { jobs: 100, ...due });
  });

  function due({ destinations = [HANGING_RECEIVER], accounts = [] }: Without = {}) {
    return stores.outbox.listDue({
      kind: 'webhook',
      limit: 32,
      secretKeyIds: [SECRET_KEY_ID],
      full: { ...NONE_FULL, destinations, accounts },
    });
  }

  /** Until nothing new comes; those seen are claimed, as a delivery does. */
  async function drained(changes: Without = {}) {
    const receivers: string[] = [];
    for (let polls = 0; polls < 20; polls += 1) {
      const found = await due(changes);
      if (found.length === 0) return receivers.sort();
      for (const { id, fence, receiver } of found) {
        const claim = { id, holder: 'replica-1', fence: fence + 1 };
        assert.ok(await stores.outbox.claim(claim, HOUR_MS));
        receivers.push(receiver);
      }
    }
    return assert.fail('there is no end of them');
  }

  async function givenBack() {
    await database.kysely
      .updateTable('outbox')
      .set({ lease_holder: null, lease_expires_at: null })
      .execute();
  }

  test('hides no other receiver, however many there are', async t => {
    t.deepEqual(await drained(), QUIET_RECEIVERS);
    await givenBack();
  });

  test('is taken from its beginning where its receiver has places', async t => {
    const first = await due({ destinations: [] });
    t.is(first.length, 32);
    t.true(first.every(({ receiver }) => receiver === HANGING_RECEIVER));
  });

  test('of an account without places hides none of another account', async t => {
    const beside = { destinations: [], accounts: [accountOf(0)] };
    const receivers = await drained(beside);
    t.true(receivers.length > 0);
    await givenBack();
    const own = await database.kysely
      .selectFrom('outbox')
      .select('receiver')
      .where('status', '=', 'pending')
      .where('account_id', '<>', accountOf(0))
      .execute();
    t.deepEqual(receivers, own.map(({ receiver }) => receiver).sort());
  });

  test('at a receiver that two accounts share hides none of the other', async t => {
    const [quiet] = await due();
    const shared = { address: `https://${HANGING_RECEIVER}/`, receiver: HANGING_RECEIVER };
    const row = database.kysely.updateTable('outbox').where('id', '=', quiet!.id);
    await row.set({ ...shared, account_id: accountOf(7) }).execute();
    const others = { destinations: QUIET_RECEIVERS, accounts: [accountOf(0)] };
    t.deepEqual(
      (await due(others)).map(({ id }) => id),
      [quiet!.id],
    );
    const { receiver, accountId, address } = quiet!;
    const before = { receiver, account_id: accountId, address };
    await row.set(before).execute();
  });

  test('under a key that this replica has not hides none of those it can open', async t => {
    const rows = database.kysely.updateTable('outbox');
    const hanging = rows.where('receiver', '=', HANGING_RECEIVER);
    await hanging.set({ secret_key_id: 'another' }).execute();
    t.deepEqual(await drained({ destinations: [] }), QUIET_RECEIVERS);
    await givenBack();
    await hanging.set({ secret_key_id: SECRET_KEY_ID }).execute();
    t.is(await stores.outbox.countSealedWithOthers([SECRET_KEY_ID]), 0);
  });

  test('of many receivers is looked through for other keys no further than to a bound', async t => {
    const last = [...QUIET_RECEIVERS, HANGING_RECEIVER].sort().at(-1)!;
    const rows = database.kysely.updateTable('outbox').where('receiver', '=', last);
    await rows.set({ secret_key_id: 'another' }).execute();
    t.is(await countSealedWithOthers(database, [SECRET_KEY_ID], QUIET), 0);
    t.true((await countSealedWithOthers(database, [SECRET_KEY_ID])) > 0);
    await rows.set({ secret_key_id: SECRET_KEY_ID }).execute();
  });

  test('is counted', async t => {
    const { count, oldestMs } = await stores.outbox.due();
    t.is(count, BACKLOG + QUIET);
    t.true(oldestMs >= HOUR_MS - 5000);
  });
});
