import assert from 'node:assert/strict';
import { CallbackSecrets, mailBody, SecretBox } from '@matting/core/secrets/secret-box.ts';
import { fundedAccount, OPERATOR } from '@matting/core/test/fixtures.ts';
import { silent } from '@matting/core/test/harness.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import ava from 'ava';
import type { Withheld } from '../mails/messages.ts';
import { addOwner, inviteAtMost, nextDay } from '../test/alerts-fixtures.ts';
import { onStoresInCi, type Stores, storesOn } from '../test/fixtures.ts';
import { expiryMail, KeyExpiryWatch } from './key-expiry-notices.ts';

const test = ava.serial;

const SECRETS = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 1)));

onStoresInCi(
  test,
  'key expiry notices under two replicas',
  (test, { databases, database, stores }) => {
    let replicas: readonly Stores[];
    const withheld: Withheld[] = [];

    test.before(async () => {
      replicas = [stores, storesOn(await databases.open())];
    });

    const watchOf = (replica: Stores, messagesMax: number) =>
      new KeyExpiryWatch({
        ...replica,
        secrets: SECRETS,
        messagesMax,
        onWithheld: (_accountId, one) => withheld.push(one),
        keysUrl: 'https://matting.example/account/keys',
        log: silent,
      });
    const poll = (messagesMax = 100) =>
      Promise.all([...replicas, ...replicas].map(one => watchOf(one, messagesMax).poll()));

    async function accountWithOwners(): Promise<string> {
      const accountId = await fundedAccount(stores, 0);
      await addOwner(database, accountId, `ada@${accountId}.test`);
      await addOwner(database, accountId, `bob@${accountId}.test`);
      return accountId;
    }

    async function keyOf(accountId: string, expiresInMs?: number) {
      const expiry = expiresInMs === undefined ? {} : { expiresInMs };
      return (await stores.apiKeys.create(accountId, 'shop', expiry)).key;
    }

    const mailsOf = (accountId: string) =>
      rowsOf(database.kysely, 'outbox', { kind: 'mail', account_id: accountId });

    test('reach every owner once, 14 days before a key expires, whichever replica looks', async t => {
      const accountId = await accountWithOwners();
      const key = await keyOf(accountId, 14 * DAY_MS - 60_000);
      await poll();
      await poll();
      const mails = await mailsOf(accountId);
      t.deepEqual(mails.map(({ address }) => address.slice(0, 3)).sort(), ['ada', 'bob']);
      const [mail] = mails;
      assert.ok(mail);
      const text = SECRETS.openText(mail.body, mailBody(mail.id)) ?? '';
      t.true(text.includes(`https://matting.example/account/keys/${key.id}`));
      t.true(text.includes(new Date(key.expiresAtMs ?? 0).toISOString().slice(0, 10)));
    });

    test('are sent again for a later expiry only', async t => {
      const accountId = await accountWithOwners();
      const { id } = await keyOf(accountId, DAY_MS);
      await poll();
      const policy = {};
      const by = { accountId, actor: OPERATOR };
      await stores.apiKeys.change(id, by, { policy, expires: { inMs: 60 * DAY_MS } });
      await poll();
      t.is((await mailsOf(accountId)).length, 2);
      await stores.apiKeys.change(id, by, { policy, expires: { inMs: 2 * DAY_MS } });
      await poll();
      t.is((await mailsOf(accountId)).length, 4);
    });

    test('are not sent for keys that expire later or never, have expired or are revoked', async t => {
      const accountId = await accountWithOwners();
      await keyOf(accountId);
      await keyOf(accountId, 14 * DAY_MS + 60_000);
      const expired = await keyOf(accountId, DAY_MS);
      const past = database.kysely.updateTable('api_keys').set({ expires_at: 1 });
      await past.where('id', '=', expired.id).execute();
      const revoked = await keyOf(accountId, DAY_MS);
      await stores.apiKeys.revoke(revoked.id, { accountId, actor: OPERATOR });
      await poll();
      t.deepEqual(await mailsOf(accountId), []);
    });

    test('are no more mails than the account may send, and what is withheld is said', async t => {
      const accountId = await accountWithOwners();
      await keyOf(accountId, DAY_MS);
      withheld.length = 0;
      await poll(1);
      t.is((await mailsOf(accountId)).length, 1);
      t.deepEqual(withheld, [{ reason: 'account', isFirst: true }]);
    });

    test('that the quota keeps back reach the remaining owners on the next day, once', async t => {
      const accountId = await accountWithOwners();
      await keyOf(accountId, 3 * DAY_MS);
      const whom = async () => (await mailsOf(accountId)).map(({ address }) => address.slice(0, 3));
      await poll(0);
      t.deepEqual(await whom(), []);
      withheld.length = 0;
      await poll();
      t.deepEqual([await whom(), withheld], [[], []], 'one try a day');
      await nextDay(database);
      await poll(1);
      const [first] = await whom();
      t.is((await whom()).length, 1);
      await nextDay(database);
      await poll();
      await nextDay(database);
      await poll();
      t.deepEqual((await whom()).sort(), ['ada', 'bob'], `after ${first}`);
    });

    test('reach an owner whom other accounts have invited as often as they may', async t => {
      const accountId = await accountWithOwners();
      const to = `ada@${accountId}.test`;
      const strangers = await Promise.all([fundedAccount(stores, 0), fundedAccount(stores, 0)]);
      for (const stranger of strangers) await inviteAtMost(stores, stranger, to);
      await keyOf(accountId, DAY_MS);
      withheld.length = 0;
      await poll();
      t.is((await mailsOf(accountId)).length, 2);
      t.deepEqual(withheld, []);
    });

    test('cover more keys than a page has', async t => {
      const accountId = await accountWithOwners();
      const keys = [await keyOf(accountId, DAY_MS), await keyOf(accountId, DAY_MS)];
      const found: string[] = [];
      for (let after: string | undefined = ''; after !== undefined; ) {
        const filter = { after, withinMs: 2 * DAY_MS, limit: 1 };
        const page = await stores.apiKeys.listExpiring(filter);
        found.push(...page.expiring.map(({ id }) => id));
        after = page.next;
      }
      t.deepEqual(
        keys.map(({ id }) => found.includes(id)),
        [true, true],
      );
    });
  },
);

test('the mail names the key, its expiry and where to go, in the language of its reader', t => {
  const key = {
    ...{ id: 'abcdefghijkl', prefix: 'mk_abcdefghijkl', name: 'shop\n' },
    expiresAtMs: Date.UTC(2027, 1, 3, 4, 5),
  };
  const keysUrl = 'https://m.example/account/keys';
  const english = expiryMail({ key, keysUrl }, null);
  t.regex(english.subject, /"shop " .*2027-02-03$/);
  t.regex(english.text, /mk_abcdefghijkl\) .*2027-02-03 at 04:05 UTC/);
  const chinese = expiryMail({ key, keysUrl }, 'zh-CN');
  t.regex(chinese.subject, /2027-02-03 到期/);
  for (const { text } of [english, chinese]) t.true(text.includes(`${keysUrl}/abcdefghijkl`));
});
