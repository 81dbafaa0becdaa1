/** Pages about mails: the mail server is away or takes none of ours. */
import ava from 'ava';
import { at } from '../support/at.ts';
import { MailServer } from '../support/mail-server.ts';
import { Installation } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const FROM = 'matting@shop.example';
/** More than the alert's ten minutes, and than the wait before a third attempt. */
const PASSED_MS = 11 * 60_000;

const service = new Installation();
const procedure = proceduresOn(service, test);
let mails: MailServer;
test.before(async () => {
  mails = await MailServer.start();
});
service.use(test, () => ({
  env: { MATTING_SMTP_URL: mails.url, MATTING_MAIL_FROM: FROM },
}));
test.after.always(async () => {
  await mails?.close();
});

async function restart(variables = {}, meanwhile?: () => Promise<unknown>): Promise<void> {
  const plane = at(service.planes, 0);
  await plane.stop();
  await meanwhile?.();
  plane.start(variables);
  await service.ready();
}

/** Mails that wait have waited for so long more. */
async function timePasses(): Promise<void> {
  const columns = ['created_at', 'next_attempt_at', 'last_attempt_at'];
  const set = columns.map(column => `${column} = ${column} - ${PASSED_MS}`).join();
  await service.database.ask(
    `update matting.outbox set ${set} where kind = 'mail' and next_attempt_at is not null`,
  );
}

async function isPutOff(): Promise<boolean> {
  const rows = await service.database.ask(
    `select id from matting.outbox
        where kind = 'mail' and next_attempt_at > 1000 * unix_timestamp(now(3)) and lease_holder is null`,
  );
  return rows.length === 1;
}

const isReceived = (mail: string) =>
  service.until(`${mail} has a mail`, () => mails.received.includes(`To: ${mail}`));

procedure('MattingMailsLate', async (page, t) => {
  const plane = at(service.planes, 0);
  const { port } = mails;
  await mails.close();
  await service.matting('accounts invite shop ann@shop.example');
  await plane.line('a mail was not taken', { error: 'ESOCKET', attempt: 1 });
  await timePasses();
  await page.fires();
  // It is there again, and its administrator has changed the password.
  mails.answers.set('AUTH', '535 wrong password');
  const url = `smtp://matting:secret@127.0.0.1:${port}`;
  await restart({ MATTING_SMTP_URL: url }, () => mails.listen(port));
  await timePasses();
  await plane.line('a mail was not taken', { error: 'EAUTH-535' });
  await page.fires();
  await service.until('the mail waits for its next attempt', isPutOff);
  mails.answers.clear();
  const { out } = await page.run('npm run matting -- accounts invite <account> <mail>', {
    account: 'shop',
    mail: 'ann@shop.example',
  });
  t.regex(out, /https?:/);
  const retried = await page.run('npm run matting -- mails retry');
  t.regex(retried.out, /tried again now: 1\n/);
  await isReceived('ann@shop.example');
  await page.isOver();
});

procedure('MattingMailsRefused', async (page, t) => {
  const plane = at(service.planes, 0);
  mails.answers.clear();
  mails.answers.set('RCPT', '550 nobody here');
  await service.matting('accounts invite shop nobody@shop.example');
  const [firing] = await page.fires();
  t.is(firing?.outcome, 'refused');
  const line = await plane.line('a mail is given up');
  t.is(typeof line.accountId, 'string');
  t.notRegex(JSON.stringify(line), /nobody/);
  mails.answers.clear();
  await page.isOver();
  // All of them, since it takes nothing that comes from us.
  mails.answers.set('MAIL', '553 not your domain');
  await service.matting('accounts invite shop eve@shop.example');
  await page.fires();
  await plane.line('a mail is given up', { error: 'EENVELOPE-553' });
  mails.answers.clear();
  await restart({ MATTING_MAIL_FROM: 'matting@another.example' });
  await page.run('npm run matting -- accounts invite <account> <mail>', {
    account: 'shop',
    mail: 'eve@shop.example',
  });
  await isReceived('eve@shop.example');
  t.regex(mails.received, /^From: matting@another\.example$/m);
  await page.isOver();
});
