/** Needs: batches, portal. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { withBatches } from '@matting/batches/test/fixtures.ts';
import { actorOf, OPERATOR, personOfAccount } from '@matting/portal/test/people.ts';
import {
  type SignedInBrowser,
  signIn,
  signInElsewhere,
} from '@matting/portal/test/signed-in-browser.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { unzipSync } from 'fflate';
import { useTestApp } from './app.ts';

const test = ava.serial;

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const app = useTestApp(test, { credits: 2000 }, async () => {
  owner = await signIn(app, { mail: 'owner@example.org' });
  viewer = await signIn(app, { role: 'viewer' });
  stranger = await signInElsewhere(app);
  ({ batches } = withBatches(app.database, app.stores));
});
let batches: ReturnType<typeof withBatches>['batches'];

test('batches of an account › are listed with how far they are, to those of the account', async t => {
  const page = '/account/batches';
  const rowsOf = async (browser: SignedInBrowser) =>
    [...(await browser.get(page)).body.matchAll(/<progress max="(\d+)" value="(\d+)"/g)].map(
      ([, all, ended]) => [all, ended],
    );
  t.regex((await owner.get(page)).body, /No batches yet/);
  const items = [1, 2, 3].map(item => ({ image_url: `https://example.com/${item}.jpg` }));
  const answer = await app.post('/v1/matting/batches', { items });
  const { batch_id: id } = answer.json();
  t.deepEqual(await rowsOf(owner), [['3', '0']]);
  await batches.enterItems(id, app.accountId, 1000);
  const results = await app.get(`/v1/matting/batches/${id}/results`);
  for (const line of results.body.trim().split('\n').slice(1)) {
    await app.succeedJob(JSON.parse(line).job_id);
  }
  for (const browser of [owner, viewer]) {
    t.deepEqual(await rowsOf(browser), [['3', '2']]);
    const { body } = await browser.get(page);
    t.true(body.includes('Processing') && body.includes('2 of 3') && body.includes(id));
  }
  t.deepEqual(await rowsOf(stranger), []);
  t.true((await owner.get('/account/jobs')).body.includes(`href="${page}"`), 'the navigation');
  t.true((await owner.get(page)).body.includes(`href="${page}/${id}"`));
  const { job_id: left } = JSON.parse(results.body.split('\n')[0] ?? '');
  await app.succeedJob(left);
});

test('batches of an account › have their name and page in the list of webhooks', async t => {
  const told = { callback_url: 'https://a.example/', callback_secret: SECRET };
  const items = [{ image_url: 'https://example.com/1.jpg' }];
  const { batch_id: id } = (await app.post('/v1/matting/batches', { items, ...told })).json();
  await enter(id);
  for (const job of await jobIdsOf(id)) await app.succeedJob(job);
  t.true(await batches.finishBatch(id));
  const { body } = await owner.get('/account/webhooks');
  const link = `href="/account/batches/${id}" title="${id}"`;
  t.true(body.includes(`<a ${link}>Batch <code>${id.slice(0, 8)}</code></a>`), body);
});

test('batches of an account › are cancelled by an owner, once, who is in the log', async t => {
  const items = [1, 2, 3].map(item => ({ image_url: `https://example.com/${item}.jpg` }));
  const { batch_id: id } = (await app.post('/v1/matting/batches', { items })).json();
  const form = `action="/account/batches/${id}/cancel"`;
  for (const page of ['/account/batches', `/account/batches/${id}`]) {
    t.true((await owner.get(page)).body.includes(form));
    t.false((await viewer.get(page)).body.includes(form));
  }
  const statusOf = async () => (await app.get(`/v1/matting/batches/${id}`)).json().status;
  const cancel = `/account/batches/${id}/cancel`;
  t.is((await viewer.post(cancel)).statusCode, 403);
  t.is((await stranger.post(cancel)).statusCode, 404);
  t.is((await owner.post('/account/batches/%C3%A9/cancel')).statusCode, 404);
  t.is(await statusOf(), 'queued');
  for (const _ of ['first', 'again']) {
    const answer = await owner.post(cancel);
    t.is(answer.headers.location, `/account/batches/${id}?said=cancelled`);
  }
  t.is(await statusOf(), 'cancelled');
  const { body } = await owner.get(`/account/batches/${id}?said=cancelled`);
  t.true(body.includes('Batch cancelled. '));
  t.false(body.includes(form));
  t.false((await owner.get('/account/batches')).body.includes(form));
  const log = await app.stores.audit.list(app.accountId, { limit: 50 });
  t.deepEqual(
    log.filter(({ subject }) => subject === id).map(({ action, mail }) => [action, mail]),
    [['batch.cancelled', 'owner@example.org']],
  );
});

test('batches of an account › are not cancelled by who lost the right since the door', async t => {
  const items = [{ image_url: 'https://example.com/1.jpg' }];
  const { batch_id: id } = (await app.post('/v1/matting/batches', { items })).json();
  const { accountId } = app;
  const self = await personOfAccount(app.stores, accountId);
  const by = { actor: OPERATOR, entryId: randomUUID() };
  await app.stores.people.changeRole(accountId, self.userId, 'viewer', by);
  const actor = actorOf(self, 'jobs.cancel');
  await rejectsWith(t, batches.cancelBatchBy(id, { accountId, actor }), { name: 'AuthorityError' });
  t.is((await app.get(`/v1/matting/batches/${id}`)).json().status, 'queued');
});

/** All items have become jobs. */
async function entered(items: readonly object[]): Promise<string> {
  const { batch_id: id } = (await app.post('/v1/matting/batches', { items })).json();
  await enter(id);
  return id;
}

