/** Pages about mails and notifications. Needs: portal. */
import ava from 'ava';
import { type Answer, Receiver, taken } from '../../control-plane/core/test/receiver.ts';
import { at } from '../support/at.ts';
import { MailServer } from '../support/mail-server.ts';
import { Installation, pictureBase64, SECRETS_KEY } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const SECRET = 'a raw callback secret of the tests';
const NEXT_KEY = 'cd'.repeat(32);
/** Eight are under way to a receiver at once, 15 s each where it hangs: the last waits for two minutes. */
const NOTIFICATIONS = 60;
/** More than the alert lets pass. */
const UNANSWERED = 8;
const MINUTES_MS = 120_000;
/** More than the alert's ten minutes, and than the wait of a mail before a third attempt. */
const MAILS_PASSED_MS = 11 * 60_000;

const hangs: Answer = () => undefined;
const hangsUp: Answer = (_, response) => void response.destroy();
const refuses: Answer = (_, response) => void response.writeHead(500).end();

const service = new Installation();
const procedure = proceduresOn(service, test);
let receiver: Receiver;
let other: Receiver;
let mails: MailServer;
test.before(async () => {
  receiver = await Receiver.open(SECRET);
  other = await Receiver.open(SECRET);
  mails = await MailServer.start();
});
service.use(test, () => ({
  env: {
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
    MATTING_SMTP_URL: mails.url,
    MATTING_MAIL_FROM: 'matting@shop.example',
  },
}));
test.after.always(async () => {
  await receiver?.[Symbol.asyncDispose]();
  await other?.[Symbol.asyncDispose]();
  await mails?.close();
});

/** Mails that wait have waited for so long more. */
async function mailsWaitOn(): Promise<void> {
  const columns = ['created_at', 'next_attempt_at', 'last_attempt_at'];
  const set = columns.map(column => `${column} = ${column} - ${MAILS_PASSED_MS}`).join();
  await service.database.ask(
    `update matting.outbox set ${set} where kind = 'mail' and next_attempt_at is not null`,
  );
}

async function mailIsPutOff(): Promise<boolean> {
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
  await mailsWaitOn();
  await page.fires();
  // It is there again, and its administrator has changed the password.
  mails.answers.set('AUTH', '535 wrong password');
  const url = `smtp://matting:secret@127.0.0.1:${port}`;
  await service.restart({ MATTING_SMTP_URL: url }, () => mails.listen(port));
  await mailsWaitOn();
  await plane.line('a mail was not taken', { error: 'EAUTH-535' });
  await page.fires();
  await service.until('the mail waits for its next attempt', mailIsPutOff);
  mails.answers.clear();
  const { out } = await page.run('npm run matting -- accounts invite <account> <mail>', {
    account: 'shop',
    mail: 'ann@shop.example',
  });
  t.regex(out, /https?:/);
  const retried = await page.run('npm run matting -- mails retry');
  t.regex(retried.out, / now: 1\n/);
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
  await service.restart({ MATTING_MAIL_FROM: 'matting@another.example' });
  await page.run('npm run matting -- accounts invite <account> <mail>', {
    account: 'shop',
    mail: 'eve@shop.example',
  });
  await isReceived('eve@shop.example');
  t.regex(mails.received, /^From: matting@another\.example$/m);
  await page.isOver();
});

const announce = async (to: Receiver) =>
  service.submit({
    image_base64: await pictureBase64(),
    callback_url: to.url(),
    callback_secret: SECRET,
  });

const isTold = (to: Receiver, jobId: string) =>
  service.until(`${jobId} is told of`, () =>
    to.of(jobId).some(({ status, signatureHolds }) => status === 204 && signatureHolds),
  );

const isPutOff = (jobId: string) =>
  service.until('the first attempt is over', async () => {
    const [row] = await service.database.ask(
      `select attempts from matting.outbox where id = '${jobId}'`,
    );
    return Number(row?.attempts) > 0;
  });

/** Notifications that wait have waited for minutes more. */
const timePasses = () =>
  service.database.ask(
    `update matting.outbox set next_attempt_at = next_attempt_at - ${MINUTES_MS}
       where next_attempt_at is not null`,
  );

// After the mails: it ends with another key of the secrets.
procedure('MattingWebhooksLate', async (page, t) => {
  receiver.answer = hangs;
  const jobIds: string[] = [];
  for (let count = 0; count < NOTIFICATIONS; count += 1) jobIds.push(await announce(receiver));
  await page.fires();
  const { out } = await page.run('npm run matting -- webhooks list --status pending');
  t.regex(out, new RegExp(`127\\.0\\.0\\.1:${receiver.port}`));
  const jobId = await announce(other);
  await isTold(other, jobId);
  await page.fires();
  receiver.answer = taken;
  await timePasses();
  for (const id of jobIds) await isTold(receiver, id);
  await page.isOver();
  // Step 2 of a change of the key, a day too early.
  receiver.answer = refuses;
  const sealed = await announce(receiver);
  await isPutOff(sealed);
  await service.restart({
    MATTING_SECRETS_KEY: NEXT_KEY,
    MATTING_SECRETS_KEY_PREVIOUS: SECRETS_KEY,
  });
  receiver.answer = taken;
  await service.restart({ MATTING_SECRETS_KEY: NEXT_KEY });
  const warned = 'notifications wait whose secrets neither key of this replica opens';
  await at(service.planes, 0).line(warned, { count: 1 });
  await timePasses();
  await page.fires();
  t.is(receiver.of(sealed).at(-1)?.status, 500);
  await service.restart({
    MATTING_SECRETS_KEY: NEXT_KEY,
    MATTING_SECRETS_KEY_PREVIOUS: SECRETS_KEY,
  });
  await isTold(receiver, sealed);
  await page.isOver();
});

procedure('MattingWebhooksUnanswered', async (page, t) => {
  receiver.answer = hangsUp;
  const jobIds: string[] = [];
  for (let count = 0; count < UNANSWERED; count += 1) jobIds.push(await announce(receiver));
  for (const id of jobIds) await isPutOff(id);
  await page.fires();
  const { out } = await page.run('npm run matting -- webhooks list --status pending');
  t.regex(out, new RegExp(`127\\.0\\.0\\.1:${receiver.port}`));
  receiver.answer = refuses;
  await page.run('npm run matting -- webhooks retry <job>', { job: at(jobIds, 0) });
  await page.isOver();
  receiver.answer = taken;
  await service.database.ask(
    `update matting.outbox set next_attempt_at = 0 where next_attempt_at is not null`,
  );
  for (const id of jobIds) await isTold(receiver, id);
});

procedure('MattingWebhooksUnsignable', async (page, t) => {
  receiver.answer = refuses;
  const jobId = await announce(receiver);
  await isPutOff(jobId);
  const where = `where id = '${jobId}'`;
  const [kept] = await service.database.ask(
    `select hex(secret) as hex from matting.outbox ${where}`,
  );
  await service.database.ask(
    `update matting.outbox set secret = reverse(secret), next_attempt_at = 0 ${where}`,
  );
  await page.fires();
  const msg = 'a notification does not open: it was altered';
  t.is((await at(service.planes, 0).line(msg)).jobId, jobId);
  await service.database.ask(`update matting.outbox set secret = unhex('${kept?.hex}') ${where}`);
  receiver.answer = taken;
  await page.run('npm run matting -- webhooks retry <job>', { job: jobId });
  await isTold(receiver, jobId);
  await page.isOver();
});
