/** Batches as callers send them: what is refused whole, and one from its submission to its end. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { LIMITS } from '@matting/core/test/fixtures.ts';
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
    ['{', 'INVALID_REQUEST'],
    ['[]', 'INVALID_REQUEST'],
    [{}, 'INVALID_REQUEST', 'items'],
    [{ items: [] }, 'INVALID_REQUEST', 'items'],
    [{ items: {} }, 'INVALID_REQUEST', 'items'],
    [{ items: itemsOf(1001) }, 'INVALID_REQUEST', 'items'],
    [{ items: [...items, 'x'] }, 'INVALID_REQUEST'],
    [{ items: [...items, {}] }, 'INVALID_REQUEST', 'items[3].image_url'],
    [{ items: [...items, { image_url: 5 }] }, 'INVALID_REQUEST', 'items[3].image_url'],
    [
      { items: [...items, { image_url: 'ftp://x/' }] },
      'INVALID_IMAGE_SOURCE',
      'items[3].image_url',
    ],
    [{ items: [{ image_url: 'http://10.0.0.1/' }] }, 'INVALID_IMAGE_SOURCE', 'items[0].image_url'],
    [{ items: itemsOf(1, { reference: 'a\nb' }) }, 'INVALID_PARAMETER', 'items[0].reference'],
    [{ items: itemsOf(1, { model: 'x' }) }, 'INVALID_REQUEST', 'items[0].model'],
    [
      '{"items":[{"image_url":"https://a.example/1","image_url":"https://a.example/2"}]}',
      'INVALID_REQUEST',
    ],
    [
      '{"crop":true,"items":[{"image_url":"https://a.example/:1"}],"crop":false}',
      'INVALID_REQUEST',
    ],
    [{ items, reference: 'x' }, 'INVALID_REQUEST', 'reference'],
    [{ items, image_url: 'https://example.com/' }, 'INVALID_REQUEST', 'image_url'],
    [{ items, output_format: 'gif' }, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format'],
    [{ items, background: 'nothing' }, 'INVALID_PARAMETER', 'background'],
    [{ items, background: 5 }, 'INVALID_REQUEST', 'background'],
    [{ items, callback_url: CALLBACK.callback_url }, 'INVALID_CALLBACK'],
  ];
  for (const [body, code, field] of cases) {
    const answer = await app.post(BATCHES, body);
    const said = `${JSON.stringify(body).slice(0, 80)}: ${answer.body}`;
    t.is(answer.json().code, code, said);
    if (field !== undefined) t.is(answer.json().errors?.[0]?.field, field, said);
  }
  const form = await app.post(BATCHES, 'x', { 'content-type': 'image/png' });
  t.deepEqual([form.statusCode, form.json().code], [415, 'UNSUPPORTED_MEDIA_TYPE']);
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

test('a text with colons and escapes is no field given twice', async t => {
  const reference = 'a: "b": \\ "c":"d"';
  const body = { items: itemsOf(2, { reference }), crop: true, size_max_megapixels: 4 };
  const answer = await app.post(BATCHES, body);
  t.is(answer.statusCode, 202, answer.body);
  const results = await app.get(`${BATCHES}/${answer.json().batch_id}/results`);
  t.is(JSON.parse(results.body.split('\n')[0] ?? '').reference, reference);
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
