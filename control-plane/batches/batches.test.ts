import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { LIMITS } from '@matting/core/test/fixtures.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import pino from 'pino';
import { runBatches } from './run-batches.ts';
import { openTestApp, useTestApp } from './test/app.ts';

const test = ava.serial;
const BATCHES = '/v1/matting/batches';
const CALLBACK = {
  callback_url: 'https://receiver.example/hook',
  callback_secret: 'a secret of 24 characters',
};

const app = useTestApp(test, { credits: 5000 });

const itemsOf = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, item) => ({
    image_url: `https://example.com/${item}.jpg`,
    ...more,
  }));
const credits = async () => (await app.get('/v1/account')).json().credits;

function startLoop(t: { teardown(end: () => Promise<void>): void }) {
  const { stores, events } = app;
  const parts = { ...stores, events, ...LIMITS, pollMs: 5 };
  const loop = runBatches({ ...parts, log: pino({ level: 'silent' }) });
  loop.start();
  t.teardown(() => loop.stop());
}

test('one mistake in the text refuses the whole batch and names the field', async t => {
  const before = await credits();
  const items = itemsOf(3);
  const cases: [body: unknown, code: string, field?: string][] = [
    // batch-bodies.test.ts has malformed items.
    [{ items: itemsOf(1001) }, 'INVALID_REQUEST', 'items'],
    [{ items: [...items, {}] }, 'INVALID_REQUEST', 'items[3].image_url'],
    [
      { items: [...items, { image_url: 'ftp://x/' }] },
      'INVALID_IMAGE_SOURCE',
      'items[3].image_url',
    ],
    [{ items: [{ image_url: 'http://10.0.0.1/' }] }, 'INVALID_IMAGE_SOURCE', 'items[0].image_url'],
    [{ items: itemsOf(1, { reference: 'a\nb' }) }, 'INVALID_PARAMETER', 'items[0].reference'],
    [{ items, reference: 'x' }, 'INVALID_REQUEST', 'reference'],
    [{ items, image_url: 'https://example.com/' }, 'INVALID_REQUEST', 'image_url'],
    [{ items, output_format: 'gif' }, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format'],
    [{ items, background: 'nothing' }, 'INVALID_PARAMETER', 'background'],
    [{ items, background: 5 }, 'INVALID_REQUEST', 'background'],
    [{ items, callback_url: CALLBACK.callback_url }, 'INVALID_CALLBACK'],
  ];
  for (const [body, code, field] of cases) {
    const answer = await app.post(BATCHES, body);
    const label = `${JSON.stringify(body).slice(0, 80)}: ${answer.body}`;
    t.is(answer.json().code, code, label);
    if (field !== undefined) t.is(answer.json().errors?.[0]?.field, field, label);
  }
  const large = await app.post(BATCHES, `"${'x'.repeat(4_200_000)}"`);
  t.deepEqual([large.statusCode, large.json().code], [413, 'IMAGE_TOO_LARGE']);
  t.deepEqual(await credits(), before);
  const poor = await openTestApp({ credits: 2 }, t);
  const refused = (await poor.post(BATCHES, { items })).json();
  t.is(refused.code, 'INSUFFICIENT_CREDITS');
  t.regex(refused.detail, /fewer than 3 credits left\. Ask the operator/);
});

test('the refusal of an item’s URL does not advise to send a file', async t => {
  const { detail } = (await app.post(BATCHES, { items: [{ image_url: 'ftp://x/' }] })).json();
  t.regex(detail, /^items\[0\]\.image_url .+\.$/);
  t.notRegex(detail, /image_base64/);
});

const remove = (url: string, more: Record<string, string> = {}) => {
  const headers = app.headers({ 'content-type': undefined, ...more });
  return app.app.inject({ method: 'DELETE', url, headers });
};

const idsOf = (answer: { json(): { batches: { batch_id: string }[] } }) =>
  answer.json().batches.map(({ batch_id }) => batch_id);

async function endAll(id: string, hows: readonly ('succeed' | 'fail' | 'cancel')[]) {
  const { batches } = app.stores;
  await batches.enterItems(id, app.accountId, LIMITS.jobsInFlightMax);
  const lines = (await app.get(`${BATCHES}/${id}/results`)).body.trim().split('\n');
  for (const [item, line] of lines.entries()) {
    const { job_id: jobId } = JSON.parse(line);
    if (hows[item] === 'succeed') await app.succeedJob(jobId);
    else if (hows[item] === 'cancel') await remove(`/v1/matting/jobs/${jobId}`);
    else await app.failJob(jobId, { code: 'NO_SUBJECT', detail: 'no', retryable: false });
  }
  assert.ok(await batches.finishBatch(id));
}

test('a key lists its batches, the newest first, by their status and a page at a time', async t => {
  const headers = { authorization: `Bearer ${await app.createKey()}` };
  const submit = async (name?: string) =>
    (await app.post(BATCHES, { items: itemsOf(2), name }, headers)).json().batch_id as string;
  const list = (query = '') => app.get(`${BATCHES}${query}`, headers);
  t.deepEqual((await list()).json(), { batches: [], next_cursor: null });
  const [done, gone, begun, waiting] = [
    await submit(),
    await submit(),
    await submit(),
    await submit('Spring é'),
  ];
  const all = [waiting, begun, gone, done];
  await remove(`${BATCHES}/${gone}`, headers);
  await app.stores.batches.enterItems(begun, app.accountId, LIMITS.jobsInFlightMax);
  const results = await app.get(`${BATCHES}/${begun}/results`, headers);
  await app.succeedJob(JSON.parse(results.body.split('\n')[0]!).job_id);
  await app.stores.batches.enterItems(done, app.accountId, LIMITS.jobsInFlightMax);
  const lines = (await app.get(`${BATCHES}/${done}/results`, headers)).body.trim().split('\n');
  for (const line of lines) await app.succeedJob(JSON.parse(line).job_id);
  assert.ok(await app.stores.batches.finishBatch(done));
  t.deepEqual(idsOf(await list()), all);
  const [first, second] = (await list()).json().batches;
  t.deepEqual([first.name, 'name' in second], ['Spring é', false]);
  t.deepEqual(first, (await app.get(`${BATCHES}/${waiting}`, headers)).json());
  for (const [status, id] of Object.entries({
    queued: waiting,
    processing: begun,
    cancelled: gone,
    finished: done,
  })) {
    t.deepEqual(idsOf(await list(`?status=${status}`)), [id], status);
  }
  for (const limit of [1, 2, 3]) {
    const seen: string[] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const page = await list(`?limit=${limit}${cursor && `&cursor=${cursor}`}`);
      t.true(page.json().batches.length <= limit);
      seen.push(...idsOf(page));
      cursor = page.json().next_cursor;
    }
    t.deepEqual(seen, all);
  }
  for (const wrong of ['status=open', 'limit=0', 'limit=101', 'cursor=x', 'reference=x']) {
    t.is((await list(`?${wrong}`)).statusCode, 400, wrong);
  }
  t.false(idsOf(await app.get(BATCHES)).includes(waiting), 'another key');
  await remove(`${BATCHES}/${waiting}`, headers);
  await remove(`${BATCHES}/${begun}`, headers);
});

