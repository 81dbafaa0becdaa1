import { randomUUID } from 'node:crypto';
import { FORM_TYPE, formOf, imagePart } from '@matting/http/test/forms.ts';
import type { NodeAbility } from '@matting/nodes/node-view.ts';
import {
  ABILITIES,
  modelsSeen,
  saidModel,
  saidPlan,
  snapshotWith,
} from '@matting/nodes/test/nodes-seen.ts';
import ava, { type ExecutionContext } from 'ava';
import { ASYNC, assertRefused, SYNC } from '../test/refusals.ts';
import {
  imageBody,
  openTestApp,
  pngHeader,
  type TestApp,
  useTestApp,
} from '../test/support/test-app.ts';

const test = ava.serial;

const OFFERED = ['standard', 'heavy', 'gone'];
const app = useTestApp(test, { modelsOffered: OFFERED });
/** A node of 0.3.0, which loads other models too. */
const models = modelsSeen(saidPlan('standard'), saidModel('heavy'), saidModel('hidden'));
const NODE: NodeAbility = { ...ABILITIES, models };

test.beforeEach(() => {
  app.nodes = [snapshotWith({ models })];
  app.advertise([NODE]);
});

const one = (model: unknown) => imageBody({ model });

test('a name that is not offered is refused by both paths, and the offered are listed', async t => {
  for (const model of ['hidden', '', 'Heavy', 'heavy ', 'a'.repeat(65), 'é']) {
    const detail = await assertRefused(t, app, one(model), 'INVALID_PARAMETER', 'model');
    t.is(
      detail,
      'model must be one of standard, heavy, gone; the operator offers others by MATTING_MODELS_OFFERED.',
    );
  }
  await assertRefused(t, app, one('a'.repeat(3000)), 'INVALID_PARAMETER', 'model');
  for (const model of [7, true, ['heavy'], { name: 'heavy' }]) {
    t.is((await app.post(ASYNC, one(model))).json().code, 'INVALID_REQUEST');
  }
});

test('JSON, a form and the query name the same request', async t => {
  const headers = { 'idempotency-key': randomUUID() };
  const made = await app.post(ASYNC, one('heavy'), headers);
  t.is(made.statusCode, 202);
  const picture = pngHeader(4, 3);
  const form = formOf([imagePart(picture), { name: 'model', body: 'heavy' }]);
  const again = [
    await app.post(ASYNC, form, { ...headers, ...FORM_TYPE }),
    await app.post(`${ASYNC}?model=heavy`, picture, { ...headers, 'content-type': 'image/png' }),
  ];
  for (const answer of again) t.is(answer.json().job_id, made.json().job_id, answer.payload);
  t.is((await app.stores.jobs.find(made.json().job_id))?.model, 'heavy');
});

test('a key with another model, or none, is a conflict', async t => {
  const key = { 'idempotency-key': randomUUID() };
  await app.post(ASYNC, one('heavy'), key);
  for (const model of ['standard', null]) {
    t.is((await app.post(ASYNC, one(model), key)).json().code, 'IDEMPOTENCY_CONFLICT');
  }
});

test('a request without a model gets the default, and its job names the models', async t => {
  const made = (await app.post(ASYNC, imageBody())).json();
  t.is((await app.stores.jobs.find(made.job_id))?.model, null);
  await app.succeedJob(made.job_id);
  const read = await app.get(`${ASYNC}/${made.job_id}`);
  t.deepEqual(read.json().models, [{ name: 'isnet', role: 'subject' }]);
});

test('a finished job names its models: read, replayed, and after it expired', async t => {
  const brief = await openTestApp({ modelsOffered: OFFERED, resultTtlMs: 1 }, t);
  for (const [of, status] of [
    [app, 'succeeded'],
    [brief, 'expired'],
  ] as const) {
    const key = { 'idempotency-key': randomUUID() };
    const made = (await of.post(ASYNC, one('heavy'), key)).json();
    t.false('models' in made);
    await of.succeedJob(made.job_id);
    await new Promise(resolve => setTimeout(resolve, 2));
    for (const answer of [
      await of.get(`${ASYNC}/${made.job_id}`),
      await of.post(ASYNC, one('heavy'), key),
    ]) {
      const job = answer.json();
      t.deepEqual([job.status, job.models], [status, [{ name: 'heavy', role: 'subject' }]]);
    }
  }
});

