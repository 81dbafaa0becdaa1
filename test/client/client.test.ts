/** Needs: portal. */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { helpOf } from '../../client/src/command/options.ts';
import { CODES_OF_OPTIONS, CODES_OF_PICTURES } from '../../client/src/command/stops-the-run.ts';
import { readImage, saveImage } from '../../client/src/files.ts';
import {
  ERROR_CODES,
  IMAGE_BYTES_MAX,
  MattingClient,
  MattingError,
  type MattingFields,
} from '../../client/src/index.ts';
import { ERROR_CATALOGUE, type ErrorSpec } from '../../proto/contract/errors.ts';
import { TRANSPARENT_FORMATS } from '../../proto/contract/formats.ts';
import { AnswerChecker, resolvePointer } from '../support/openapi.ts';
import { sameNames } from '../support/same-names.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rejectsWith } from '../support/throws.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';
import type { SeenRequest } from './faulty-proxy.ts';

const test = ava.serial;

let harness: ClientHarness;
const CUT_OUT = randomBytes(300_000);

test.before(async () => {
  harness = await openClientHarness();
});
test.afterEach.always(() => harness.proxy.clear());
test.after.always(() => harness.close());

async function withNode<T>(act: () => Promise<T>): Promise<T> {
  const node = harness.serve(CUT_OUT);
  try {
    return await act();
  } finally {
    await node.stop();
  }
}

function isError(code: string, more: Partial<MattingError> = {}) {
  return (error: unknown) => {
    assert.ok(error instanceof MattingError, String(error));
    assert.partialDeepStrictEqual({ ...error }, { code, ...more });
    return true;
  };
}

test('bytes in, bytes out', async t => {
  const { client, app } = harness;
  const before = (await client.account()).credits.available;
  const image = newPicture();
  const cutOut = await withNode(() => client.cutOut({ image, output_format: 'webp' }));
  t.true(CUT_OUT.equals(cutOut.bytes));
  t.is(cutOut.contentType, 'image/webp');
  t.true(cutOut.url.startsWith(`${harness.proxy.url}/v1/results/`));
  t.is((await app.stores.jobs.find(cutOut.jobId))?.state, 'succeeded');
  const { available } = (await client.account()).credits;
  t.is(available, before - 1);
  const { usage, total } = await client.usage({ group: 'format' });
  t.true(usage.some(({ format, images }) => format === 'webp' && images === 1));
  t.true(total.credits >= 1);
  const wrong = client.usage({ from: '2026-13-01' });
  await rejectsWith(t, wrong, isError('INVALID_PARAMETER', { status: 400 }));
});

test('the same picture is the same request, in any container of bytes', async t => {
  const { client } = harness;
  const bytes = newPicture();
  const pieces = async function* () {
    yield bytes.subarray(0, 7);
    yield bytes.subarray(7);
  };
  const forms = [
    bytes,
    bytes.slice().buffer as ArrayBuffer,
    new Blob([bytes.slice()]),
    new Blob([bytes.slice()]).stream(),
    pieces(),
  ];
  const ids = await withNode(async () => {
    const found: string[] = [];
    for (const image of forms) {
      found.push((await client.run({ image }, { idempotencyKey: 'one picture' })).job_id);
    }
    return found;
  });
  t.is(new Set(ids).size, 1);
});

test('a picture by its address is submitted, waited for and downloaded', async t => {
  const { client } = harness;
  const image = new URL('https://example.com/photo.jpg');
  const submitted = await client.submit({ image });
  t.is(submitted.status, 'queued');
  t.deepEqual(JSON.parse(harness.proxy.sent('POST')[0]!.body.toString()), {
    image_url: image.href,
  });
  const waiting = client.wait(submitted);
  await harness.app.succeedJob(submitted.job_id, CUT_OUT);
  const job = await waiting;
  t.deepEqual([job.status, job.job_id], ['succeeded', submitted.job_id]);
  t.deepEqual(await client.job(job.job_id), job);
  t.true(CUT_OUT.equals((await client.download(job)).bytes));
  t.like(await client.download(job.result.url), {
    bytes: new Uint8Array(CUT_OUT),
    contentType: 'image/png',
  });
});

