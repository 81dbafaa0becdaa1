/** Whose mail is next: accounts take turns, however many mails wait. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { HEAD_MAX } from '../../../src/store/outbox/outbox-due.ts';
import { insertMail } from '../../../src/store/outbox/outbox-rows.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { dueMails, mailEnd } from '../alerts-fixtures.ts';
import { onStores, storesOn } from '../fixtures.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

onStores(test, 'turns of mails', (test, { database }) => {
  let stores: Stores;

  const prepare = async () => {
    await database.kysely.deleteFrom('outbox').execute();
    // Another place in the turns.
    stores = storesOn(database);
  };

  async function put(accountId: string, count: number): Promise<void> {
    for (let mails = 0; mails < count; mails += 1) {
      const mail = { id: randomUUID(), recipient: 'a@b.test', subject: 'low', body: 'text' };
      await insertMail(database, database.kysely, { ...mail, accountId });
    }
  }

  /** The accounts whose mails are sent one after the other. */
  async function sent(count: number): Promise<string[]> {
    const accounts: string[] = [];
    for (let mails = 0; mails < count; mails += 1) {
      const [mail] = await dueMails(stores, 1);
      if (mail === undefined) break;
      accounts.push(mail.accountId);
      const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
      assert.ok(await stores.outbox.claim(claim, HOUR_MS));
      assert.ok(await stores.outbox.delivered(claim, mailEnd()));
    }
    return accounts;
  }

  test('go round the accounts, one mail each', async t => {
    await prepare();
    await put('a', 3);
    await put('b', 1);
    await put('c', 2);
    t.deepEqual(await sent(9), ['a', 'b', 'c', 'a', 'c', 'a']);
    await put('a', 2);
    await put('b', 2);
    const all = await dueMails(stores, 9);
    t.deepEqual(
      all.map(mail => mail.accountId),
      ['b', 'a', 'b', 'a'],
    );
    const [other] = await dueMails(stores, 9, ['a']);
    t.is(other?.accountId, 'b');
  });

  test('reach everybody past accounts with more mails than are looked at', async t => {
    await prepare();
    await put('crowd', HEAD_MAX);
    await put('mob', 2);
    await put('zoe', 1);
    await put('ada', 1);
    const turns = await sent(4);
    t.deepEqual(turns.sort(), ['ada', 'crowd', 'mob', 'zoe']);
  });

  test('leave no place empty where the accounts that are seen have nothing that is due', async t => {
    await prepare();
    await put('zoe', HEAD_MAX);
    for (let later = 0; later < HEAD_MAX; later += 1) await put(`later${later}`, 1);
    await database.kysely
      .updateTable('outbox')
      .set({ next_attempt_at: Date.now() + HOUR_MS })
      .where('account_id', 'like', 'later%')
      .execute();
    t.deepEqual(await sent(2), ['zoe', 'zoe']);
  });
});