async function enter(id: string): Promise<void> {
  while ((await batches.enterItems(id, app.accountId, 2000)) > 0);
}

async function jobIdsOf(id: string): Promise<string[]> {
  const { body } = await app.get(`/v1/matting/batches/${id}/results?limit=1000`);
  const lines = body.trim().split('\n');
  return lines.map(line => JSON.parse(line).job_id);
}

test('the page of a batch › has its pictures, its failures and its key, and looks again while it is open', async t => {
  const urls = [1, 2, 3].map(item => `https://example.com/${item}.jpg`);
  const references = [undefined, '<b>"SKU"</b>', undefined];
  const id = await entered(
    urls.map((image_url, item) => ({ image_url, reference: references[item] })),
  );
  const path = `/account/batches/${id}`;
  const [done = '', failed = '', open = ''] = await jobIdsOf(id);
  app.thumbnail = Buffer.from('a picture');
  await app.succeedJob(done);
  app.thumbnail = undefined;
  const code = 'UNSUPPORTED_IMAGE_FORMAT';
  await app.failJob(failed, { code, detail: 'no picture', retryable: false });
  const { body, headers } = await owner.get(path);
  t.is(headers.refresh, '5');
  t.regex(body, /<progress max="3" value="2"/);
  for (const text of ['first key', 'Picture 1', 'Picture 3', '&lt;b>&quot;SKU']) {
    t.true(body.includes(text), text);
  }
  t.true(body.includes('The file is not a picture of a supported format.'));
  for (const job of [done, failed, open]) t.true(body.includes(`href="/account/jobs/${job}"`));
  const picture = `/account/jobs/${done}/thumbnail`;
  t.true(body.includes(picture));
  t.false((await viewer.get(path)).body.includes(picture), 'who sees no results');
  const failures = (await owner.get(`${path}?state=failed`)).body;
  t.true(failures.includes(failed) && !failures.includes(done) && !failures.includes(open));
  t.true((await owner.get('/account/batches')).body.includes(`href="${path}?state=failed">1<`));
  for (const place of [path, `${path}?state=failed`, '/account/batches/%C3%A9']) {
    t.is((await stranger.get(place)).statusCode, 404, place);
  }
  await app.succeedJob(open);
  t.true(await batches.finishBatch(id));
  t.is((await owner.get(path)).headers.refresh, undefined);
});

async function idsOnPages(t: ExecutionContext, path: string): Promise<string[]> {
  const seen: string[] = [];
  for (let next: string | undefined = path; next !== undefined; ) {
    const { body } = await owner.get(next);
    t.true(body.length < 70_000, `${body.length}`);
    const ids = body.matchAll(/<span class="mono soft" title="([^"]+)"/g);
    seen.push(...[...ids].map(([, job = '']) => job));
    next = /href="([^"]+)" rel="next"/.exec(body)?.[1]?.replaceAll('&amp;', '&');
  }
  return seen;
}

test('the page of a batch › shows the largest batch in pages of a bounded size', async t => {
  const items = Array.from({ length: 1000 }, (_, item) => ({
    image_url: `https://example.com/${item}.jpg`,
    reference: '"'.repeat(128),
  }));
  const { batch_id: id } = (await app.post('/v1/matting/batches', { items })).json();
  await owner.post(`/account/batches/${id}/cancel`);
  await enter(id);
  for (const query of ['', '?state=failed']) {
    t.deepEqual(await idsOnPages(t, `/account/batches/${id}${query}`), await jobIdsOf(id));
  }
  const [first = ''] = await jobIdsOf(id);
  for (const after of ['-1', '1e3', '4.5', '&after=2', '%00', '1'.repeat(400)]) {
    const { statusCode, body } = await owner.get(`/account/batches/${id}?after=${after}`);
    t.is(statusCode, 200, after);
    t.true(body.includes(first), after);
  }
  t.true((await owner.get(`/account/batches/${id}?after=999999999`)).body.includes('No jobs'));
});

