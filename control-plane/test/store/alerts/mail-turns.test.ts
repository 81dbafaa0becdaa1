/** Whose mail is next: accounts take turns, however many mails wait. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { beforeEach, it } from 'node:test';
import { HEAD_MAX } from '../../../src/store/outbox/outbox-due.ts';
import { insertMail } from '../../../src/store/outbox/outbox-rows.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { dueMails, mailEnd } from '../alerts-fixtures.ts';
import { describeStores, storesOn } from '../fixtures.ts';

const HOUR_MS = 3_600_000;

describeStores('turns of mails', ({ database }) => {
  let stores: Stores;

  beforeEach(async () => {
    await database.kysely.deleteFrom('outbox').execute();
    // Another place in the turns.
    stores = storesOn(database);
  });

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

  it('go round the accounts, one mail each', async () => {
    await put('a', 3);
    await put('b', 1);
    await put('c', 2);
    assert.deepEqual(await sent(9), ['a', 'b', 'c', 'a', 'c', 'a']);
    await put('a', 2);
    await put('b', 2);
    const all = await dueMails(stores, 9);
    assert.deepEqual(
      all.map(mail => mail.accountId),
      ['b', 'a', 'b', 'a'],
    );
    const [other] = await dueMails(stores, 9, ['a']);
    assert.equal(other?.accountId, 'b');
  });

  it('reach everybody past accounts with more mails than are looked at', async () => {
    await put('crowd', HEAD_MAX);
    await put('mob', 2);
    await put('zoe', 1);
    await put('ada', 1);
    const turns = await sent(4);
    assert.deepEqual(turns.sort(), ['ada', 'crowd', 'mob', 'zoe']);
  });

  it('leave no place empty where the accounts that are seen have nothing that is due', async () => {
    await put('zoe', HEAD_MAX);
    for (let later = 0; later < HEAD_MAX; later += 1) await put(`later${later}`, 1);
    await database.kysely
      .updateTable('outbox')
      .set({ next_attempt_at: Date.now() + HOUR_MS })
      .where('account_id', 'like', 'later%')
      .execute();
    assert.deepEqual(await sent(2), ['zoe', 'zoe']);
  });
});
