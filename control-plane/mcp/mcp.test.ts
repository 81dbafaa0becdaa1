/** Agents use the SDK's own client. Some messages are written by hand, as no client sends them. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { thumbnailBlob } from '@matting/core/test/internals.ts';
import { BASE_URL } from '@matting/core/test/support/test-app.ts';
import { hold } from '@matting/http/test/held-form.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import { sameNames } from '@matting/test-support/same-names.ts';
import ava, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { argumentsOf, IMAGE_FIELDS } from './arguments.ts';
import {
  Agent,
  base64,
  callOf,
  HEADERS,
  image,
  openTestApp,
  post,
  useTestApp,
} from './test/mcp-client.ts';

const test = ava.serial;

const RESULT = Buffer.from('a cut-out of some bytes');
const IMAGE_URL = 'https://images.example.com/photo.jpg';

let agent: Agent;
const app = useTestApp(test, { credits: 100_000, jobsInFlightMax: 1000 }, async () => {
  agent = await Agent.at(await app.listen(), app.token);
});

const PING = { jsonrpc: '2.0', id: 1, method: 'ping' };
const balances = async () => (await app.stores.ledger.balances(app.accountId))!;

function succeeding(t: ExecutionContext): void {
  const jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  t.teardown(() => jobs.stop());
}

test('an agent finds the tools, and the fields of REST in them', async t => {
  const { tools } = await agent.client.listTools();
  t.deepEqual(
    tools.map(({ name, annotations }) => [name, annotations?.readOnlyHint]),
    [
      ['remove_background', false],
      ['create_upload', false],
      ['correct_cutout', false],
      ['get_job', true],
      ['get_account', true],
      ['list_models', true],
    ],
  );
  for (const name of ['remove_background', 'correct_cutout', 'get_job'] as const) {
    const { inputSchema } = tools.find(tool => tool.name === name)!;
    sameNames(t, Object.keys(inputSchema.properties ?? {}), argumentsOf(name));
    for (const [field, schema] of Object.entries(inputSchema.properties ?? {})) {
      const { type, description } = schema as { type: unknown; description: string };
      t.true(typeof type === 'string' && description.length > 20, field);
    }
  }
  const text = JSON.stringify(tools);
  t.notRegex(text, /\/v1|header|status_url|Idempotency-Key|isnet/);
  t.true(text.length < 13_000, `every conversation pays for ${text.length} characters`);
});

test('an agent reads the REST reference, with the addresses of this service', async t => {
  const { resources } = await agent.client.listResources();
  t.deepEqual((await agent.client.listResourceTemplates()).resourceTemplates, []);
  const texts = await Promise.all(
    resources.map(async ({ uri }) => (await agent.client.readResource({ uri })).contents[0]),
  );
  const [page, document] = texts.map(content =>
    String(content && 'text' in content && content.text),
  );
  t.regex(page ?? '', new RegExp(`BASE=${BASE_URL}`));
  t.regex(page ?? '', /`crop_margin`[\s\S]*`matting\.batch\.finished`[\s\S]*webhook-signature/);
  t.deepEqual(JSON.parse(document ?? ''), (await app.get('/v1/openapi.json')).json());
  await t.throwsAsync(agent.client.readResource({ uri: 'file:///etc/passwd' }), { code: -32602 });
});

test('a picture is removed, found again and paid for once', async t => {
  succeeding(t);
  app.sight = { inputWidth: 2, inputHeight: 1, subject: null };
  t.teardown(() => {
    app.sight = null;
  });
  const before = await balances();
  const given = { image_base64: base64(), crop: true, output_width: 100, background: null };
  const { text, fields, isError } = await agent.remove(given);
  t.false(isError, text);
  const { result, job_id } = fields;
  t.regex(text, /2 x 1 pixels, 23 bytes of PNG\..*no_subject/);
  t.true(text.includes(result.url) && text.includes(result.expiresAt));
  t.is(fields.message, text);
  const download = await app.app.inject(new URL(result.url).pathname);
  t.true(download.rawPayload.equals(RESULT));
  const job = await app.stores.jobs.find(job_id);
  t.deepEqual([job?.finishing?.outputWidth, job?.class], [100, 'sync']);

  const again = await agent.remove(given);
  t.is(again.fields.result.url, result.url);
  t.regex(again.text, /An earlier call made it/);
  t.is((await agent.call('get_job', { job_id })).fields.result.url, result.url);
  const account = await agent.call('get_account');
  t.deepEqual(account.fields.credits, {
    available: before.available - 1,
    reserved: before.reserved,
  });
  t.regex(account.text, new RegExp(`^${before.available - 1} credits`));
  t.notRegex(account.text, /API key/);
  const cap = { credits: 7, period: 'total' } as const;
  const capped = await Agent.at(await app.listen(), await app.createKey({ cap }));
  t.regex((await capped.call('get_account')).text, /This API key can spend 7 of them/);
});

test('a number where a share is meant is one', async t => {
  succeeding(t);
  for (const scale of [85, '85', '85%']) {
    const { fields, text } = await agent.remove({ image_url: IMAGE_URL, scale, position: 50 });
    const job = await app.stores.jobs.find(fields.job_id);
    t.is(job?.finishing?.scalePercent, 85, text);
  }
});

test('a result is corrected without another credit, once for the same call', async t => {
  const erased: unknown[] = [];
  const cropRuns: unknown[] = [];
  const jobs = app.onSubmitted(async id => {
    const made = await app.stores.jobs.find(id);
    erased.push(made?.hints?.erase);
    cropRuns.push(made?.correction?.cropRun);
    await app.succeedJob(id, RESULT);
  });
  t.teardown(() => jobs.stop());
  const first = await agent.remove({ image_base64: base64(), correctable: true });
  const { job_id } = first.fields;
  const before = await balances();
  const given = { job_id, erase: [{ box: [0, 0, 5, 5] }], background: 'white' };
  const { fields, text, isError } = await agent.call('correct_cutout', given);
  t.false(isError, text);
  t.deepEqual([fields.corrects, fields.credits], [job_id, { reserved: 0, charged: 0 }]);
  const job = await app.stores.jobs.find(fields.job_id);
  t.truthy(job?.finishing?.background);
  t.deepEqual(erased.at(-1), [{ box: [0, 0, 5, 5] }]);
  t.is((await agent.call('correct_cutout', given)).fields.job_id, fields.job_id);
  const keep = [{ box: [0, 0, 5, 5] }];
  const other = await agent.call('correct_cutout', { ...given, keep, idempotency_key: 'mine' });
  t.not(other.fields.job_id, fields.job_id);
  t.deepEqual(cropRuns, [undefined, undefined, {}]);
  t.deepEqual(await balances(), before);
  const plain = await agent.remove({ image_base64: base64() });
  for (const [wrong, message] of [
    [{ job_id: plain.fields.job_id }, /^JOB_NOT_CORRECTABLE: .*correctable=true/],
    [{ job_id: randomUUID() }, /^JOB_NOT_FOUND: This API key has no job with this id\. Send the/],
    [{}, /job_id is missing/],
    [{ job_id, keep: [{ box: [9, 9, 1, 1] }] }, /^INVALID_PARAMETER: keep/],
    [{ job_id, keep: 'x' }, /^INVALID_PARAMETER: keep/],
    [{ job_id, keep: 7 }, /^INVALID_REQUEST: keep must be/],
    [{ job_id, model: 'fast' }, /Unknown field: model\. The arguments are /],
    [{ job_id, idempotency_key: 'mine' }, /^IDEMPOTENCY_CONFLICT: This idempotency_key belongs/],
  ] as const) {
    const refused = await agent.call('correct_cutout', wrong);
    t.regex(refused.text, message);
    t.notRegex(JSON.stringify(refused.fields), /\/v1\/|status_url|Idempotency-Key has/);
  }
});

test('a list of shapes that is nested deeply is refused by its name', async t => {
  const deep = JSON.stringify(callOf('correct_cutout', { job_id: randomUUID(), keep: [1] }));
  const nested = `${'['.repeat(30_000)}${']'.repeat(30_000)}`;
  const answer = await post(app, deep.replace('[1]', nested));
  t.regex(answer.json().result.content[0].text, /^INVALID_REQUEST: keep must be a list of shapes/);
});

test('a preview is the thumbnail of the result, where there is one, and changes nothing else', async t => {
  succeeding(t);
  const thumbnail = Buffer.from('RIFF of a thumbnail');
  app.thumbnail = thumbnail;
  t.teardown(() => {
    app.thumbnail = undefined;
  });
  const given = { image_base64: base64() };
  const { fields, pictures } = await agent.remove(given);
  t.deepEqual(pictures, [], 'none was asked for');
  const shown = [{ type: 'image', data: thumbnail.toString('base64'), mimeType: 'image/webp' }];
  const again = await agent.remove({ ...given, preview: true });
  t.deepEqual([again.fields.job_id, again.pictures], [fields.job_id, shown]);
  const { job_id } = fields;
  t.deepEqual((await agent.call('get_job', { job_id, preview: true })).pictures, shown);
  const { result } = (await app.stores.jobs.find(job_id))!;
  await app.blobs.remove(thumbnailBlob(result!.blob));
  const gone = await agent.call('get_job', { job_id, preview: true });
  t.deepEqual([gone.isError, gone.pictures], [false, []]);
  t.regex(gone.text, /It has no preview/);
  const jobs = await app.countJobs();
  const wrong = await agent.remove({ image_base64: base64(), preview: 'yes' });
  t.regex(wrong.text, /^INVALID_REQUEST: preview must be a boolean/);
  t.is(await app.countJobs(), jobs);
});

test('a large picture is stored byte by byte, and counts as the same file of REST', async t => {
  succeeding(t);
  const file = image(300_000);
  const idempotency_key = randomUUID();
  const { fields, text } = await agent.remove({
    image_base64: file.toString('base64'),
    idempotency_key,
  });
  const body = { image_base64: file.toString('base64') };
  const answer = await app.post('/v1/matting', body, { 'idempotency-key': idempotency_key });
  t.deepEqual([answer.statusCode, answer.json().job_id], [200, fields.job_id], text);
  const other = await agent.remove({ image_base64: base64(), idempotency_key });
  t.true(other.isError);
  t.regex(other.text, /^IDEMPOTENCY_CONFLICT: .* another idempotency_key/);
});

test('a job that is not done in time is waited for by get_job', async t => {
  const slow = await openTestApp({ syncWaitMs: 50 }, t);
  const slowly = await Agent.at(await slow.listen(), slow.token);
  const { fields, text, isError } = await slowly.remove({ image_url: IMAGE_URL });
  t.false(isError);
  t.regex(text, /^The job is queued\. Call get_job/);
  t.is((await slowly.remove({ image_url: IMAGE_URL })).fields.job_id, fields.job_id);
  const { job_id } = fields;
  const unfinished = await slowly.call('get_job', { job_id });
  t.regex(unfinished.text, /Call get_job/);
  await slow.succeedJob(job_id, RESULT);
  t.truthy((await slowly.call('get_job', { job_id })).fields.result.url);
});

test('the models of the key are listed, and no other is taken', async t => {
  t.deepEqual((await agent.call('list_models')).fields.models, []);
  const offering = await openTestApp({ modelsOffered: ['fast', 'fine'] }, t);
  const token = await offering.createKey({ models: ['fast'] });
  const limited = await Agent.at(await offering.listen(), token);
  const { tools } = await limited.client.listTools();
  const { model } = tools[0]!.inputSchema.properties as Record<string, { enum?: string[] }>;
  t.deepEqual(model?.enum, ['fast']);
  const { text, fields } = await limited.call('list_models');
  t.is(text, 'fast (the default)');
  t.is(fields.models.length, 1);
  const refused = async (model: string) =>
    (await limited.remove({ image_url: IMAGE_URL, model })).text;
  t.regex(await refused('fine'), /^KEY_NOT_ALLOWED: .* fine\. list_models lists .*Tell the user/);
  t.regex(await refused('none'), /^INVALID_PARAMETER: .*fast, fine;.* Correct model\./);
});

const REFUSED: readonly [Record<string, unknown>, RegExp][] = [
  [{}, /^INVALID_IMAGE_SOURCE: .*Send a public image_url/],
  [{ image_url: IMAGE_URL, image_base64: base64() }, /^INVALID_IMAGE_SOURCE: .*Send one of/],
  [{ image_url: 'http://127.0.0.1/a.png' }, /Send a public image_url.*create_upload/],
  [{ image_url: `https://a.example/${'a'.repeat(3000)}` }, /^INVALID_IMAGE_SOURCE: .*2048/],
  [{ image_url: `data:image/png;base64,${base64(20_000)}` }, /^INVALID_REQUEST: .*image_base64/],
  [{ image_base64: '' }, /^INVALID_IMAGE_SOURCE/],
  [{ image_base64: '*' }, /^INVALID_IMAGE_SOURCE/],
  [{ image_base64: `${base64(20_000)}*` }, /^INVALID_IMAGE_SOURCE/],
  [{ image_base64: 'data:image/png,abc' }, /^INVALID_IMAGE_SOURCE/],
  [
    { image_base64: Buffer.from('GIF89a').toString('base64') },
    /^UNSUPPORTED_IMAGE_FORMAT: .*unchanged\.$/,
  ],
  [{ image_base64: base64(20_000), background: 'x'.repeat(20_000) }, /Only image_base64/],
  [{ image_base64: 7 }, /^INVALID_REQUEST: image_base64 must be a string\. Correct image_base64/],
  [{ image_url: [IMAGE_URL] }, /^INVALID_REQUEST: image_url must be a string/],
  [{ image_url: '\ud800' }, /^INVALID_REQUEST: .*surrogate/],
  [{ image_url: IMAGE_URL, crop: 'perhaps' }, /^INVALID_PARAMETER: crop .*Correct crop\.$/],
  [{ image_url: IMAGE_URL, crop: 1 }, /crop must be a string or a boolean/],
  [{ image_url: IMAGE_URL, output_format: 'gif' }, /^UNSUPPORTED_OUTPUT_FORMAT: .*png/],
  [{ image_url: IMAGE_URL, crop_margin: 5 }, /^INVALID_PARAMETER: crop_margin must be .*%/],
  [
    { image_url: IMAGE_URL, backgroud: 'red' },
    /^INVALID_REQUEST: .*mean background\? Do not repeat/,
  ],
  [
    { image_url: IMAGE_URL, callback_url: IMAGE_URL },
    /Unknown field: callback_url\. The arguments are /,
  ],
  [{ image_url: IMAGE_URL, api_key: 'x' }, /The arguments are image_url, .*, preview\. Do not/],
  [{ image_url: IMAGE_URL, keep: [] }, /Unknown field: keep\./],
  [{ image_url: IMAGE_URL, idempotency_key: 'ü' }, /^INVALID_IDEMPOTENCY_KEY: .*ASCII/],
  [{ image_url: IMAGE_URL, idempotency_key: 7 }, /idempotency_key must be a string/],
  [{ image_url: IMAGE_URL, idempotency_key: 'k'.repeat(129) }, /idempotency_key of 1 to 128/],
  [{ image_base64: base64(), idempotencyKey: 'x' }, /did you mean idempotency_key\?/i],
  [{ url: IMAGE_URL }, /image_url/],
  [{ image_url: '/home/a.jpg' }, /create_upload/],
  [{ image_base64: IMAGE_URL }, /image_url/],
  [{ image_base64: Buffer.from('%PDF-1.7').toString('base64') }, /PDF document.*JPEG, PNG/],
  [{ image_url: IMAGE_URL, output_width: '100px' }, /whole number/],
  [
    { image_url: IMAGE_URL, model: '../fast' },
    /^INVALID_PARAMETER: model must be a name of list_models\./,
  ],
];

const EMPTY = [null, '', 0, []];
const VALUES = {
  shadow: 'drop',
  crop: true,
  scale: '85%',
  output_format: 'jpeg',
  background: 'white',
};

test('an argument that was filled in with nothing is absent, alone and beside others', async t => {
  const quick = await openTestApp({ syncWaitMs: 1 }, t);
  const filling = await Agent.at(await quick.listen(), quick.token);
  const names = argumentsOf('remove_background').filter(name => name !== 'image_url');
  t.true(names.length > 20);
  for (const more of [{}, VALUES]) {
    const { fields } = await filling.remove({ image_url: IMAGE_URL, ...more });
    const isValue = (name: string, value: unknown) =>
      value === 0 && more === VALUES && ['crop_margin', 'position', 'shadow_blur'].includes(name);
    for (const value of EMPTY) {
      const empty = names.filter(name => !(name in more || isValue(name, value)));
      const all = Object.fromEntries(empty.map(name => [name, value]));
      for (const given of [all, ...empty.map(name => ({ [name]: value }))]) {
        const { text, fields: same } = await filling.remove({
          image_url: IMAGE_URL,
          ...given,
          ...more,
        });
        t.is(same.job_id, fields.job_id, `${JSON.stringify(given)}: ${text}`);
      }
    }
  }
  t.is(await quick.countJobs(), 2);
});

test('0 stays where it is a value', async t => {
  succeeding(t);
  const { fields } = await agent.remove({
    image_base64: base64(),
    ...VALUES,
    shadow_blur: 0,
    position: 0,
    crop_margin: 0,
  });
  const { finishing } = (await app.stores.jobs.find(fields.job_id))!;
  t.is(finishing?.shadow?.blur, 0);
  t.deepEqual(finishing?.position, { xPercent: 0, yPercent: 0 });
});

test('one image beside empty sources is the image, and empty sources alone are none', async t => {
  succeeding(t);
  const text = base64();
  const { fields } = await agent.remove({ image_base64: text });
  const same = { image_base64: text, image_url: '', image_id: '' };
  t.is((await agent.remove(same)).fields.job_id, fields.job_id);
  const none = await agent.remove({ image_base64: '', image_url: '', image_id: null });
  t.regex(none.text, /^INVALID_IMAGE_SOURCE: The call has no image\. Send a public image_url, or/);
  t.regex((await agent.call('get_job', { job_id: '' })).text, /job_id is missing/);
});

test('a correction takes over what is filled in with nothing', async t => {
  succeeding(t);
  const first = await agent.remove({ image_base64: base64(), correctable: true, shadow: 'drop' });
  const { job_id } = first.fields;
  const empty = { keep: [], erase: '', background: '', output_width: 0, position: 0 };
  const { fields, text } = await agent.call('correct_cutout', {
    job_id,
    ...empty,
    crop_margin: 0,
    shadow_blur: 0,
  });
  const { finishing, hints } = (await app.stores.jobs.find(fields.job_id))!;
  t.deepEqual([finishing?.shadow?.blur, finishing?.position, hints], [0, undefined, null], text);
});

test('a wrong call names its mistake, costs nothing and leaves nothing behind', async t => {
  const left = async () => [await balances(), await app.storedFiles(), app.services.uploads.open];
  const before = await left();
  for (const [given, message] of REFUSED) {
    const { text, isError, fields } = await agent.remove(given);
    t.true(isError, text);
    t.regex(text, message);
    t.true(text.startsWith(fields.code) && fields.status < 500);
    t.regex(fields.detail, /^\S.*[.?]$/, text);
    t.notRegex(JSON.stringify(fields.errors ?? []), /\/v1\//);
  }
  t.deepEqual(await left(), before);
});

test('an error of the account, the service or the picture says what to do', async t => {
  const poor = await openTestApp({ credits: 0 }, t);
  const beggar = await Agent.at(await poor.listen(), poor.token);
  t.regex(
    (await beggar.remove({ image_url: IMAGE_URL })).text,
    /^INSUFFICIENT_CREDITS: .*needs credits/,
  );
  const port = await app.listen();
  const capped = await Agent.at(port, await app.createKey({ cap: { credits: 1, period: 'day' } }));
  const slowed = await Agent.at(port, await app.createKey({ submissionsPerMinute: 1 }));
  app.refuseNewJobs(
    new ContractError('SERVICE_UNAVAILABLE', 'The queue is full.', { retryAfterS: 7 }),
  );
  t.regex(
    (await capped.remove({ image_url: IMAGE_URL })).text,
    /queue is full\. .* in 7 seconds\. /,
  );
  app.refuseNewJobs(undefined);
  await slowed.remove({});
  t.regex((await slowed.remove({})).text, /^RATE_LIMITED: .*1 submissions.* in \d+ seconds/);
  const failing = app.onSubmitted(id =>
    app.failJob(id, {
      code: 'PROCESSING_FAILED',
      detail: 'The image is damaged.',
      retryable: false,
    }),
  );
  const failed = await capped.remove({ image_base64: base64() });
  await failing.stop();
  t.regex(failed.text, /^PROCESSING_FAILED: The image is damaged\. Do not repeat/);
  t.is((await capped.call('get_job', { job_id: failed.fields.job_id })).text, failed.text);
  succeeding(t);
  t.false((await capped.remove({ image_base64: base64() })).isError);
  t.regex((await capped.remove({ image_base64: base64() })).text, /^KEY_CAP_REACHED/);
  t.regex((await agent.call('get_job', { job_id: failed.fields.job_id })).text, /^JOB_NOT_FOUND/);
  t.regex((await agent.call('get_job')).text, /^INVALID_REQUEST: job_id is missing\..* job_id\.$/);
  t.regex((await agent.call('get_job', { id: 'x' })).text, /^INVALID_REQUEST: job_id is missing/);
});

test('a result whose file is gone is told of as lost', async t => {
  const given = { image_base64: base64() };
  const jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  const { fields } = await agent.remove(given);
  // Some results must remain: a storage that lost all at once counts as absent.
  for (let count = 0; count < 2; count += 1) await agent.remove({ image_base64: base64() });
  await jobs.stop();
  const job = await app.stores.jobs.find(fields.job_id);
  await rm(path.join(app.storageDir, job!.result!.blob));
  for (const lost of [await agent.remove(given), await agent.call('get_job', fields)]) {
    t.regex(lost.text, /^RESULT_LOST: /);
    t.is(lost.fields.job_id, fields.job_id);
  }
});

/** The scope that each tool needs. Undefined: none. The test does not read it from the code. */
const SCOPE_OF = {
  remove_background: 'submit',
  create_upload: 'submit',
  correct_cutout: 'submit',
  get_job: 'read',
  get_account: 'account',
  list_models: undefined,
} as const;