test('a name is no part of a batch’s request, and is as a reference', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const send = (name?: unknown) => app.post(BATCHES, { items: itemsOf(1), name }, key);
  const { batch_id: id } = (await send('one')).json();
  const again = (await send('other')).json();
  t.deepEqual([again.batch_id, again.name], [id, 'one']);
  for (const name of ['', 'a\nb', 'x'.repeat(129)]) {
    const { code, errors } = (await send(name)).json();
    t.deepEqual([code, errors?.[0].field], ['INVALID_PARAMETER', 'name']);
  }
  await remove(`${BATCHES}/${id}`);
});

test('the failed items of a finished batch are submitted again as a batch of their own', async t => {
  const before = await credits();
  const items = ['a', 'b', 'c', 'd'].map(name => ({
    image_url: `https://example.com/${name}?x=1`,
    reference: name,
  }));
  const body = {
    items,
    name: 'first',
    output_format: 'webp',
    background_url: 'https://example.com/bg',
    crop: true,
  };
  const { batch_id: id } = (await app.post(BATCHES, body)).json();
  const again = (headers: object = {}, sent?: unknown) =>
    app.post(`${BATCHES}/${id}/again`, sent, { 'idempotency-key': randomUUID(), ...headers });
  t.is((await again()).json().code, 'BATCH_NOT_REPEATABLE', 'it is open');
  await endAll(id, ['succeed', 'fail', 'cancel', 'fail']);
  const old = (await app.get(`${BATCHES}/${id}`)).json();
  const key = { 'idempotency-key': randomUUID() };
  const made = await again(key);
  t.is(made.statusCode, 202, made.body);
  const next = made.json();
  t.is(made.headers.location, next.status_url);
  t.deepEqual([next.name, next.counts.waiting], ['first', 2]);
  t.is((await again(key)).json().batch_id, next.batch_id, 'the same key');
  t.is((await again(key, CALLBACK)).json().code, 'IDEMPOTENCY_CONFLICT');
  t.is((await app.post(BATCHES, body, key)).json().code, 'IDEMPOTENCY_CONFLICT');
  t.deepEqual(
    (await credits()).available,
    before.available - 3,
    'one for what succeeded, two held',
  );
  await app.stores.batches.enterItems(next.batch_id, app.accountId, LIMITS.jobsInFlightMax);
  const lines = (await app.get(`${BATCHES}/${next.batch_id}/results`)).body.trim().split('\n');
  const jobs = await Promise.all(lines.map(line => app.stores.jobs.find(JSON.parse(line).job_id)));
  t.deepEqual(
    jobs.map(job => [job?.reference, job?.sourceUrl, job?.outputFormat, job?.background?.url]),
    [
      ['b', 'https://example.com/b?x=1', 'webp', 'https://example.com/bg'],
      ['d', 'https://example.com/d?x=1', 'webp', 'https://example.com/bg'],
    ],
  );
  t.truthy(jobs[0]?.finishing?.crop);
  await endAll(next.batch_id, ['succeed', 'succeed']);
  t.is((await credits()).available, before.available - 3);
  const whole = await app.post(`${BATCHES}/${next.batch_id}/again`, undefined);
  t.deepEqual(
    [whole.statusCode, whole.json().code, whole.json().retryable],
    [409, 'BATCH_NOT_REPEATABLE', false],
  );
  t.deepEqual((await app.get(`${BATCHES}/${id}`)).json(), old, 'the old batch stays');
  const called = (await again({}, CALLBACK)).json();
  const rows = await rowsOf(app.database.kysely, 'batches', { id: called.batch_id });
  t.is(rows[0]?.callback_url, CALLBACK.callback_url);
  t.is((await again({}, { name: 'x' })).json().code, 'INVALID_REQUEST');
  t.is((await again({}, { callback_url: CALLBACK.callback_url })).json().code, 'INVALID_CALLBACK');
  const stranger = { authorization: `Bearer ${await app.createKey()}` };
  t.is((await again(stranger)).json().code, 'BATCH_NOT_FOUND');
  await remove(`${BATCHES}/${called.batch_id}`);
  const poor = await again({}, {});
  t.is(poor.statusCode, 202);
  await remove(`${BATCHES}/${poor.json().batch_id}`);
});

