/** The account's jobs as its people see them, and nobody else. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { RESEND_EVERY_MS } from '../../../src/services/operator/operate-webhooks.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const PAGE = '/account/jobs';
const CALLBACK = {
  callback_url: 'https://receiver.example/hook?token=hostile',
  callback_secret: 'a secret of 24 characters',
};
const FAULT = { code: 'PROCESSING_FAILED', detail: 'it cannot be decoded' } as const;

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const fixture = useTestApp(test, {}, async () => {
  owner = await signIn(fixture);
  viewer = await signIn(fixture, { role: 'viewer' });
  stranger = await signInElsewhere(fixture);
});

async function submitted(
  more: Record<string, unknown> = {},
  token = fixture.token,
): Promise<string> {
  const answer = await fixture.post('/v1/matting/jobs', imageBody(more), {
    authorization: `Bearer ${token}`,
  });
  assert.equal(answer.statusCode, 202, answer.body);
  return answer.json().job_id;
}

const listed = async (query = '', by = owner) => {
  const { body } = await by.get(`${PAGE}${query}`);
  return [...body.matchAll(/href="\/account\/jobs\/([0-9a-f-]{36})"/g)].map(([, id]) => id);
};

test('list those of all keys, by state, key and days, a page at a time', async t => {
  const other = await fixture.createKey();
  const otherId = other.slice(3, 15);
  const open = await submitted();
  const done = await submitted({}, other);
  await fixture.succeedJob(done);
  const failed = await submitted();
  await fixture.failJob(failed, { ...FAULT, retryable: false });
  t.deepEqual(await listed(), [open, failed, done]);
  t.deepEqual(await listed('?state=failed'), [failed]);
  t.deepEqual(await listed('?state=open'), [open]);
  t.deepEqual(await listed(`?key=${otherId}&days=7`), [done]);
  t.deepEqual(await listed('?state=nonsense&key=%27&days=x&after=x'), [open, failed, done]);
  t.deepEqual(await listed('', viewer), [open, failed, done]);
  t.deepEqual(await listed('', stranger), []);
  const many: string[] = [];
  for (let count = 0; count < 51; count += 1) many.push(await submitted());
  const first = await owner.get(`${PAGE}?state=open`);
  const next = /href="(\/account\/jobs\?[^"]*after=[^"]*)"/.exec(first.body)?.[1];
  assert.ok(next);
  const rest = await listed(next.replaceAll('&amp;', '&').slice(PAGE.length));
  t.is(rest.length, 2);
  for (const id of [open, ...many]) await fixture.succeedJob(id);
});

test('show one with its stages, and its result to those who may see results', async t => {
  const id = await submitted({ output_format: 'webp' });
  await fixture.succeedJob(id, Buffer.from('its bytes'), { decode: 12, infer: 250 });
  const path = `${PAGE}/${id}`;
  const { body } = await owner.get(path);
  t.regex(body, /Models/);
  t.regex(body, new RegExp(`<img[^>]*src="${path}/result"`));
  const file = await owner.get(`${path}/result`);
  t.is(file.body, 'its bytes');
  t.regex(String(file.headers['content-security-policy']), /sandbox/);
  const job = await fixture.stores.jobs.find(id);
  assert.ok(job?.result);
  for (const page of [body, (await viewer.get(path)).body]) {
    t.false(page.includes(job.result.token), 'no page has the public link');
  }
  const seen = (await viewer.get(path)).body;
  t.false(seen.includes('/result'), 'no preview and no link for viewers');
  t.is((await viewer.get(`${path}/result`)).statusCode, 403);
});

test('say why a job failed in plain words', async t => {
  const id = await submitted();
  await fixture.failJob(id, { ...FAULT, retryable: true });
  const { body } = await owner.get(`${PAGE}/${id}`);
  t.regex(body, /could not be processed[^<]*send it again/);
  t.regex(body, /none charged/);
});

test('show every attempt of a notification, send it again while it is not delivered', async t => {
  const id = await submitted(CALLBACK);
  await fixture.succeedJob(id);
  const path = `${PAGE}/${id}`;
  const { outbox, audit } = fixture.stores;
  const claim = (fence: number) => ({ id: id, holder: 'replica-1', fence });
  t.truthy(await outbox.claim(claim(1), 60_000));
  await outbox.retryLater(claim(1), { statusCode: 503, durationMs: 1234 }, 0);
  const { body } = await owner.get(path);
  t.regex(body, /receiver\.example:443/);
  t.false(body.includes('hostile'), 'the receiver alone, not its URL');
  t.regex(body, /HTTP 503/);
  t.regex(body, /1\.2s/);
  t.false((await viewer.get(path)).body.includes('/resend'));
  t.is((await viewer.post(`${path}/resend`)).statusCode, 403);
  t.is((await owner.post(`${path}/resend`, { csrf: 'wrong' })).statusCode, 403);
  const soon = await owner.post(`${path}/resend`);
  t.is(soon.headers.location, `${path}?said=too-soon`);
  t.regex((await owner.get(`${path}?said=too-soon`)).body, /within the last minute/);
  // One that began a minute ago.
  t.truthy(await outbox.claim(claim(2), 60_000));
  const late = { statusCode: 502, durationMs: RESEND_EVERY_MS };
  t.truthy(await outbox.retryLater(claim(2), late, 60_000));
  const answer = await owner.post(`${path}/resend`);
  t.is(answer.headers.location, `${path}?said=retried`);
  t.regex((await owner.get(`${path}?said=retried`)).body, /next attempt is made now/);
  t.truthy(await outbox.claim(claim(3), 60_000), 'its time is now');
  await outbox.delivered(claim(3), { statusCode: null, durationMs: 5 });
  const after = (await owner.get(path)).body;
  t.regex(after, /no answer/);
  t.regex(after, /It was delivered, so it is not sent again/);
  t.false(after.includes('/resend'));
  t.is((await owner.post(`${path}/resend`)).headers.location, `${path}?said=delivered`);
  const records = await audit.list(fixture.accountId, { limit: 10 });
  const resent = records.filter(({ action }) => action === 'job.resent');
  t.deepEqual(
    resent.map(({ subject, mail }) => [subject, mail]),
    [[id, owner.mail]],
  );
});

test('show jobs of the playground with its name, and no credit', async t => {
  const { playground } = fixture.stores;
  const apiKeyId = await playground.internalKey(fixture.accountId);
  t.regex((await owner.get(PAGE)).body, new RegExp(`value="${apiKeyId}"[^>]*>Playground`));
});
