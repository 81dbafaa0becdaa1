/** What an account's people have mailed to others: how it lies, and what becomes of what is withdrawn. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { SMTP } from '../../support/mail.ts';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { openTestApp, type TestApp } from '../../support/test-app.ts';

describe('mails that an account has sent', () => {
  let test: TestApp;
  let owner: SignedInBrowser;

  before(async () => {
    test = await openTestApp({ mail: SMTP });
    owner = await signIn(test);
  });
  after(() => test.close());

  const waiting = () => test.stores.mailOutbox.listDue(100, []);

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
    assert.equal(mail?.recipient, 'late@example.org');
    const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
    assert.ok(await test.stores.mailOutbox.claim(claim, 60_000));
    await withdrawAll();
    assert.equal(await test.stores.mailOutbox.retryLater(claim, 'E451', 0), false);
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
});
