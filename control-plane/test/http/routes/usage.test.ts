/** GET /v1/account/usage: questions, their refusals, and whose figures are shown. */
import ava from 'ava';
import { dayOf, isoOfDay } from '../../../src/domain/account/usage.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const PATH = '/v1/account/usage';

const app = useTestApp(test, { credits: 12 });

async function submit(body: unknown): Promise<string> {
  return (await app.post('/v1/matting/jobs', body)).json().job_id;
}

test('is nothing before the first job has ended', async t => {
  await submit(imageBody());
  const { statusCode, headers, ...answer } = await app.get(PATH);
  t.is(statusCode, 200);
  t.is(headers['cache-control'], 'no-store');
  const { from, to, group, total, usage } = answer.json();
  t.deepEqual([group, usage], ['day', []]);
  t.deepEqual(total, { images: 0, failed: 0, credits: 0 });
  t.is((Date.parse(to) - Date.parse(from)) / 86_400_000, 29);
});

test('is what the account was charged, and what failed beside it', async t => {
  const before = (await app.get('/v1/account')).json().credits.available;
  await app.succeedJob(await submit(imageBody({ output_format: 'webp' })));
  await app.succeedJob(await submit(imageBody()));
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  await app.failJob(await submit(imageBody()), failure);
  const { available } = (await app.get('/v1/account')).json().credits;
  const { total, usage } = (await app.get(`${PATH}?group=format`)).json();
  t.deepEqual(total, { images: 3, failed: 1, credits: before - available });
  t.deepEqual(usage, [
    { format: 'png', images: 2, failed: 1, credits: 1 },
    { format: 'webp', images: 1, failed: 0, credits: 1 },
  ]);
  const byOutcome = (await app.get(`${PATH}?group=outcome`)).json();
  t.deepEqual(byOutcome.usage, [
    { outcome: 'failed', images: 1, failed: 1, credits: 0 },
    { outcome: 'succeeded', images: 2, failed: 0, credits: 2 },
  ]);
  const keys = (await app.get('/v1/account/keys')).json().keys;
  const byKey = (await app.get(`${PATH}?group=key`)).json();
  const { prefix, name } = keys[0];
  t.deepEqual(byKey.usage, [{ key: prefix, name, images: 3, failed: 1, credits: 2 }]);
  const today = dayOf(Date.now());
  const days = `from=${isoOfDay(today - 1)}&to=${isoOfDay(today)}`;
  const byDay = (await app.get(`${PATH}?${days}&group=day`)).json();
  t.deepEqual([byDay.from, byDay.to], [isoOfDay(today - 1), isoOfDay(today)]);
  const past = `from=${isoOfDay(today - 9)}&to=${isoOfDay(today - 5)}`;
  t.deepEqual((await app.get(`${PATH}?${past}`)).json().usage, []);
});

const wrong: [query: string, code: string, field: string | undefined][] = [
  ['from=2026-02-29', 'INVALID_PARAMETER', 'from'],
  ['from=2026-1-01', 'INVALID_PARAMETER', 'from'],
  ['from=', 'INVALID_PARAMETER', 'from'],
  ['from=1969-12-31', 'INVALID_PARAMETER', 'from'],
  ['to=yesterday', 'INVALID_PARAMETER', 'to'],
  ['from=2026-02-02&to=2026-02-01', 'INVALID_PARAMETER', 'from'],
  ['from=2024-01-01&to=2025-01-01', 'INVALID_PARAMETER', 'from'],
  ['group=month', 'INVALID_PARAMETER', 'group'],
  ['group=day&group=day', 'INVALID_REQUEST', 'group'],
  ['since=2026-01-01', 'INVALID_REQUEST', 'since'],
  ['from=%ff', 'INVALID_REQUEST', 'from'],
];
for (const [query, code, field] of wrong) {
  test(`refuses ${query}`, async t => {
    const answer = await app.get(`${PATH}?${query}`);
    t.is(answer.statusCode, 400);
    const problem = answer.json();
    t.deepEqual([problem.code, problem.errors?.[0]?.field], [code, field]);
  });
}

test('is told for as many days as may be, a leap day among them', async t => {
  const answer = await app.get(`${PATH}?from=2024-01-01&to=2024-12-31`);
  t.is(answer.statusCode, 200);
});

test('takes a key and an Idempotency-Key, as every read', async t => {
  const answer = await app.app.inject({ url: PATH });
  t.is(answer.json().code, 'MISSING_API_KEY');
  const headers = app.headers({ 'idempotency-key': undefined });
  const keyless = await app.app.inject({ url: PATH, headers });
  t.is(keyless.json().code, 'INVALID_IDEMPOTENCY_KEY');
});
