/** The account's jobs as its people see them, and nobody else. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RESEND_EVERY_MS } from '../../../src/services/operator/operate-webhooks.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const PAGE = '/account/jobs';
const CALLBACK = {
  callback_url: 'https://receiver.example/hook?token=hostile',
  callback_secret: 'a secret of 24 characters',
};
const FAULT = { code: 'PROCESSING_FAILED', detail: 'it cannot be decoded' } as const;

describe('the pages of jobs', () => {
  let owner: SignedInBrowser;
  let viewer: SignedInBrowser;
  let stranger: SignedInBrowser;
  const test = useTestApp({}, async () => {
    owner = await signIn(test);
    viewer = await signIn(test, { role: 'viewer' });
    stranger = await signInElsewhere(test);
  });

  async function submitted(
    more: Record<string, unknown> = {},
    token = test.token,
  ): Promise<string> {
    const answer = await test.post('/v1/matting/jobs', imageBody(more), {
      authorization: `Bearer ${token}`,
    });
    assert.equal(answer.statusCode, 202, answer.body);
    return answer.json().job_id;
  }

  const listed = async (query = '', by = owner) => {
    const { body } = await by.get(`${PAGE}${query}`);
    return [...body.matchAll(/href="\/account\/jobs\/([0-9a-f-]{36})"/g)].map(([, id]) => id);
  };

  it('list those of all keys, by state, key and days, a page at a time', async () => {
    const other = await test.createKey();
    const otherId = other.slice(3, 15);
    const open = await submitted();
    const done = await submitted({}, other);
    await test.succeedJob(done);
    const failed = await submitted();
    await test.failJob(failed, { ...FAULT, retryable: false });
    assert.deepEqual(await listed(), [open, failed, done]);
    assert.deepEqual(await listed('?state=failed'), [failed]);
    assert.deepEqual(await listed('?state=open'), [open]);
    assert.deepEqual(await listed(`?key=${otherId}&days=7`), [done]);
    assert.deepEqual(await listed('?state=nonsense&key=%27&days=x&after=x'), [open, failed, done]);
    assert.deepEqual(await listed('', viewer), [open, failed, done]);
    assert.deepEqual(await listed('', stranger), []);
    const many: string[] = [];
    for (let count = 0; count < 51; count += 1) many.push(await submitted());
    const first = await owner.get(`${PAGE}?state=open`);
    const next = /href="(\/account\/jobs\?[^"]*after=[^"]*)"/.exec(first.body)?.[1];
    assert.ok(next);
    const rest = await listed(next.replaceAll('&amp;', '&').slice(PAGE.length));
    assert.equal(rest.length, 2);
    for (const id of [open, ...many]) await test.succeedJob(id);
  });

  it('show one with its stages, and its result to those who may see results', async () => {
    const id = await submitted({ output_format: 'webp' });
    await test.succeedJob(id, Buffer.from('its bytes'), { decode: 12, infer: 250 });
    const path = `${PAGE}/${id}`;
    const { body } = await owner.get(path);
    assert.match(body, /Models/);
    assert.match(body, new RegExp(`<img[^>]*src="${path}/result"`));
    const file = await owner.get(`${path}/result`);
    assert.equal(file.body, 'its bytes');
    assert.match(String(file.headers['content-security-policy']), /sandbox/);
    const job = await test.stores.jobs.find(id);
    assert.ok(job?.result);
    for (const page of [body, (await viewer.get(path)).body]) {
      assert.ok(!page.includes(job.result.token), 'no page has the public link');
    }
    const seen = (await viewer.get(path)).body;
    assert.ok(!seen.includes('/result'), 'no preview and no link for viewers');
    assert.equal((await viewer.get(`${path}/result`)).statusCode, 403);
  });

  it('say why a job failed in plain words', async () => {
    const id = await submitted();
    await test.failJob(id, { ...FAULT, retryable: true });
    const { body } = await owner.get(`${PAGE}/${id}`);
    assert.match(body, /could not be processed[^<]*send it again/);
    assert.match(body, /none charged/);
  });

  it('show every attempt of a notification, send it again while it is not delivered', async () => {
    const id = await submitted(CALLBACK);
    await test.succeedJob(id);
    const path = `${PAGE}/${id}`;
    const { outbox, audit } = test.stores;
    const claim = (fence: number) => ({ id: id, holder: 'replica-1', fence });
    assert.ok(await outbox.claim(claim(1), 60_000));
    await outbox.retryLater(claim(1), { statusCode: 503, durationMs: 1234 }, 0);
    const { body } = await owner.get(path);
    assert.match(body, /receiver\.example:443/);
    assert.ok(!body.includes('hostile'), 'the receiver alone, not its URL');
    assert.match(body, /HTTP 503/);
    assert.match(body, /1\.2s/);
    assert.ok(!(await viewer.get(path)).body.includes('/resend'));
    assert.equal((await viewer.post(`${path}/resend`)).statusCode, 403);
    assert.equal((await owner.post(`${path}/resend`, { csrf: 'wrong' })).statusCode, 403);
    const soon = await owner.post(`${path}/resend`);
    assert.equal(soon.headers.location, `${path}?said=too-soon`);
    assert.match((await owner.get(`${path}?said=too-soon`)).body, /within the last minute/);
    // One that began a minute ago.
    assert.ok(await outbox.claim(claim(2), 60_000));
    const late = { statusCode: 502, durationMs: RESEND_EVERY_MS };
    assert.ok(await outbox.retryLater(claim(2), late, 60_000));
    const answer = await owner.post(`${path}/resend`);
    assert.equal(answer.headers.location, `${path}?said=retried`);
    assert.match((await owner.get(`${path}?said=retried`)).body, /next attempt is made now/);
    assert.ok(await outbox.claim(claim(3), 60_000), 'its time is now');
    await outbox.delivered(claim(3), { statusCode: null, durationMs: 5 });
    const after = (await owner.get(path)).body;
    assert.match(after, /no answer/);
    assert.match(after, /It was delivered, so it is not sent again/);
    assert.ok(!after.includes('/resend'));
    assert.equal((await owner.post(`${path}/resend`)).headers.location, `${path}?said=delivered`);
    const records = await audit.list(test.accountId, { limit: 10 });
    const resent = records.filter(({ action }) => action === 'job.resent');
    assert.deepEqual(
      resent.map(({ subject, mail }) => [subject, mail]),
      [[id, owner.mail]],
    );
  });

  it('show jobs of the playground with its name, and no credit', async () => {
    const { playground } = test.stores;
    const apiKeyId = await playground.internalKey(test.accountId);
    assert.match((await owner.get(PAGE)).body, new RegExp(`value="${apiKeyId}"[^>]*>Playground`));
  });
});
