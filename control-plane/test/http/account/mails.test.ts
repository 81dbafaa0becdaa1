/** What an account's people have mailed to others: how it lies, and what becomes of what is withdrawn. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RECIPIENT_ACCOUNT_MAILS_MAX } from '../../../src/domain/account/message-limits.ts';
import { dueMails, mailEnd } from '../../store/alerts-fixtures.ts';
import { SMTP } from '../../support/mail.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

/** Of an account a day. */
const MAILS = 6;

describe('mails that an account has sent', () => {
  let owner: SignedInBrowser;
  const test = useTestApp({ mail: SMTP, accountMails: MAILS }, async () => {
    owner = await signIn(test);
  });

  const waiting = () => dueMails(test.stores, 100);

  const invite = (mail: string) => owner.post('/account/people/invite', { mail, role: 'member' });

  async function withdrawAll(): Promise<void> {
    const page = await owner.get('/account/people');
    for (const [, id] of page.body.matchAll(/invitations\/([0-9a-f-]{36})\/withdraw/g)) {
      const gone = await owner.post(`/account/people/invitations/${id}/withdraw`);
      assert.equal(gone.statusCode, 303);
    }
  }

  it('bring no invitation that was withdrawn, not even where an attempt to send it failed', async () => {
    await invite('early@example.org');
    await withdrawAll();
    assert.deepEqual(await waiting(), []);
    await invite('late@example.org');
    const [mail] = await waiting();
    assert.equal(mail?.address, 'late@example.org');
    const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
    assert.ok(await test.stores.outbox.claim(claim, 60_000));
    await withdrawAll();
    assert.equal(await test.stores.outbox.retryLater(claim, mailEnd('E451'), 0), false);
    assert.deepEqual(await waiting(), []);
  });

  it('hold no link that who reads the database could use', async () => {
    await invite('sealed@example.org');
    const [mail] = await waiting();
    assert.ok(mail);
    assert.ok(!mail.body.includes('/account/invitations/'));
    assert.match(mail.body, /^[0-9a-f]{16}\.[\w+/]+=*$/);
    await withdrawAll();
  });

  it('are so many a day, and an invitation beyond them is refused before anything is made', async () => {
    const sent = async () => (await test.stores.alertSettings.read(test.accountId)).sentToday.mails;
    for (let count = await sent(); count < MAILS; count += 1) await invite(`${count}@example.org`);
    assert.match((await owner.get('/account/settings')).body, /has sent its 6 mails of today/);
    const refused = await invite('beyond@example.org');
    assert.equal(refused.statusCode, 422);
    assert.match(refused.body, /This account has sent all its mails of today/);
    const page = await owner.get('/account/people');
    assert.ok(!page.body.includes('beyond@example.org'));
    assert.ok(!(await owner.get('/account/audit')).body.includes('beyond@example.org'));
    assert.ok((await waiting()).every(mail => mail.address !== 'beyond@example.org'));
    const neighbour = await signInElsewhere(test);
    const made = await neighbour.post('/account/people/invite', {
      mail: 'beyond@example.org',
      role: 'member',
    });
    assert.equal(made.statusCode, 200, 'another account has its own');
    await withdrawAll();
    assert.equal((await invite('late@example.org')).statusCode, 422, 'what was withdrawn counts');
  });

  it('stop at an address that had enough of this account, and say so', async t => {
    const patient = await openTestApp({ mail: SMTP }, t);
    const insistent = await signIn(patient);
    const victim = { mail: 'victim@example.org', role: 'member' };
    const again = () => insistent.post('/account/people/invite', victim);
    for (let count = 0; count < RECIPIENT_ACCOUNT_MAILS_MAX; count += 1) {
      assert.equal((await again()).statusCode, 200);
    }
    const refused = await again();
    assert.equal(refused.statusCode, 422);
    assert.match(refused.body, /This address got as many mails from here today as one may/);
    assert.equal((await insistent.get('/account/settings')).body.includes('has sent its'), false);
  });
});