test('a job that the service hands over is followed to its end', async t => {
  const slow = await openClientHarness({ syncWaitMs: 50 });
  try {
    const running = slow.client.cutOut({ image: newPicture() });
    slow.proxy.choose = ({ method, url }) => {
      // The answer that hands it over has gone out: now it may end.
      if (method === 'GET' && url.startsWith('/v1/matting/jobs/')) ends();
      return undefined;
    };
    let ends = () => {
      ends = () => undefined;
      const jobId = slow.proxy.seen.at(-1)!.url.split('/').at(-1)!;
      slow.app.succeedJob(jobId, CUT_OUT).catch(assert.fail);
    };
    t.true(CUT_OUT.equals((await running).bytes));
    t.is(slow.proxy.sent('POST').length, 1);
  } finally {
    await slow.close();
  }
});

test('a model is chosen of those that are offered, and its job says what ran', async t => {
  const choice = await openClientHarness({ modelsOffered: ['standard', 'fast'] });
  const node = choice.serve(CUT_OUT);
  try {
    const { client } = choice;
    const names = (await client.listModels()).map(({ name }) => name);
    t.deepEqual(names, ['standard', 'fast']);
    const { models } = await client.run({ image: newPicture(), model: 'fast' });
    t.deepEqual(models, [{ name: 'fast', role: 'subject' }]);
    const unnamed = await client.run({ image: newPicture() });
    t.deepEqual(unnamed.models, [{ name: 'isnet', role: 'subject' }]);
    const detail =
      'must be one of standard, fast; the operator offers others by MATTING_MODELS_OFFERED';
    const fieldErrors = [{ field: 'model', detail }];
    const wrong = client.run({ image: newPicture(), model: 'best' });
    await rejectsWith(t, wrong, isError('INVALID_PARAMETER', { fieldErrors }));
  } finally {
    await node.stop();
    await choice.close();
  }
});

test('a result is corrected for no credit, by a job of its own, once however often it is sent', async t => {
  const { client, app, proxy } = harness;
  await withNode(async () => {
    const first = await client.run({ image: newPicture(), correctable: true, crop: true });
    const before = await client.account();
    proxy.clear();
    proxy.faults = ['lose'];
    const keep = [{ line: [[1, 1]] as [number, number][], radius: 1 }];
    const made = await client.correct(first, { keep, output_format: 'webp' });
    t.deepEqual([made.corrects, made.credits], [first.job_id, { reserved: 0, charged: 0 }]);
    t.is(proxy.sent('POST').length, 2, 'its answer was lost');
    const background_file = newPicture();
    const next = await client.correct(made.job_id, { erase: keep, background_file });
    t.is(next.corrects, made.job_id);
    t.deepEqual(await client.account(), before);
    t.is((await app.stores.jobs.find(first.job_id))?.corrections, 2);
    const job = await app.stores.jobs.find(next.job_id);
    t.deepEqual([job?.outputFormat, job?.finishing?.background?.kind], ['webp', 'picture']);
    const plain = await client.run({ image: newPicture() });
    const refused = { status: 409, jobId: plain.job_id, retryable: false };
    await rejectsWith(t, client.correct(plain), isError('JOB_NOT_CORRECTABLE', refused));
  });
});

test('a refusal has its code, status, job, request and fields', async t => {
  const { client } = harness;
  const wrong = client.cutOut({ image: newPicture(), output_format: 'bmp' as never });
  await rejectsWith(t, wrong, (error: MattingError) => {
    t.deepEqual([error.code, error.status], ['UNSUPPORTED_OUTPUT_FORMAT', 400]);
    t.false(error.retryable);
    t.regex(error.requestId ?? '', /^req_/);
    return true;
  });
  const callback = client.submit({ image: newPicture(), callback_url: 'https://example.com/' });
  await rejectsWith(t, callback, (error: MattingError) => {
    t.is(error.code, 'INVALID_CALLBACK');
    t.notDeepEqual(error.fieldErrors, []);
    return true;
  });
  const stranger = harness.clientWith({ apiKey: 'mk_nobody' });
  await rejectsWith(t, stranger.account(), isError('INVALID_API_KEY', { status: 401 }));
});