for (const scope of ['submit', 'read', 'account'] as const) {
  test(`a key with the scope ${scope} alone calls the tools of that scope, and no other`, async t => {
    const caller = await Agent.at(await app.listen(), await app.createKey({ scopes: [scope] }));
    const { tools } = await caller.client.listTools();
    sameNames(
      t,
      tools.map(({ name }) => name),
      Object.keys(SCOPE_OF),
    );
    for (const [name, needed] of Object.entries(SCOPE_OF)) {
      // The service checks the scope before the arguments.
      const { text } = await caller.call(name, name === 'get_job' ? { job_id: randomUUID() } : {});
      const isTaken = needed === undefined || needed === scope;
      t.is(/^KEY_NOT_ALLOWED: .*another API key/.test(text), !isTaken, `${name}: ${text}`);
    }
  });
}

test('a key does what its networks allow, until it is revoked', async t => {
  const port = await app.listen();
  const elsewhere = await app.createKey({ networks: ['203.0.113.0/24'] });
  t.is((await post(app, PING, { authorization: `Bearer ${elsewhere}` })).statusCode, 403);
  t.is(
    (await post(app, PING, { authorization: undefined, 'x-api-key': app.token })).statusCode,
    200,
  );
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'gone');
  const leaver = await Agent.at(port, token);
  await app.stores.apiKeys.revoke(key.id);
  await t.throwsAsync(leaver.remove({ image_url: IMAGE_URL }), { message: /INVALID_API_KEY/ });
  for (const wrong of ['', 'Bearer mk_none', `Basic ${app.token}`, `Bearer ${token}`]) {
    const answer = await post(app, PING, { authorization: wrong });
    t.deepEqual([answer.statusCode, answer.headers['www-authenticate']], [401, 'Bearer'], wrong);
  }
});

