/** Submissions of what no node can do: the code of the field, after replay, join and conflict. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { ContractError } from '#contract/errors.ts';
import type { NodeAbility } from '../../../src/domain/dispatch/job-needs.ts';
import { imageBody, openTestApp, pngHeader, type TestApp } from '../../support/test-app.ts';
import { RemovebgClient } from '../removebg/removebg-client.ts';
import { ASYNC, assertRefused } from './refusals.ts';

const test = ava.serial;

const NODE: NodeAbility = {
  bootId: 'boot',
  inputFormats: new Set(['jpeg', 'png']),
  outputFormats: new Set(['png', 'webp']),
  imagePixelsMax: 100_000_000,
  jxlPixelsMax: 0,
  megapixelsAloneMax: 60,
};
const IMAGE_URL = { image_url: 'https://images.example/1.png' };

let app: TestApp;
test.beforeEach(async () => {
  app = await openTestApp();
  app.advertise([NODE]);
});
test.afterEach.always(() => app.close());

test('an output format, a picture and a size that no node takes are refused by their own codes', async t => {
  const format = ['UNSUPPORTED_OUTPUT_FORMAT', 'output_format'] as const;
  await assertRefused(t, app, imageBody({ output_format: 'avif' }), ...format);
  await assertRefused(t, app, { ...IMAGE_URL, output_format: 'jxl' }, ...format);
  const large = { image_base64: pngHeader(9000, 9000).toString('base64') };
  await assertRefused(t, app, large, 'IMAGE_RESOLUTION_TOO_LARGE');
  app.advertise([{ ...NODE, inputFormats: new Set(['jpeg']) }]);
  await assertRefused(t, app, imageBody(), 'UNSUPPORTED_IMAGE_FORMAT');
});

test('what some node can do, or may come to do, is taken', async t => {
  const avif = imageBody({ output_format: 'avif' });
  const able = { ...NODE, bootId: 'other', outputFormats: new Set(['avif'] as const) };
  for (const nodes of [[NODE, able], undefined]) {
    app.advertise(nodes);
    t.is((await app.post(ASYNC, avif)).statusCode, 202);
  }
});

test('no node at all is 503, not the fault of the request', async t => {
  app.advertise([]);
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'none', { retryAfterS: 10 }));
  await assertRefused(t, app, imageBody({ output_format: 'avif' }), 'SERVICE_UNAVAILABLE');
});

test('a join and a replay are answered, a conflict is one, whatever nodes can do now', async t => {
  app.advertise(undefined);
  const key = { 'idempotency-key': randomUUID() };
  const avif = imageBody({ output_format: 'avif' });
  const made = await app.post(ASYNC, avif, key);
  t.is(made.statusCode, 202);
  app.advertise([NODE]);
  const joined = await app.post(ASYNC, avif, key);
  t.deepEqual([joined.statusCode, joined.json().job_id], [202, made.json().job_id]);
  const other = await app.post(ASYNC, imageBody({ output_format: 'jxl' }), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
  await app.succeedJob(made.json().job_id);
  t.is((await app.post(ASYNC, avif, key)).statusCode, 200);
});

test('the interface of remove.bg answers it in its own words', async t => {
  app.advertise([{ ...NODE, outputFormats: new Set(['png']) }]);
  const client = new RemovebgClient(app);
  const answer = await client.form({ format: 'webp' });
  t.deepEqual([answer.statusCode, answer.json().errors[0].code], [400, 'invalid_format']);
  t.is(answer.headers['x-credits-charged'], '0');
  t.is(await app.countJobs(), 0);
});