test('a job that failed for good says so wherever it is met', async t => {
  const { client, app } = harness;
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  const node = app.onSubmitted(jobId => app.failJob(jobId, failure));
  const request = { image: newPicture() };
  const options = { idempotencyKey: 'a picture that cannot be read' };
  await rejectsWith(t, client.cutOut(request, options), isError('PROCESSING_FAILED'));
  await node.stop();
  const job = await client.submit(request, options);
  t.is(job.status, 'failed');
  await rejectsWith(
    t,
    client.wait(job),
    isError('PROCESSING_FAILED', { jobId: job.job_id, retryable: false }),
  );
  await rejectsWith(t, client.wait('nothing'), isError('JOB_NOT_FOUND', { status: 404 }));
});

test('a request that cannot be sent is refused before it is sent', async t => {
  const { client } = harness;
  const huge = new Blob([new Uint8Array(IMAGE_BYTES_MAX + 1)]);
  await rejectsWith(t, client.cutOut({ image: huge }), isError('IMAGE_TOO_LARGE'));
  await rejectsWith(t, client.cutOut({ image: huge.stream() }), isError('IMAGE_TOO_LARGE'));
  const named = (idempotencyKey: string) =>
    client.cutOut({ image: newPicture() }, { idempotencyKey });
  await t.throwsAsync(named('\n'), { instanceOf: TypeError });
  await t.throwsAsync(named(''), { instanceOf: TypeError });
  await t.throwsAsync(named('k'.repeat(129)), { instanceOf: TypeError });
  const make = (baseUrl: string, apiKey = 'mk_a') => new MattingClient({ baseUrl, apiKey });
  t.throws(() => make('ftp://example.com'), { instanceOf: TypeError });
  t.throws(() => make('http://user:word@example.com'), { instanceOf: TypeError });
  t.throws(() => make('nowhere'), { instanceOf: TypeError });
  t.throws(() => make('http://example.com', 'two lines\n'), { instanceOf: TypeError });
  t.is(harness.proxy.seen.length, 0);
});

test('a file is read, and written whole or not at all', async t => {
  const directory = await temporaryFolder(t);
  const bytes = newPicture();
  const source = path.join(directory, 'photo.png');
  await writeFile(source, bytes);
  t.deepEqual(Buffer.from(await readImage(source)), Buffer.from(bytes));
  const target = path.join(directory, 'cutout.png');
  t.is(await saveImage(target, [bytes.subarray(0, 5), bytes.subarray(5)]), bytes.length);
  t.deepEqual(await readFile(target), Buffer.from(bytes));
  const broken = async function* () {
    yield bytes;
    throw new Error('broken off');
  };
  const long = path.join(directory, 'n'.repeat(255));
  t.is(await saveImage(long, [bytes]), bytes.length);
  await rm(long);
  const other = path.join(directory, 'other.png');
  await t.throwsAsync(saveImage(other, broken()), { message: /broken off/ });
  t.deepEqual((await readdir(directory)).sort(), ['cutout.png', 'photo.png']);
});

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly string[];
  readonly items?: Schema;
}

interface Operation {
  readonly requestBody?: {
    readonly content: Readonly<Record<string, { readonly schema: { readonly $ref?: string } }>>;
  };
  readonly parameters?: readonly { readonly $ref?: string; readonly name?: string }[];
}

/** Headers of HTTP, of fetch (which adds the last two to a range), or of a security scheme. */
const PLAIN_HEADERS = [
  'accept',
  'accept-encoding',
  'accept-language',
  'authorization',
  'connection',
  'content-length',
  'content-type',
  'host',
  'sec-fetch-mode',
  'user-agent',
  'cache-control',
  'pragma',
];

const FINISHING: MattingFields = {
  output_format: 'jpeg',
  background: '#ffffff',
  channels: 'rgba',
  crop: true,
  crop_margin: '10px 5%',
  scale: '85%',
  position: 'center',
  size_max_megapixels: 4.5,
  output_width: 1600,
  output_height: 1200,
  model: 'fast',
};

