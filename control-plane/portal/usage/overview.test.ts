import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import ava from 'ava';
import { attributeOf, ReadPage } from '../test/area/pages.ts';
import { makeThing, submitJob } from '../test/area/things.ts';
import { openWorld, useWorld } from '../test/area/world.ts';

const test = ava.serial;
const world = useWorld(test);

const PAGE = '/account';
const pageOf = async (person: { get(path: string): Promise<{ body: string }> }) =>
  new ReadPage((await person.get(PAGE)).body);

test('the first page › of an account without a picture leads to one, and shows nothing empty', async t => {
  const { owner, viewer } = world.theirs.people;
  const page = await pageOf(owner);
  for (const words of ['Drop a picture here', 'Create an API key', 'You have 500 credits']) {
    t.true(page.shows(words), words);
  }
  t.true(page.links.includes('/account/playground') && page.links.includes('/account/keys/new'));
  t.regex(page.text, /export MATTING_API_KEY=YOUR_API_KEY/);
  for (const words of ['In progress', 'Recent failures', 'The last 30 days']) {
    t.false(page.shows(words), words);
  }
  t.is(page.all('table').length, 0);
  const seen = await pageOf(viewer);
  t.true(seen.shows('Send your first picture'));
  for (const link of ['/account/playground', '/account/keys/new']) {
    t.false(seen.links.includes(link), `a viewer may not: ${link}`);
  }
});

test('the first page › says which step is done, and is none of the playground', async t => {
  const { owner } = world.theirs.people;
  t.false((await pageOf(owner)).shows('Done'));
  const { accountId } = world.theirs;
  const { key } = await world.test.stores.apiKeys.create(accountId, 'the first');
  assert.ok(key);
  t.true((await pageOf(owner)).shows('Done'));
  await makeThing(world.test, 'playgroundJobId', world.theirs, owner);
  t.true((await pageOf(owner)).shows('Drop a picture here'));
});

test('the first page › is one of figures from the first job on', async t => {
  const { accountId, people } = world.theirs;
  const { token } = await world.test.stores.apiKeys.create(accountId, 'shop');
  const jobId = await submitJob(world.test, token);
  const running = await pageOf(people.owner);
  t.true(running.shows('In progress') && running.shows('Plus 1 reserved for jobs in progress.'));
  t.true(running.links.includes(`/account/jobs/${jobId}`));
  t.false(running.shows('Drop a picture here'));
  t.false(running.shows('The last 30 days'), 'nothing has ended');
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  await world.test.failJob(jobId, failure);
  const failed = await pageOf(people.owner);
  t.true(failed.shows('Recent failures') && failed.shows('1 image, 1 failed.'));
  t.false(failed.shows('In progress') || failed.shows('credits a day'));
  t.false(failed.shows('Latest cut-outs'));
});

test('the first page › leads to packages where some are on sale', async t => {
  const [sold, unsold] = [await openWorld({}, t), await openWorld({ settings: {} }, t)];
  for (const [where, leads] of [
    [sold, true],
    [unsold, false],
  ] as const) {
    const { accountId, people } = where.ours;
    const { token } = await where.test.stores.apiKeys.create(accountId, 'some');
    await where.test.succeedJob(await submitJob(where.test, token));
    const page = await pageOf(people.owner);
    t.is(page.links.includes('/account/orders/packages'), leads);
  }
});

test('the first page › shows the latest cut-outs to those who may see them', async t => {
  const { accountId, people } = world.theirs;
  const { token } = await world.test.stores.apiKeys.create(accountId, 'printer');
  world.test.thumbnail = Buffer.from('its picture');
  const done: string[] = [];
  for (let jobs = 0; jobs < 9; jobs += 1) {
    const jobId = await submitJob(world.test, token);
    await world.test.succeedJob(jobId);
    done.unshift(`/account/jobs/${jobId}/thumbnail`);
  }
  world.test.thumbnail = undefined;
  const shown = (await pageOf(people.member)).all('img').map(one => attributeOf(one, 'src'));
  t.deepEqual(shown.sort(), done.slice(0, 8).sort());
  const seen = await pageOf(people.viewer);
  t.deepEqual([seen.all('img').length, seen.shows('Latest cut-outs')], [0, false]);
});

test('the first page › says how long the credits last, and knows an account that rested', async t => {
  const { accountId, people } = world.ours;
  const today = await world.test.stores.usage.today();
  using database = new DatabaseSync(world.test.databaseFile);
  const insert = database.prepare(
    `insert into usage_days (account_id, day, api_key_id, outcome, format, images, credits)
    values (?, ?, 'a key', 'succeeded', 'png', ?, ?)`,
  );
  const on = (day: number, credits: number) => insert.run(accountId, day, credits, credits);
  on(today - 300, 40);
  const rested = await pageOf(people.viewer);
  t.false(rested.shows('Send your first picture') || rested.shows('The last 30 days'));
  on(today - 9, 50);
  on(today, 50);
  const page = await pageOf(people.viewer);
  t.regex(page.text, /Lasts\s*about 3 months\s*At 10 credits a day\./);
});