test('a model that no node has is refused, once nodes were there for the grace period', async t => {
  const detail = await assertRefused(t, app, one('gone'), 'INVALID_PARAMETER', 'model');
  t.regex(detail, /^model is not available: .* has gone\.$/);
  await assertRefused(
    t,
    app,
    { image_url: 'https://a.example/1.png', model: 'gone' },
    'INVALID_PARAMETER',
    'model',
  );
  // A model with another checksum does not count.
  app.advertise([{ ...NODE, models: modelsSeen(saidPlan('standard')) }]);
  await assertRefused(t, app, one('heavy'), 'INVALID_PARAMETER', 'model');
  app.advertise([
    { ...NODE, models: modelsSeen() },
    { ...NODE, bootId: 'b' },
  ]);
  t.is((await app.post(ASYNC, one('heavy'))).statusCode, 202);
  app.advertise(undefined);
  t.is((await app.post(ASYNC, one('gone'))).statusCode, 202, 'within the first grace');
});

test('a request without a model waits for no node of another one', async t => {
  app.advertise([{ ...NODE, onlyByName: true }]);
  const { statusCode, headers, body } = await app.post(ASYNC, imageBody());
  t.deepEqual([statusCode, JSON.parse(body).code], [503, 'SERVICE_UNAVAILABLE']);
  t.is(headers['retry-after'], '10');
  t.is((await app.post(ASYNC, one('heavy'))).statusCode, 202);
  app.advertise([{ ...NODE, onlyByName: true }, NODE]);
  t.is((await app.post(ASYNC, imageBody())).statusCode, 202);
  app.advertise([]);
  t.is((await app.post(ASYNC, imageBody())).statusCode, 202, 'as long as no node is missed');
});

test('joins, replays and conflicts are answered before the model is checked', async t => {
  app.advertise(undefined);
  const key = { 'idempotency-key': randomUUID() };
  const made = (await app.post(ASYNC, one('gone'), key)).json();
  app.advertise([NODE]);
  t.is((await app.post(ASYNC, one('gone'), key)).json().job_id, made.job_id);
  t.is((await app.post(ASYNC, one('hidden'), key)).json().code, 'IDEMPOTENCY_CONFLICT');
  const narrow = await app.createKey({ models: ['heavy'] });
  t.is((await app.post(ASYNC, one('gone'), authorized(narrow))).json().code, 'KEY_NOT_ALLOWED');
});

const authorized = (token: string) => ({ authorization: `Bearer ${token}` });
const listed = async (of: TestApp, headers = {}) =>
  (await of.get('/v1/models', headers)).json().models;

test('a key allows the models of its policy, and every request may name none', async t => {
  const headers = authorized(await app.createKey({ models: ['heavy', 'hidden'] }));
  const refused = await app.post(SYNC, one('standard'), headers);
  t.deepEqual([refused.statusCode, refused.json().code], [403, 'KEY_NOT_ALLOWED']);
  t.regex(refused.json().detail, /the model standard\./);
  t.is((await app.post(SYNC, one('hidden'), headers)).json().code, 'INVALID_PARAMETER');
  t.is((await app.post(ASYNC, one('heavy'), headers)).statusCode, 202);
  t.is((await app.post(ASYNC, imageBody(), headers)).statusCode, 202);
  const names = (await listed(app, headers)).map(({ name }: { name: string }) => name);
  t.deepEqual(names, ['heavy']);
});

