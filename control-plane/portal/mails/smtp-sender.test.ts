import { MailServer } from '@matting/test-support/mail-server.ts';
import ava from 'ava';
import { SmtpSender } from './send-mails.ts';

const test = ava.serial;

const MAIL = {
  id: '00000000-0000-4000-8000-000000000001',
  to: 'ann@shop.example',
  subject: 'Invitation',
  text: 'Grüße: https://matting.example/account',
};

let server: MailServer;
test.before(async () => {
  server = await MailServer.start();
});
test.after.always(() => server.close());

const send = (signal = new AbortController().signal, mail = MAIL) =>
  new SmtpSender({ smtpUrl: server.url, from: 'matting@shop.example' }).send(mail, signal);

test('are plain text with an id of their own', async t => {
  t.deepEqual(await send(), { kind: 'sent' });
  const { received } = server;
  t.regex(received, /^Message-ID: <00000000-0000-4000-8000-000000000001@shop\.example>$/m);
  t.regex(received, /^From: matting@shop\.example$/m);
  t.regex(received, /^Content-Type: text\/plain; charset=utf-8$/m);
  t.regex(received, /Gr=C3=BC=C3=9Fe/);
});

test('come from the service by its name, and end with it', async t => {
  const name = 'Studio, "Inc."';
  const sender = new SmtpSender({ smtpUrl: server.url, from: 'matting@shop.example', name });
  t.deepEqual(await sender.send(MAIL, new AbortController().signal), { kind: 'sent' });
  t.regex(server.received, /^From: "Studio, \\"Inc\.\\"" <matting@shop\.example>$/m);
  t.regex(server.received, /^--(?: |=20)\r?\nStudio, "Inc\."/m);
});

test('have one recipient, whatever it is called', async t => {
  for (const to of [
    'a@b.example, c@d.example',
    'A <a@b.example>, c@d.example',
    'x: a@b.example;',
  ]) {
    server.recipients.length = 0;
    await send(undefined, { ...MAIL, to });
    t.true(server.recipients.length <= 1, server.recipients.join());
  }
});

test('are refused for good where the server takes no such address', async t => {
  server.answers.set('RCPT', '550 nobody here');
  t.deepEqual(await send(), { kind: 'refused', error: 'EENVELOPE-550' });
  server.answers.set('RCPT', '451 later');
  t.deepEqual(await send(), { kind: 'later', error: 'EENVELOPE-451' });
  server.answers.clear();
});

test('wait where nobody answers, and end with their time', async t => {
  server.answers.set('greeting', '');
  const cut = new AbortController();
  const connected = server.connection();
  const sending = send(cut.signal);
  await connected;
  cut.abort();
  t.deepEqual(await sending, { kind: 'later', error: 'ended' });
  server.answers.clear();
  const nobody = new SmtpSender({ smtpUrl: 'smtp://127.0.0.1:1', from: 'a@b.example' });
  const outcome = await nobody.send(MAIL, new AbortController().signal);
  t.is(outcome.kind, 'later');
});