let document: { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> };
let checker: AnswerChecker;

test.before(async () => {
  document = (await harness.app.app.inject('/v1/openapi.json')).json();
  checker = new AnswerChecker(document);
});

function schemaOf(name: string): Schema {
  return resolvePointer(document, `#/components/schemas/${name}`) as Schema;
}

interface Fields {
  readonly all: readonly string[];
  readonly required: readonly string[];
}

function readInterfaces(): ReadonlyMap<string, Fields> {
  const read = (name: string) =>
    readFileSync(new URL(`../../client/src/${name}`, import.meta.url), 'utf8');
  const text = read('finishing-fields.ts') + read('types.ts');
  const found = new Map<string, Fields>();
  const blocks = text.matchAll(/^(?:export )?interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}/gms);
  for (const [, name = '', base = '', body = ''] of blocks) {
    const own = [...body.matchAll(/^ {2}readonly (\w+)(\??):/gm)];
    const { all, required } = found.get(base) ?? { all: [], required: [] };
    const needed = own.filter(([, , optional]) => optional === '');
    found.set(name, {
      all: [...all, ...own.map(([, field = '']) => field)],
      required: [...required, ...needed.map(([, field = '']) => field)],
    });
  }
  return found;
}

test('OpenAPI › its types have the fields of the document, no more and no less', t => {
  const interfaces = readInterfaces();
  const USAGE = ['Usage', 'UsageEntry', 'UsageFigures'];
  const MODELS = ['Model', 'ModelLicence', 'UseTerms'];
  const names = ['QueuedJob', 'ProcessingJob', 'SucceededJob', 'ExpiredJob', 'FailedJob'];
  const schemas = new Map([
    ...[
      ...names,
      'Batch',
      'Result',
      'JobError',
      'Callback',
      'Account',
      'Problem',
      ...USAGE,
      ...MODELS,
    ].map((name): [string, Schema] => [name, schemaOf(name)]),
    ['FieldError', schemaOf('Problem').properties?.errors?.items ?? {}],
    ['Credits', schemaOf('SucceededJob').properties?.credits ?? {}],
    ['JobModel', schemaOf('SucceededJob').properties?.models?.items ?? {}],
    ['Subject', schemaOf('Result').properties?.subject ?? {}],
  ]);
  for (const [name, schema] of schemas) {
    const fields = interfaces.get(name);
    assert.ok(fields, name);
    t.deepEqual([...fields.all].sort(), Object.keys(schema.properties ?? {}).sort(), name);
    t.deepEqual([...fields.required].sort(), [...(schema.required ?? [])].sort(), name);
  }
  const sources = ['image_url', 'image_base64', 'image_file'];
  const fields = interfaces.get('MattingFields')?.all ?? [];
  const described = Object.keys(schemaOf('MattingForm').properties ?? {});
  t.deepEqual([...sources, ...fields].sort(), described.sort());
  const checked = [
    ...schemas.keys(),
    'JobBase',
    'BatchFilter',
    'JobFilter',
    'FinishingFields',
    'MattingFields',
    'WaitingItem',
  ];
  t.deepEqual([...interfaces.keys()].sort(), checked.sort(), 'every interface is held');
});

test('OpenAPI › its codes are those of the document', t => {
  sameNames(t, ERROR_CODES, schemaOf('ErrorCode').enum ?? []);
});

test('OpenAPI › the command knows of each code whether it is about one picture, as the catalogue says', t => {
  const about = (...kinds: ErrorSpec['about'][]) =>
    Object.entries<ErrorSpec>(ERROR_CATALOGUE)
      .filter(([, spec]) => spec.scope === 'public' && kinds.includes(spec.about))
      .map(([code]) => code);
  sameNames(t, CODES_OF_PICTURES, about('picture', 'job'));
  sameNames(t, CODES_OF_OPTIONS, about('options'));
});

