/** Keys that end, under two replicas: whose owners are told, once, and in which words. */
import assert from 'node:assert/strict';
import { CallbackSecrets, mailBody, SecretBox } from '@matting/core/secrets/secret-box.ts';
import { fundedAccount, OPERATOR } from '@matting/core/test/fixtures.ts';
import { silent } from '@matting/core/test/harness.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import ava from 'ava';
import { addOwner } from '../test/alerts-fixtures.ts';
import { onStoresInCi, type Stores, storesOn } from '../test/fixtures.ts';
import { KEY_END_TOLD_MS, KeyEndWatch, keyEndMail } from './key-ends.ts';
import type { Withheld } from './messages.ts';

const test = ava.serial;

const DAY_MS = 86_400_000;
const SECRETS = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 1)));

onStoresInCi(test, 'ends of keys under two replicas', (test, { databases, database, stores }) => {
  let replicas: readonly Stores[];
  const withheld: Withheld[] = [];

  test.before(async () => {
    replicas = [stores, storesOn(await databases.open())];
  });

  const watchOf = (replica: Stores, messagesMax: number) =>
    new KeyEndWatch({
      ...replica,
      secrets: SECRETS,
      messagesMax,
      onWithheld: (_accountId, one) => withheld.push(one),
      keysUrl: 'https://matting.example/account/keys',
      log: silent,
    });
  const look = (messagesMax = 100) =>
    Promise.all([...replicas, ...replicas].map(one => watchOf(one, messagesMax).look()));

  async function accountWithOwners(): Promise<string> {
    const accountId = await fundedAccount(stores, 0);
    await addOwner(database, accountId, `ada@${accountId}.test`);
    await addOwner(database, accountId, `bob@${accountId}.test`);
    return accountId;
  }

  async function keyOf(accountId: string, expiresInMs?: number) {
    const ends = expiresInMs === undefined ? {} : { expiresInMs };
    return (await stores.apiKeys.create(accountId, 'shop', ends)).key;
  }

  const mailsOf = (accountId: string) =>
    rowsOf(database.kysely, 'outbox', { kind: 'mail', account_id: accountId });

  test('tells every owner once of a key that ends within 14 days, whoever looks', async t => {
    const accountId = await accountWithOwners();
    const key = await keyOf(accountId, KEY_END_TOLD_MS - 60_000);
    await look();
    await look();
    const mails = await mailsOf(accountId);
    t.deepEqual(mails.map(({ address }) => address.slice(0, 3)).sort(), ['ada', 'bob']);
    const [mail] = mails;
    assert.ok(mail);
    const text = SECRETS.openText(mail.body, mailBody(mail.id)) ?? '';
    t.true(text.includes(`https://matting.example/account/keys/${key.id}`));
    t.true(text.includes(new Date(key.expiresAtMs ?? 0).toISOString().slice(0, 10)));
  });

  test('tells it again of a later end alone', async t => {
    const accountId = await accountWithOwners();
    const { id } = await keyOf(accountId, DAY_MS);
    await look();
    const policy = {};
    const by = { accountId, actor: OPERATOR };
    await stores.apiKeys.change(id, by, { policy, expires: { inMs: 60 * DAY_MS } });
    await look();
    t.is((await mailsOf(accountId)).length, 2);
    await stores.apiKeys.change(id, by, { policy, expires: { inMs: 2 * DAY_MS } });
    await look();
    t.is((await mailsOf(accountId)).length, 4);
  });

  test('tells nothing of keys that end later or never, have ended or are revoked', async t => {
    const accountId = await accountWithOwners();
    await keyOf(accountId);
    await keyOf(accountId, KEY_END_TOLD_MS + 60_000);
    const ended = await keyOf(accountId, DAY_MS);
    const past = database.kysely.updateTable('api_keys').set({ expires_at: 1 });
    await past.where('id', '=', ended.id).execute();
    const revoked = await keyOf(accountId, DAY_MS);
    await stores.apiKeys.revoke(revoked.id, { accountId, actor: OPERATOR });
    await look();
    t.deepEqual(await mailsOf(accountId), []);
  });

  test('sends no more mails than the account may, and says that it withheld some', async t => {
    const accountId = await accountWithOwners();
    await keyOf(accountId, DAY_MS);
    withheld.length = 0;
    await look(1);
    t.is((await mailsOf(accountId)).length, 1);
    t.deepEqual(withheld, [{ reason: 'account', isFirst: true }]);
  });

  test('goes through more keys than a page has', async t => {
    const accountId = await accountWithOwners();
    const keys = [await keyOf(accountId, DAY_MS), await keyOf(accountId, DAY_MS)];
    const found: string[] = [];
    for (let after: string | undefined = ''; after !== undefined; ) {
      const page = await stores.keyEnds.look(after, 1);
      found.push(...page.ending.map(({ id }) => id));
      after = page.next;
    }
    t.deepEqual(
      keys.map(({ id }) => found.includes(id)),
      [true, true],
    );
  });
});

test('the mail names the key, its end and where to go, in the language of its reader', t => {
  const key = { id: 'abcdefghijkl', name: 'shop\n', endsAtMs: Date.UTC(2027, 1, 3, 4, 5) };
  const keysUrl = 'https://m.example/account/keys';
  const english = keyEndMail({ key, keysUrl }, null);
  t.is(english.subject, 'The API key "shop " ends on 2027-02-03');
  t.regex(english.text, /mk_abcdefghijkl\) ends on 2027-02-03 at 04:05 UTC/);
  const chinese = keyEndMail({ key, keysUrl }, 'zh-CN');
  t.regex(chinese.subject, /2027-02-03 到期/);
  for (const { text } of [english, chinese]) t.true(text.includes(`${keysUrl}/abcdefghijkl`));
});
