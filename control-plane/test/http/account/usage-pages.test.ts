/** The first page of an account, its usage and its settings for low balances. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const app = useTestApp(test, { credits: 1234 }, async () => {
  owner = await signIn(app, { mail: 'owner@example.org' });
  viewer = await signIn(app, { role: 'viewer' });
  stranger = await signInElsewhere(app);
});

async function submit(body: unknown): Promise<string> {
  return (await app.post('/v1/matting/jobs', body)).json().job_id;
}

test('the overview › shows credits, a month of days, what runs, what failed in words, and how to begin', async t => {
  await app.succeedJob(await submit(imageBody()));
  const failed = await submit(imageBody());
  const failure = { code: 'PROCESSING_FAILED', detail: '<b>no</b>', retryable: false } as const;
  await app.failJob(failed, failure);
  const open = await submit(imageBody());
  for (const browser of [owner, viewer]) {
    const { statusCode, body, headers } = await browser.get('/account');
    t.is(statusCode, 200);
    t.is(headers['cache-control'], 'no-store');
    t.regex(body, /<dd class="figure">1,232<\/dd>/);
    t.regex(body, /could not be processed/);
    t.true(body.includes(`/account/jobs/${failed}`) && body.includes(`/account/jobs/${open}`));
    t.is(body.match(/<g class="day">/g)?.length, 30);
    t.regex(
      body,
      /https:\/\/matting\.example\.com\/v1\/matting&#39;|https:\/\/matting\.example\.com\/v1\/matting'/,
    );
    t.notRegex(body, /<b>no/);
    t.true(Buffer.byteLength(body) < 100_000);
  }
  const theirs = (await stranger.get('/account')).body;
  t.true(!theirs.includes(failed) && !theirs.includes(open));
  t.regex(theirs, /no credits left/);
  await app.succeedJob(open);
});

test('the page of usage › agrees with the API, in every group and as CSV', async t => {
  const { key } = await app.stores.apiKeys.create(app.accountId, '=cmd|"x"');
  await app.stores.apiKeys.revoke(key.id);
  for (const group of ['day', 'key', 'outcome', 'format']) {
    const { total, usage } = (await app.get(`/v1/account/usage?group=${group}`)).json();
    const page = await viewer.get(`/account/usage?group=${group}&from=&to=`);
    t.is(page.statusCode, 200);
    for (const figure of [total.images, total.failed, total.credits]) {
      t.regex(page.body, new RegExp(`<dd class="figure">${figure}</dd>`));
    }
    const csv = await viewer.get(`/account/usage.csv?group=${group}`);
    t.regex(String(csv.headers['content-type']), /^text\/csv/);
    t.regex(String(csv.headers['content-disposition']), /attachment; filename="usage-/);
    t.is(csv.body.trimEnd().split('\r\n').length, usage.length + 1);
  }
  const theirs = await stranger.get('/account/usage.csv?group=day');
  t.is(theirs.body, '"day","images","failed","credits"\r\n');
});

test('the page of usage › says beside the field what is wrong, and shows nothing then', async t => {
  const wrong = await viewer.get('/account/usage?from=2026-05-02&to=2026-05-01');
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /This day is after the other one/);
  t.regex(wrong.body, /value="2026-05-02"/);
  const long = await viewer.get('/account/usage?from=2024-01-01&to=2026-01-01');
  t.regex(long.body, /At most 366 days/);
  const never = await viewer.get('/account/usage?to=%3Cscript%3E');
  t.is(never.statusCode, 422);
  t.false(never.body.includes('<script>'));
  t.is((await viewer.get('/account/usage?group=month')).statusCode, 400);
  t.is((await viewer.get('/account/usage?group=day&group=key')).statusCode, 400);
  t.is((await viewer.get('/account/usage.csv?from=never')).statusCode, 400);
});

test('the settings › take thresholds, and show what was typed where they do not', async t => {
  const path = '/account/settings/thresholds';
  const wrong = await owner.post(path, { threshold: 'ten' });
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /Give whole numbers of credits/);
  t.regex(wrong.body, /value="ten"/);
  const saved = await owner.post(path, { threshold: '2000' });
  t.is(saved.headers.location, '/account/settings?said=thresholds');
  const { body } = await owner.get('/account/settings?said=thresholds');
  t.regex(body, /The balances are saved/);
  t.regex(body, /2,000/);
  t.regex(body, /sends no mail/);
  t.regex((await owner.get('/account/audit')).body, /Low balance: thresholds set/);
  t.regex((await stranger.get('/account/settings')).body, /no balance yet/);
});

test('the settings › make the secret of an address, and show it once', async t => {
  const path = '/account/settings/webhook';
  const first = await owner.post(`${path}/test`);
  t.is(first.headers.location, '/account/settings?said=noWebhook');
  const wrong = await owner.post(path, { url: 'http://10.0.0.1/<b>' });
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /cannot be used/);
  t.false(wrong.body.includes('/<b>'));
  const url = 'https://hooks.example.com/credits';
  const made = await owner.post(path, { url });
  t.is(made.headers['cache-control'], 'no-store');
  const secret = /whsec_[A-Za-z0-9+/=]+/.exec(made.body)?.[0];
  assert.ok(secret);
  const page = await owner.get('/account/settings');
  t.true(!page.body.includes('whsec_') && page.body.includes(url));
  t.is((await owner.post(path, { url })).statusCode, 303);
  const next = await owner.post(path, { url, new_secret: 'on' });
  t.true(next.body.includes('whsec_') && !next.body.includes(secret));
  const fixture = await owner.post(`${path}/test`);
  t.is(fixture.headers.location, '/account/settings?said=tested');
  const again = await owner.post(`${path}/test`);
  t.is(again.headers.location, '/account/settings?said=tooSoon');
  t.regex((await owner.get('/account/settings')).body, /on its way, 0 attempts/);
  t.is((await owner.post(`${path}/remove`)).statusCode, 303);
  t.false((await owner.get('/account/settings')).body.includes(url));
  const log = (await owner.get('/account/audit')).body;
  t.true(log.includes('Low balance: webhook set') && !log.includes('whsec_'));
});
