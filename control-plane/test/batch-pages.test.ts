/** People see the batches of their account, and owners cancel one. Needs: batches, portal. */
import { randomUUID } from 'node:crypto';
import { withBatches } from '@matting/batches/test/fixtures.ts';
import { actorOf, OPERATOR, personOfAccount } from '@matting/portal/test/people.ts';
import {
  type SignedInBrowser,
  signIn,
  signInElsewhere,
} from '@matting/portal/test/signed-in-browser.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { useTestApp } from './app.ts';

const test = ava.serial;

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const app = useTestApp(test, {}, async () => {
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
  t.true((await owner.get('/account/jobs')).body.includes(`href="${page}"`));
  const { job_id: left } = JSON.parse(results.body.split('\n')[0] ?? '');
  await app.succeedJob(left);
});

test('batches of an account › are cancelled by an owner, once, who is in the log', async t => {
  const items = [1, 2, 3].map(item => ({ image_url: `https://example.com/${item}.jpg` }));
  const { batch_id: id } = (await app.post('/v1/matting/batches', { items })).json();
  const form = `action="/account/batches/${id}/cancel"`;
  t.true((await owner.get('/account/batches')).body.includes(form));
  t.false((await viewer.get('/account/batches')).body.includes(form));
  const statusOf = async () => (await app.get(`/v1/matting/batches/${id}`)).json().status;
  const cancel = `/account/batches/${id}/cancel`;
  t.is((await viewer.post(cancel)).statusCode, 403);
  t.is((await stranger.post(cancel)).statusCode, 404);
  t.is((await owner.post('/account/batches/%C3%A9/cancel')).statusCode, 404);
  t.is(await statusOf(), 'queued');
  for (const _ of ['first', 'again']) {
    const answer = await owner.post(cancel);
    t.is(answer.headers.location, '/account/batches?said=cancelled');
  }
  t.is(await statusOf(), 'cancelled');
  const { body } = await owner.get('/account/batches?said=cancelled');
  t.true(body.includes('Batch cancelled. '));
  t.false(body.includes(form));
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
