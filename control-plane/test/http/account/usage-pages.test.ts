/** The first page of an account, its usage and its settings for low balances. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const app = useTestApp({ credits: 1234 }, async () => {
  owner = await signIn(app, { mail: 'owner@example.org' });
  viewer = await signIn(app, { role: 'viewer' });
  stranger = await signInElsewhere(app);
});

async function submit(body: unknown): Promise<string> {
  return (await app.post('/v1/matting/jobs', body)).json().job_id;
}

describe('the overview', () => {
  it('shows credits, a month of days, what runs, what failed in words, and how to begin', async () => {
    await app.succeedJob(await submit(imageBody()));
    const failed = await submit(imageBody());
    const failure = { code: 'PROCESSING_FAILED', detail: '<b>no</b>', retryable: false } as const;
    await app.failJob(failed, failure);
    const open = await submit(imageBody());
    for (const browser of [owner, viewer]) {
      const { statusCode, body, headers } = await browser.get('/account');
      assert.equal(statusCode, 200);
      assert.equal(headers['cache-control'], 'no-store');
      assert.match(body, /<dd class="figure">1,232<\/dd>/);
      assert.match(body, /could not be processed/);
      assert.ok(body.includes(`/account/jobs/${failed}`) && body.includes(`/account/jobs/${open}`));
      assert.equal(body.match(/<g class="day">/g)?.length, 30);
      assert.match(
        body,
        /https:\/\/matting\.example\.com\/v1\/matting&#39;|https:\/\/matting\.example\.com\/v1\/matting'/,
      );
      assert.doesNotMatch(body, /<b>no/);
      assert.ok(Buffer.byteLength(body) < 100_000);
    }
    const theirs = (await stranger.get('/account')).body;
    assert.ok(!theirs.includes(failed) && !theirs.includes(open));
    assert.match(theirs, /no credits left/);
    await app.succeedJob(open);
  });
});

describe('the page of usage', () => {
  it('agrees with the API, in every group and as CSV', async () => {
    const { key } = await app.stores.apiKeys.create(app.accountId, '=cmd|"x"');
    await app.stores.apiKeys.revoke(key.id);
    for (const group of ['day', 'key', 'outcome', 'format']) {
      const { total, usage } = (await app.get(`/v1/account/usage?group=${group}`)).json();
      const page = await viewer.get(`/account/usage?group=${group}&from=&to=`);
      assert.equal(page.statusCode, 200);
      for (const figure of [total.images, total.failed, total.credits]) {
        assert.match(page.body, new RegExp(`<dd class="figure">${figure}</dd>`));
      }
      const csv = await viewer.get(`/account/usage.csv?group=${group}`);
      assert.match(String(csv.headers['content-type']), /^text\/csv/);
      assert.match(String(csv.headers['content-disposition']), /attachment; filename="usage-/);
      assert.equal(csv.body.trimEnd().split('\r\n').length, usage.length + 1);
    }
    const theirs = await stranger.get('/account/usage.csv?group=day');
    assert.equal(theirs.body, '"day","images","failed","credits"\r\n');
  });

  it('says beside the field what is wrong, and shows nothing then', async () => {
    const wrong = await viewer.get('/account/usage?from=2026-05-02&to=2026-05-01');
    assert.equal(wrong.statusCode, 422);
    assert.match(wrong.body, /This day is after the other one/);
    assert.match(wrong.body, /value="2026-05-02"/);
    const long = await viewer.get('/account/usage?from=2024-01-01&to=2026-01-01');
    assert.match(long.body, /At most 366 days/);
    const never = await viewer.get('/account/usage?to=%3Cscript%3E');
    assert.equal(never.statusCode, 422);
    assert.ok(!never.body.includes('<script>'));
    assert.equal((await viewer.get('/account/usage?group=month')).statusCode, 400);
    assert.equal((await viewer.get('/account/usage?group=day&group=key')).statusCode, 400);
    assert.equal((await viewer.get('/account/usage.csv?from=never')).statusCode, 400);
  });
});

describe('the settings', () => {
  it('take thresholds, and show what was typed where they do not', async () => {
    const path = '/account/settings/thresholds';
    const wrong = await owner.post(path, { threshold: 'ten' });
    assert.equal(wrong.statusCode, 422);
    assert.match(wrong.body, /Give whole numbers of credits/);
    assert.match(wrong.body, /value="ten"/);
    const saved = await owner.post(path, { threshold: '2000' });
    assert.equal(saved.headers.location, '/account/settings?said=thresholds');
    const { body } = await owner.get('/account/settings?said=thresholds');
    assert.match(body, /The balances are saved/);
    assert.match(body, /2,000/);
    assert.match(body, /sends no mail/);
    assert.match((await owner.get('/account/audit')).body, /Low balance: thresholds set/);
    assert.match((await stranger.get('/account/settings')).body, /no balance yet/);
  });

  it('make the secret of an address, and show it once', async () => {
    const path = '/account/settings/webhook';
    const first = await owner.post(`${path}/test`);
    assert.equal(first.headers.location, '/account/settings?said=noWebhook');
    const wrong = await owner.post(path, { url: 'http://10.0.0.1/<b>' });
    assert.equal(wrong.statusCode, 422);
    assert.match(wrong.body, /cannot be used/);
    assert.ok(!wrong.body.includes('/<b>'));
    const url = 'https://hooks.example.com/credits';
    const made = await owner.post(path, { url });
    assert.equal(made.headers['cache-control'], 'no-store');
    const secret = /whsec_[A-Za-z0-9+/=]+/.exec(made.body)?.[0];
    assert.ok(secret);
    const page = await owner.get('/account/settings');
    assert.ok(!page.body.includes('whsec_') && page.body.includes(url));
    assert.equal((await owner.post(path, { url })).statusCode, 303);
    const next = await owner.post(path, { url, new_secret: 'on' });
    assert.ok(next.body.includes('whsec_') && !next.body.includes(secret));
    const test = await owner.post(`${path}/test`);
    assert.equal(test.headers.location, '/account/settings?said=tested');
    const again = await owner.post(`${path}/test`);
    assert.equal(again.headers.location, '/account/settings?said=tooSoon');
    assert.match((await owner.get('/account/settings')).body, /on its way, 0 attempts/);
    assert.equal((await owner.post(`${path}/remove`)).statusCode, 303);
    assert.ok(!(await owner.get('/account/settings')).body.includes(url));
    const log = (await owner.get('/account/audit')).body;
    assert.ok(log.includes('Low balance: webhook set') && !log.includes('whsec_'));
  });
});