test('the addresses of a batch are kept no longer than they can be asked again', async t => {
  const kept = async (id: string) =>
    (await rowsOf(app.database.kysely, 'batch_items', { batch_id: id })).map(row =>
      [row.image_url, row.again_url].join(),
    );
  const submit = async () =>
    (await app.post(BATCHES, { items: itemsOf(2) })).json().batch_id as string;
  const done = await submit();
  await endAll(done, ['succeed', 'fail']);
  t.deepEqual((await kept(done)).sort(), [',', ',https://example.com/1.jpg']);
  t.is((await remove(`${BATCHES}/${done}`)).json().status, 'finished');
  t.deepEqual(await kept(done), [',', ',']);
  t.is((await app.post(`${BATCHES}/${done}/again`, undefined)).json().code, 'BATCH_NOT_REPEATABLE');
  const gone = await submit();
  await app.stores.batches.enterItems(gone, app.accountId, LIMITS.jobsInFlightMax);
  await remove(`${BATCHES}/${gone}`);
  const late = await submit();
  await remove(`${BATCHES}/${late}`);
  await app.stores.batches.enterItems(late, app.accountId, LIMITS.jobsInFlightMax);
  for (const id of [gone, late]) t.deepEqual(await kept(id), [',', ','], id);
  const { code, retryable } = (await app.post(`${BATCHES}/${gone}/again`, undefined)).json();
  t.deepEqual([code, retryable], ['BATCH_NOT_REPEATABLE', false]);
});

test('a batch that fails holds up no other one', async t => {
  const stuck = (await app.post(BATCHES, { items: itemsOf(1) })).json().batch_id;
  const other = (await app.post(BATCHES, { items: itemsOf(1) })).json().batch_id;
  const { batches, groups } = app.stores;
  const warned: unknown[] = [];
  const loop = runBatches({
    batches: {
      ...batches,
      enterItems: async (id: string, ...others: [string, number]) => {
        if (id === stuck) throw new Error(`batch ${id} fails`);
        return batches.enterItems(id, ...others);
      },
    },
    groups,
    events: app.events,
    ...LIMITS,
    log: { warn: (line: unknown) => void warned.push(line) },
    pollMs: 5,
  });
  loop.start();
  t.teardown(() => loop.stop());
  const countsOf = async (id: string) => (await app.get(`${BATCHES}/${id}`)).json().counts;
  await until('the other batch advances', async () => (await countsOf(other)).waiting === 0);
  await loop.stop();
  t.is((await countsOf(stuck)).waiting, 1);
  t.true(warned.length > 0);
});

