import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { placed } from '../test/orders.ts';
import { useTestApp } from '../test/portal-app.ts';
import { type SignedInBrowser, signIn } from '../test/signed-in-browser.ts';

const test = ava.serial;
let owner: SignedInBrowser;
const fixture = useTestApp(test, {}, async () => {
  owner = await signIn(fixture);
});

test('the audit log › says values in words, and nothing of what was not set', async t => {
  const name = `key ${randomUUID().slice(0, 8)}`;
  await owner.post('/account/keys', {
    ...{ name, expires: '30', cap: '', period: 'month', rate: '' },
    ...{ scopes: 'read', networks: '' },
  });
  const { body } = await owner.get('/account/audit');
  const row = body.split('<tr>').find(one => one.includes(name)) ?? '';
  t.regex(row, /<dt>Permissions<\/dt><dd>read<\/dd>/);
  t.regex(row, /<dt>Expires<\/dt><dd><time datetime="[^"]+">\d+ \w+ \d{4}, \d\d:\d\d UTC<\/time>/);
  t.notRegex(row, /–|submissions_per_minute|>\d{4}-\d\d-\d\dT/);
});

test('the audit log › has prices in their currency', async t => {
  const { stores, accountId } = fixture;
  await placed(stores, accountId);
  const { body } = await owner.get('/account/audit');
  const row = body.split('<tr>').find(one => one.includes('Order placed')) ?? '';
  t.regex(row, /<dt>Price<\/dt><dd>CNY\s[\d.,]+\.\d\d<\/dd>/);
  t.notRegex(row, /<dt>Currency/);
});
