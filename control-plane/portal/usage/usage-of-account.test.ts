/** GET /v1/account/usage. The last test is that of packages, too. */
import { imageBody } from '@matting/core/test/support/test-app.ts';
import ava from 'ava';
import { useTestApp } from '../test/portal-app.ts';
import { dayOf, isoOfDay } from './usage-store.ts';

const test = ava.serial;

const app = useTestApp(test);

const PATH = '/v1/account/usage';

async function submit(body: unknown): Promise<string> {
  return (await app.post('/v1/matting/jobs', body)).json().job_id;
}

test('usage › is what the account was charged, and what failed beside it', async t => {
  const before = (await app.get('/v1/account')).json().credits.available;
  await app.succeedJob(await submit(imageBody({ output_format: 'webp' })));
  await app.succeedJob(await submit(imageBody()));
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  await app.failJob(await submit(imageBody()), failure);
  const { available } = (await app.get('/v1/account')).json().credits;
  const { total, usage } = (await app.get(`${PATH}?group=format`)).json();
  t.deepEqual(total, { images: 3, failed: 1, corrected: 0, credits: before - available });
  t.deepEqual(usage, [
    { format: 'png', images: 2, failed: 1, corrected: 0, credits: 1 },
    { format: 'webp', images: 1, failed: 0, corrected: 0, credits: 1 },
  ]);
  const byOutcome = (await app.get(`${PATH}?group=outcome`)).json();
  t.deepEqual(byOutcome.usage, [
    { outcome: 'failed', images: 1, failed: 1, corrected: 0, credits: 0 },
    { outcome: 'succeeded', images: 2, failed: 0, corrected: 0, credits: 2 },
  ]);
  const keys = (await app.get('/v1/account/keys')).json().keys;
  const byKey = (await app.get(`${PATH}?group=key`)).json();
  const { prefix, name } = keys[0];
  t.deepEqual(byKey.usage, [{ key: prefix, name, images: 3, failed: 1, corrected: 0, credits: 2 }]);
  const today = dayOf(Date.now());
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
test('usage › refuses what is no question, and takes as many days as may be, a leap day among them', async t => {
  for (const [query, code, field] of wrong) {
    const problem = (await app.get(`${PATH}?${query}`)).json();
    t.deepEqual([problem.code, problem.errors?.[0]?.field], [code, field], query);
  }
  t.is((await app.get(`${PATH}?from=2024-01-01&to=2024-12-31`)).statusCode, 200);
});

for (const path of [PATH, '/v1/account/packages']) {
  test(`${path} › asks for a key with the scope account, and for an Idempotency-Key`, async t => {
    const codeOf = async (headers: Record<string, string | undefined>) =>
      (await app.get(path, headers)).json().code;
    t.is(await codeOf({ authorization: undefined }), 'MISSING_API_KEY');
    t.is(await codeOf({ authorization: 'Bearer nobody' }), 'INVALID_API_KEY');
    t.is(await codeOf({ 'idempotency-key': undefined }), 'INVALID_IDEMPOTENCY_KEY');
    const keyed = async (scope: 'read' | 'account') => ({
      authorization: `Bearer ${await app.createKey({ scopes: [scope] })}`,
    });
    const refused = await app.get(path, await keyed('read'));
    t.is(refused.json().code, 'KEY_NOT_ALLOWED');
    t.is(refused.headers.ratelimit, undefined, 'before the rate is counted');
    const answered = await app.get(path, await keyed('account'));
    t.is(answered.statusCode, 200);
    t.truthy(answered.headers.ratelimit);
  });
}
