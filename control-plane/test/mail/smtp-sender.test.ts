/** Mails through a small server of the test's own. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { MailServer } from '../../../test/support/mail-server.ts';
import { SmtpSender } from '../../src/mail/smtp-sender.ts';

const MAIL = {
  id: '00000000-0000-4000-8000-000000000001',
  to: 'ann@shop.example',
  subject: 'Invitation',
  text: 'Grüße: https://matting.example/account',
};

describe('mails by SMTP', () => {
  let server: MailServer;
  before(async () => {
    server = await MailServer.start();
  });
  after(() => server.close());

  const send = (signal = new AbortController().signal, mail = MAIL) =>
    new SmtpSender({ smtpUrl: server.url, from: 'matting@shop.example' }).send(mail, signal);

  it('are plain text with an id of their own', async () => {
    assert.deepEqual(await send(), { kind: 'sent' });
    const { received } = server;
    assert.match(received, /^Message-ID: <00000000-0000-4000-8000-000000000001@shop\.example>$/m);
    assert.match(received, /^From: matting@shop\.example$/m);
    assert.match(received, /^Content-Type: text\/plain; charset=utf-8$/m);
    assert.match(received, /Gr=C3=BC=C3=9Fe/);
  });

  it('have one recipient, whatever it is called', async () => {
    for (const to of [
      'a@b.example, c@d.example',
      'A <a@b.example>, c@d.example',
      'x: a@b.example;',
    ]) {
      server.recipients.length = 0;
      await send(undefined, { ...MAIL, to });
      assert.ok(server.recipients.length <= 1, server.recipients.join());
    }
  });

  it('are refused for good where the server takes no such address', async () => {
    server.answers.set('RCPT', '550 nobody here');
    assert.deepEqual(await send(), { kind: 'refused', error: 'EENVELOPE-550' });
    server.answers.set('RCPT', '451 later');
    assert.deepEqual(await send(), { kind: 'later', error: 'EENVELOPE-451' });
    server.answers.clear();
  });

  it('wait where nobody answers, and end with their time', async () => {
    server.answers.set('greeting', '');
    const cut = new AbortController();
    const connected = server.connection();
    const sending = send(cut.signal);
    await connected;
    cut.abort();
    assert.deepEqual(await sending, { kind: 'later', error: 'ended' });
    server.answers.clear();
    const nobody = new SmtpSender({ smtpUrl: 'smtp://127.0.0.1:1', from: 'a@b.example' });
    const outcome = await nobody.send(MAIL, new AbortController().signal);
    assert.equal(outcome.kind, 'later');
  });
});
