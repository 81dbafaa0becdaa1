/** What an account's people have mailed to others: how it lies, and what becomes of what is withdrawn. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { RECIPIENT_ACCOUNT_MAILS_MAX } from '../../../src/domain/account/message-limits.ts';
import { dueMails, mailEnd } from '../../store/alerts-fixtures.ts';
import { SMTP } from '../../support/mail.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

/** Of an account a day. */
const MAILS = 6;

let owner: SignedInBrowser;
const fixture = useTestApp(test, { mail: SMTP, accountMails: MAILS }, async () => {
  owner = await signIn(fixture);
});

const waiting = () => dueMails(fixture.stores, 100);

const invite = (mail: string) => owner.post('/account/people/invite', { mail, role: 'member' });

async function withdrawAll(): Promise<void> {
  const page = await owner.get('/account/people');
  for (const [, id] of page.body.matchAll(/invitations\/([0-9a-f-]{36})\/withdraw/g)) {
    const gone = await owner.post(`/account/people/invitations/${id}/withdraw`);
    assert.equal(gone.statusCode, 303);
  }
}

test('bring no invitation that was withdrawn, not even where an attempt to send it failed', async t => {
  await invite('early@example.org');
  await withdrawAll();
  t.deepEqual(await waiting(), []);
  await invite('late@example.org');
  const [mail] = await waiting();
  assert.ok(mail);
  t.is(mail.address, 'late@example.org');
  const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
  t.truthy(await fixture.stores.outbox.claim(claim, 60_000));
  await withdrawAll();
  t.false(await fixture.stores.outbox.retryLater(claim, mailEnd('E451'), 0));
  t.deepEqual(await waiting(), []);
});

test('hold no link that who reads the database could use', async t => {
  await invite('sealed@example.org');
  const [mail] = await waiting();
  assert.ok(mail);
  t.false(mail.body.includes('/account/invitations/'));
  t.regex(mail.body, /^[0-9a-f]{16}\.[\w+/]+=*$/);
  await withdrawAll();
});

test('are so many a day, and an invitation beyond them is refused before anything is made', async t => {
  const sent = async () =>
    (await fixture.stores.alertSettings.read(fixture.accountId)).sentToday.mails;
  for (let count = await sent(); count < MAILS; count += 1) await invite(`${count}@example.org`);
  t.regex((await owner.get('/account/settings')).body, /has sent its 6 mails of today/);
  const refused = await invite('beyond@example.org');
  t.is(refused.statusCode, 422);
  t.regex(refused.body, /This account has sent all its mails of today/);
  const page = await owner.get('/account/people');
  t.false(page.body.includes('beyond@example.org'));
  t.false((await owner.get('/account/audit')).body.includes('beyond@example.org'));
  t.true((await waiting()).every(mail => mail.address !== 'beyond@example.org'));
  const neighbour = await signInElsewhere(fixture);
  const made = await neighbour.post('/account/people/invite', {
    mail: 'beyond@example.org',
    role: 'member',
  });
  t.is(made.statusCode, 200, 'another account has its own');
  await withdrawAll();
  t.is((await invite('late@example.org')).statusCode, 422, 'what was withdrawn counts');
});

test('stop at an address that had enough of this account, and say so', async t => {
  const patient = await openTestApp({ mail: SMTP }, t);
  const insistent = await signIn(patient);
  const victim = { mail: 'victim@example.org', role: 'member' };
  const again = () => insistent.post('/account/people/invite', victim);
  for (let count = 0; count < RECIPIENT_ACCOUNT_MAILS_MAX; count += 1) {
    t.is((await again()).statusCode, 200);
  }
  const refused = await again();
  t.is(refused.statusCode, 422);
  t.regex(refused.body, /This address got as many mails from here today as one may/);
  t.false((await insistent.get('/account/settings')).body.includes('has sent its'));
});