test('a key that is revoked while its call is on the way makes no job', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'leaked');
  const left = async () => [await balances(), await app.countJobs(), await app.storedFiles()];
  const before = await left();
  const waiting = await hold(await app.listen(), {
    path: '/mcp',
    headers: { ...HEADERS, authorization: `Bearer ${token}` },
    payload: JSON.stringify(callOf('remove_background', { image_base64: base64(20_000) })),
  });
  await app.stores.apiKeys.revoke(key.id);
  const { status, body } = await waiting.release();
  t.regex(JSON.parse(body).result.content[0].text, /^INVALID_API_KEY: .*another API key/);
  t.is(status, 200);
  t.deepEqual(await left(), before);
});

test('pages of other origins are refused, before anything is read', async t => {
  for (const origin of ['https://evil.example', 'null', `${BASE_URL}.evil.example`]) {
    const answer = await post(app, PING, { origin });
    t.deepEqual([answer.statusCode, answer.json().code], [403, 'KEY_NOT_ALLOWED'], origin);
  }
  t.is((await post(app, PING, { origin: BASE_URL })).statusCode, 200);
  const slash = await app.app.inject({ method: 'POST', url: '/mcp/', headers: app.headers() });
  t.regex(slash.payload, /mean \/mcp\?/);
});

test('a message that is not of the protocol gets an error of JSON-RPC', async t => {
  const codeOf = ({ error, code }: { error?: { code: number }; code?: string }) =>
    error?.code ?? code;
  const answers: [unknown, Record<string, string>, number, number | string][] = [
    ['{', {}, 400, -32700],
    [{}, {}, 400, -32600],
    [null, {}, 400, -32700],
    [{ ...PING, jsonrpc: '1.0' }, {}, 400, -32600],
    [[PING, PING], {}, 400, 'INVALID_REQUEST'],
    [' '.repeat(330_000), {}, 400, 'INVALID_REQUEST'],
    [PING, { 'mcp-protocol-version': '1999-01-01' }, 400, -32000],
    [PING, { accept: 'text/event-stream' }, 406, -32000],
    [PING, { accept: 'text/html, application/json;q=0' }, 406, -32000],
    [PING, { 'content-type': 'text/plain' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    [PING, { 'content-encoding': 'gzip' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    [PING, { 'content-length': String(73 * 1024 * 1024) }, 413, 'IMAGE_TOO_LARGE'],
    [{ ...PING, method: 'sampling/createMessage' }, {}, 200, -32601],
    [callOf('delete_everything', {}), {}, 200, -32602],
    [callOf('constructor', {}), {}, 200, -32602],
    [callOf('remove_background', [IMAGE_URL]), {}, 200, -32602],
    [
      { ...callOf('get_account', {}), params: { name: 'get_account', arguments: 7 } },
      {},
      200,
      -32602,
    ],
  ];
  for (const [body, headers, status, code] of answers) {
    const answer = await post(app, body, headers);
    t.deepEqual([answer.statusCode, codeOf(answer.json())], [status, code], answer.payload);
  }
  const accepted = await post(app, { jsonrpc: '2.0', method: 'notifications/initialized' });
  t.deepEqual([accepted.statusCode, accepted.payload], [202, '']);
  for (const method of ['GET', 'DELETE'] as const) {
    const answer = await app.app.inject({ method, url: '/mcp', headers: app.headers() });
    t.deepEqual([answer.statusCode, answer.headers.allow], [405, 'POST']);
  }
});

test('no arguments cause an internal error, and one key is charged once', async t => {
  succeeding(t);
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom('true', 'png', 'white', '10%', '5', IMAGE_URL, base64(), base64(20_000)),
  );
  const field = fc.constantFrom(...IMAGE_FIELDS, 'job_id', '__proto__', 'x');
  const value = fc.oneof({ weight: 4, arbitrary: text }, fc.jsonValue());
  const given = fc.tuple(fc.dictionary(field, value, { maxKeys: 4 }), fc.boolean());
  const name = fc.constantFrom('remove_background', 'remove_background', 'get_job', 'list_models');
  const idempotency_key = randomUUID();
  const before = await balances();
  const jobs = new Set<string>();
  await t.notThrowsAsync(() =>
    fc.assert(
      fc.asyncProperty(name, given, async (tool, [fields, isWhole]) => {
        const whole = isWhole ? { image_base64: SAME } : {};
        const body = callOf(tool, { ...fields, ...whole, idempotency_key });
        const answer = await post(app, body);
        assert.equal(answer.statusCode, 200, answer.payload);
        const { result, error } = answer.json();
        assert.ok(error === undefined || error.code === -32602, answer.payload);
        const { code, job_id: jobId } = result?.structuredContent ?? {};
        assert.notEqual(code, 'INTERNAL_ERROR');
        if (jobId !== undefined && code === undefined) jobs.add(jobId);
      }),
      { numRuns: 100 },
    ),
  );
  t.is(jobs.size, 1);
  t.is((await balances()).available, before.available - 1);
});

const SAME = base64();

test('a call has its job or its code in the log, and nothing of its picture', async t => {
  const lines: string[] = [];
  const logger = pino({ level: 'trace' }, { write: line => void lines.push(line) });
  const logged = await openTestApp({ logger, syncWaitMs: 0 }, t);
  const given = { image_base64: base64(20_000), background: 'secret-colour' };
  await post(logged, callOf('remove_background', given));
  await post(logged, callOf('remove_background', { image_base64: base64(20_000) }));
  const answered = lines.map(line => JSON.parse(line)).filter(({ msg }) => msg === 'answered');
  t.deepEqual(
    answered.map(({ route, status, code, jobId }) => [route, status, code, typeof jobId]),
    [
      ['/mcp', 200, 'INVALID_PARAMETER', 'undefined'],
      ['/mcp', 200, undefined, 'string'],
    ],
  );
  t.notRegex(lines.join(''), /BwcHBwcH|secret-colour/);
});

test('nothing of corrections is listed where the service keeps nothing', async t => {
  const off = await openTestApp({ corrections: false }, t);
  const { client } = await Agent.at(await off.listen(), off.token);
  const listed = JSON.stringify((await client.listTools()).tools);
  t.regex(listed, /remove_background/);
  t.notRegex(listed, /correct/);
  await t.throwsAsync(client.callTool({ name: 'x', arguments: {} }), {
    message: /There is no tool x\. Call remove_background, create_upload, get_job,/,
  });
});

test('/mcp answers 404 if it is switched off', async t => {
  const off = await openTestApp({ settings: { mcp: undefined } }, t);
  t.is((await post(off, PING)).statusCode, 404);
});