/** Ends each item, and so the batch. */
async function finished(ends: readonly ('succeed' | 'warn' | 'fail')[], more: object = {}) {
  const items = ends.map((how, at) => ({
    image_url: `https://example.com/${at}.jpg`,
    reference: how,
  }));
  const answer = await app.post('/v1/matting/batches', { items, ...more });
  const id: string = answer.json().batch_id;
  await enter(id);
  const jobs = await jobIdsOf(id);
  for (const [at, jobId] of [...jobs.entries()].reverse()) {
    const box = { left: 0, top: 0, width: 1, height: 1 };
    const subject = { inputBox: box, resultBox: box, share: 1, unsure: true };
    app.sight = ends[at] === 'warn' ? { inputWidth: 1, inputHeight: 1, subject } : null;
    if (ends[at] !== 'fail') await app.succeedJob(jobId);
    else await app.failJob(jobId, { code: 'NO_SUBJECT', detail: 'no', retryable: false });
  }
  app.sight = null;
  assert.ok(await batches.finishBatch(id));
  return { id, jobs, path: `/account/batches/${id}` };
}

test('the page of a batch › has its name, its items in their order, and those that need a look', async t => {
  const { jobs, path } = await finished(['succeed', 'warn', 'fail', 'warn'], {
    name: 'Spring <1>',
  });
  t.deepEqual(await idsOnPages(t, path), jobs);
  t.deepEqual(await idsOnPages(t, `${path}?state=look`), [jobs[1], jobs[3]]);
  t.deepEqual(await idsOnPages(t, `${path}?state=failed`), [jobs[2]]);
  const { body } = await owner.get(path);
  t.regex(body, /<title>[^<]*Spring &lt;1/);
  t.true((await owner.get('/account/batches')).body.includes('Spring &lt;1'));
});

test('the page of a batch › gives its results as one file, to those who see results', async t => {
  const { path } = await finished(['succeed', 'fail', 'succeed']);
  const zip = `${path}/results.zip`;
  t.true((await owner.get(path)).body.includes(`href="${zip}"`));
  const { headers, rawPayload } = await owner.get(zip);
  t.is(headers['content-type'], 'application/zip');
  t.deepEqual(Object.keys(unzipSync(rawPayload)), ['succeed.png', 'succeed (2).png']);
  t.false((await viewer.get(path)).body.includes(zip));
  t.is((await viewer.get(zip)).statusCode, 403);
  t.is((await stranger.get(zip)).statusCode, 404);
  const none = await finished(['fail']);
  t.false((await owner.get(none.path)).body.includes('results.zip'));
  t.is((await owner.get(`${none.path}/results.zip`)).statusCode, 404);
});

test('the page of a batch › submits the failed items again, once, for a person who is in the log', async t => {
  const { id, path } = await finished(['succeed', 'fail', 'fail'], { name: 'first' });
  const form = `action="${path}/again"`;
  t.true((await owner.get(path)).body.includes(form));
  t.false((await viewer.get(path)).body.includes(form));
  t.is((await viewer.post(`${path}/again`)).statusCode, 403);
  t.is((await stranger.post(`${path}/again`)).statusCode, 404);
  const before = (await app.get('/v1/account')).json().credits.available;
  const places = new Set<string>();
  for (const _ of ['first', 'a second click']) {
    places.add(String((await owner.post(`${path}/again`)).headers.location));
  }
  const [place = ''] = places;
  t.is(places.size, 1);
  const next = /batches\/([^?]+)\?said=again$/.exec(place)?.[1] ?? '';
  t.not(next, id);
  t.is((await app.get('/v1/account')).json().credits.available, before - 2);
  t.true((await owner.get(place)).body.includes('first'));
  const made = (await app.get(`/v1/matting/batches/${next}`)).json();
  t.deepEqual([made.name, made.counts.waiting], ['first', 2], 'the key that submitted sees it');
  const log = await app.stores.audit.list(app.accountId, { limit: 50 });
  t.deepEqual(
    log.filter(({ subject }) => subject === next).map(({ action, mail }) => [action, mail]),
    [['batch.submitted', 'owner@example.org']],
  );
});

test('the page of a batch › says why failed items are not submitted again', async t => {
  const saidOf = async (path: string) =>
    /said=(\w+)$/.exec(String((await owner.post(`${path}/again`)).headers.location))?.[1];
  const whole = await finished(['succeed']);
  t.false((await owner.get(whole.path)).body.includes('/again"'));
  t.is(await saidOf(whole.path), 'nothing');
  const failed = await finished(['fail']);
  const { available } = (await app.get('/v1/account')).json().credits;
  await app.stores.ledger.revoke(app.accountId, available, randomUUID());
  t.is(await saidOf(failed.path), 'noCredits');
  await app.stores.ledger.grant(app.accountId, available, randomUUID());
  const by = { accountId: app.accountId, actor: OPERATOR };
  await app.stores.apiKeys.revoke(app.token.slice(3, 15), by);
  t.is(await saidOf(failed.path), 'keyEnded');
  t.true((await owner.get(`${failed.path}?said=keyEnded`)).body.includes('has expired'));
});