test('OpenAPI › the command names every format', t => {
  const named = /format of the results: (.*) \(default/.exec(helpOf('matting-remove'))?.[1] ?? '';
  sameNames(t, named.split(', '), [...TRANSPARENT_FORMATS, 'jpeg']);
});

function checkRequest({ method, url, headers, body }: SeenRequest): string {
  const { pathname, searchParams } = new URL(url, 'http://service');
  const path = Object.keys(document.paths).find(described =>
    new RegExp(`^${described.replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(pathname),
  );
  assert.ok(path, `the document has no ${url}`);
  const operation = document.paths[path]?.[method.toLowerCase()];
  assert.ok(operation, `the document has no ${method} ${path}`);
  const parameters = (operation.parameters ?? []).map(parameter =>
    parameter.$ref === undefined ? parameter : resolvePointer(document, parameter.$ref),
  ) as { name: string; in: string }[];
  const named = (place: string) =>
    parameters.filter(parameter => parameter.in === place).map(({ name }) => name.toLowerCase());
  const known = [...PLAIN_HEADERS, ...named('header')];
  const more = Object.keys(headers).filter(header => !known.includes(header));
  assert.deepEqual(more, [], `${method} ${path}`);
  const asked = [...searchParams.keys()].filter(name => !named('query').includes(name));
  assert.deepEqual(asked, [], `${method} ${path}`);
  if (method !== 'POST') return `${method} ${path}`;
  const [type = ''] = headers['content-type']?.split(';') ?? [];
  checkBody(type, operation, body);
  return `${method} ${path} ${type}`;
}

function checkBody(type: string, operation: Operation, body: Buffer): void {
  const content = operation.requestBody?.content[type];
  assert.ok(content, type);
  const pointer = content.schema.$ref ?? '';
  if (type === 'application/json') {
    assert.equal(checker.schemaError(pointer, JSON.parse(body.toString())), undefined);
  }
  if (type !== 'multipart/form-data') return;
  const parts = [...body.toString('latin1').matchAll(/form-data; name="(\w+)"/g)];
  const form = Object.fromEntries(parts.map(([, name]) => [name, 'a text']));
  assert.ok(parts.length > 0);
  assert.equal(checker.schemaError(pointer, form), undefined);
}

test('OpenAPI › its requests are those of the document: paths, headers, bodies', async t => {
  const { client, app, proxy } = harness;
  const node = app.onSubmitted(jobId => app.succeedJob(jobId, Buffer.alloc(100_000, 7)));
  const callback = {
    callback_url: 'https://example.com/hooks',
    callback_secret: 'a raw callback secret, kept',
  };
  await client.submit({ image: 'https://example.com/photo.jpg', ...callback });
  await client.submit({ image: 'https://example.com/photo.jpg', ...FINISHING });
  await client.submit({ image: newPicture(), ...FINISHING });
  const { background: _, ...framed } = FINISHING;
  await client.submit({ image: newPicture(), ...framed, background_file: newPicture() });
  await client.submit({ image: newPicture(), ...callback });
  proxy.faults = ['half'];
  const { jobId } = await client.cutOut({ image: newPicture(), output_format: 'webp' });
  await client.wait(jobId);
  const kept = await client.run({ image: newPicture(), correctable: true });
  await client.correct(kept, { keep: [{ box: [0, 0, 1, 1] }] });
  await client.correct(kept, { background_file: newPicture() });
  await client.account();
  await client.usage();
  await client.listModels();
  await client.usage({ from: '2026-04-01', to: '2026-04-30', group: 'key' });
  await node.stop();
  const made = new Set(proxy.seen.map(checkRequest));
  t.deepEqual([...made].sort(), [
    'GET /v1/account',
    'GET /v1/account/usage',
    'GET /v1/matting/jobs/{job_id}',
    'GET /v1/models',
    'GET /v1/results/{token}',
    'POST /v1/matting application/octet-stream',
    'POST /v1/matting/jobs application/json',
    'POST /v1/matting/jobs application/octet-stream',
    'POST /v1/matting/jobs multipart/form-data',
    'POST /v1/matting/jobs/{job_id}/corrections application/json',
    'POST /v1/matting/jobs/{job_id}/corrections multipart/form-data',
  ]);
  t.true(proxy.seen.some(({ headers }) => headers.range !== undefined));
});
