/** Mails through a small server of the test's own. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { SmtpSender } from '../../src/mail/smtp-sender.ts';

const MAIL = {
  id: '00000000-0000-4000-8000-000000000001',
  to: 'ann@shop.example',
  subject: 'Invitation',
  text: 'Grüße: https://matting.example/account',
};

describe('mails by SMTP', () => {
  const server = createServer(socket => converse(socket));
  /** Answers to commands, by their first word. */
  const answers = new Map<string, string>();
  let received = '';
  let url = '';

  function converse(socket: Socket): void {
    let inData = false;
    if (answers.get('greeting') === 'silence') return;
    socket.write('220 test ESMTP\r\n');
    socket.setEncoding('utf8').on('data', (text: unknown) => {
      const lines = String(text).split('\r\n');
      for (const line of lines) {
        if (inData) {
          received += `${line}\n`;
          if (line !== '.') continue;
          inData = false;
          socket.write('250 taken\r\n');
        } else if (line !== '') {
          const [word = ''] = line.toUpperCase().split(' ');
          inData = word === 'DATA' && !answers.has('DATA');
          socket.write(answers.get(word) ?? (inData ? '354 go on\r\n' : '250 fine\r\n'));
        }
      }
    });
    socket.on('error', () => undefined);
  }

  before(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => {
    server.close();
  });

  const send = (signal = new AbortController().signal) =>
    new SmtpSender({ smtpUrl: url, from: 'matting@shop.example' }).send(MAIL, signal);

  it('are plain text with an id of their own', async () => {
    assert.deepEqual(await send(), { kind: 'sent' });
    assert.match(received, /^Message-ID: <00000000-0000-4000-8000-000000000001@shop\.example>$/m);
    assert.match(received, /^From: matting@shop\.example$/m);
    assert.match(received, /^Content-Type: text\/plain; charset=utf-8$/m);
    assert.match(received, /Gr=C3=BC=C3=9Fe/);
  });

  it('are refused for good where the server takes no such address', async () => {
    answers.set('RCPT', '550 nobody here\r\n');
    assert.deepEqual(await send(), { kind: 'refused', error: 'EENVELOPE-550' });
    answers.set('RCPT', '451 later\r\n');
    assert.deepEqual(await send(), { kind: 'later', error: 'EENVELOPE-451' });
    answers.clear();
  });

  it('wait where nobody answers, and end with their time', async () => {
    answers.set('greeting', 'silence');
    const cut = new AbortController();
    const sending = send(cut.signal);
    await once(server, 'connection');
    cut.abort();
    assert.deepEqual(await sending, { kind: 'later', error: 'ended' });
    answers.clear();
    const nobody = new SmtpSender({ smtpUrl: 'smtp://127.0.0.1:1', from: 'a@b.example' });
    const outcome = await nobody.send(MAIL, new AbortController().signal);
    assert.equal(outcome.kind, 'later');
  });
});