test('a batch from its submission to its end, by pages of its results', async t => {
  startLoop(t);
  const key = { 'idempotency-key': randomUUID() };
  const body = { items: itemsOf(5, { reference: 'mine' }), output_format: 'webp', ...CALLBACK };
  const answer = await app.post(BATCHES, body, key);
  t.is(answer.statusCode, 202, answer.body);
  const { batch_id: id, status_url: url } = answer.json();
  t.deepEqual([answer.headers.location, answer.headers['retry-after']], [url, '5']);
  t.like(answer.json(), { status: 'queued', finished_at: null });
  const without = { ...body, items: itemsOf(5) };
  t.is((await app.post(BATCHES, without, key)).json().batch_id, id);
  const other = await app.post(BATCHES, { ...body, output_format: 'png' }, key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
  const single = await app.post('/v1/matting/jobs', { image_url: 'https://example.com/' }, key);
  t.is(single.json().code, 'IDEMPOTENCY_CONFLICT');
  const path = `${BATCHES}/${id}`;
  const read = async () => {
    const answer = await app.get(path);
    assert.equal(answer.statusCode, 200, answer.body);
    return answer.json();
  };
  await until('its items are jobs', async () => (await read()).counts.waiting === 0);
  const linesOf = (text: string) =>
    text
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line));
  const jobs = linesOf((await app.get(`${path}/results`)).body);
  t.deepEqual(
    jobs.map(job => [job.item, job.batch_id, job.status, job.reference]),
    [0, 1, 2, 3, 4].map(item => [item, id, 'queued', 'mine']),
  );
  for (const { job_id: jobId } of jobs.slice(0, 4)) await app.succeedJob(jobId);
  t.is((await read()).status, 'processing');
  await app.failJob(jobs[4].job_id, { code: 'NO_SUBJECT', detail: 'none', retryable: false });
  await until('its end', async () => (await read()).status === 'finished');
  t.like((await read()).counts, { succeeded: 4, failed: 1 });
  const page = await app.get(`${path}/results?limit=3`);
  t.is(page.headers['content-type'], 'application/jsonl; charset=utf-8');
  const next = /<([^>]+)>; rel="next"/.exec(String(page.headers.link))?.[1];
  assert.ok(next);
  const { pathname, search } = new URL(next);
  const rest = await app.get(pathname + search);
  t.is(rest.headers.link, undefined);
  t.deepEqual(
    [...linesOf(page.body), ...linesOf(rest.body)].map(({ item }) => item),
    [0, 1, 2, 3, 4],
  );
  const again = await app.post(BATCHES, body, key);
  t.deepEqual([again.statusCode, again.headers['idempotent-replayed']], [200, 'true']);
  for (const query of ['limit=0', 'limit=1001', 'cursor=x', 'page=2', 'limit=1&limit=2']) {
    t.is((await app.get(`${path}/results?${query}`)).statusCode, 400, query);
  }
  const stranger = { authorization: `Bearer ${await app.createKey()}` };
  for (const hidden of [path, `${path}/results`, `${BATCHES}/${randomUUID()}`, `${BATCHES}/x`]) {
    t.is((await app.get(hidden, stranger)).json().code, 'BATCH_NOT_FOUND');
  }
});

test('a cancelled batch returns the credits that it did not charge', async t => {
  const before = await credits();
  const answer = await app.post(BATCHES, { items: itemsOf(40) });
  const { batch_id: id } = answer.json();
  t.deepEqual(await credits(), {
    available: before.available - 40,
    reserved: before.reserved + 40,
  });
  const path = `${BATCHES}/${id}`;
  const headers = app.headers({ 'content-type': undefined });
  const cancelled = await app.app.inject({ method: 'DELETE', url: path, headers });
  t.deepEqual([cancelled.statusCode, cancelled.json().status], [200, 'cancelled']);
  startLoop(t);
  await until('its end', async () => (await app.get(path)).json().finished_at !== null);
  t.like((await app.get(path)).json(), { status: 'cancelled', counts: { failed: 40, waiting: 0 } });
  t.deepEqual(await credits(), before);
  t.is((await app.app.inject({ method: 'DELETE', url: path, headers })).statusCode, 200);
});