test('the list has the offered models in the operator’s order, with the nodes’ facts', async t => {
  const terms = { commercial_use: 'yes', reason: 'MIT', source: 'https://example.com' };
  const said = {
    good_for: 'hair',
    seconds_p50: null,
    licence: { weights: terms, training_data: { ...terms, commercial_use: 'unclear' } },
  };
  const plan = { name: 'standard', kind: 'plan', default: true, loaded: true, ...said };
  const heavy = { name: 'heavy', kind: 'model', default: false, loaded: true, ...said };
  const unknown = { kind: null, good_for: null, licence: null, seconds_p50: null };
  const gone = { name: 'gone', default: false, loaded: false, ...unknown };
  t.deepEqual(await listed(app), [plan, heavy, gone]);
  const none = [{ ...plan, loaded: false }, { ...heavy, loaded: false }, gone];
  app.nodes = [snapshotWith({ models, enginesReady: 0 })];
  t.deepEqual(await listed(app), none);
  app.nodes = [snapshotWith({ models: modelsSeen(saidModel('heavy', { default: true })) })];
  t.deepEqual(await listed(app), [none[0], heavy, gone]);
  app.nodes = [];
  t.deepEqual(await listed(app), none, 'as it was said last');
});

test('the default is the first that is offered, whatever most nodes serve', async t => {
  const own = (name: string) => snapshotWith({ models: modelsSeen(saidPlan(name)) });
  app.nodes = [own('heavy'), own('heavy'), own('standard')];
  const defaults = (await listed(app)).map((model: { default: boolean }) => model.default);
  t.deepEqual(defaults, [true, false, false]);
});

test('the median is of the last hundred jobs of a name, and none before ten', async t => {
  const seconds = async () => (await listed(app))[1].seconds_p50;
  const note = (count: number, ms: number) => {
    for (let job = 0; job < count; job += 1) app.services.models.noteJob('heavy', ms);
  };
  note(9, 1234);
  t.is(await seconds(), null);
  note(1, 1234);
  t.is(await seconds(), 1.234);
  note(51, 2000.4);
  t.is(await seconds(), 2);
  note(100, 500);
  t.is(await seconds(), 0.5);
  app.services.models.noteJob('hidden', 1);
  t.is((await listed(app)).length, 3);
});

test('the list is a read: a key of any scope, its rate, its Idempotency-Key', async t => {
  for (const scope of ['submit', 'read', 'account'] as const) {
    const headers = authorized(await app.createKey({ scopes: [scope] }));
    const answer = await app.get('/v1/models', headers);
    t.is(answer.statusCode, 200);
    t.regex(String(answer.headers.ratelimit), /"reads"/);
  }
  const code = async (headers: object) => (await app.get('/v1/models', { ...headers })).json().code;
  t.is(await code({ authorization: undefined }), 'MISSING_API_KEY');
  t.is(await code({ 'idempotency-key': undefined }), 'INVALID_IDEMPOTENCY_KEY');
  t.is(
    await code(authorized(await app.createKey({ networks: ['192.0.2.0/24'] }))),
    'KEY_NOT_ALLOWED',
  );
});

async function byDefault(t: ExecutionContext): Promise<TestApp> {
  const plain = await openTestApp({}, t);
  plain.nodes = [snapshotWith({ models })];
  return plain;
}

test('without a list of models the service offers the nodes’ default plan alone', async t => {
  const plain = await byDefault(t);
  t.deepEqual(
    (await listed(plain)).map(({ name }: { name: string }) => name),
    ['standard'],
  );
  t.is((await plain.post(ASYNC, one('standard'))).statusCode, 202);
  t.regex((await plain.post(ASYNC, one('heavy'))).json().detail, /one of standard;/);
  plain.nodes = [];
  t.regex((await plain.post(ASYNC, one('heavy'))).json().detail, /one of standard;/);
});

test('without a list and without nodes the service accepts any well-formed name of a model', async t => {
  const plain = await openTestApp({}, t);
  t.deepEqual(await listed(plain), []);
  t.is((await plain.post(ASYNC, one('standard'))).statusCode, 202);
  for (const model of ['', 'a b', 'a'.repeat(65)]) {
    t.is((await plain.post(ASYNC, one(model))).json().code, 'INVALID_PARAMETER');
  }
});
