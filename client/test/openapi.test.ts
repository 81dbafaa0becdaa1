/** What the client names against the OpenAPI document that the service serves. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import ava from 'ava';
import { AnswerChecker, resolvePointer } from '../../test/support/openapi.ts';
import { ERROR_CODES, type MattingFields } from '../src/index.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';
import type { SeenRequest } from './faulty-proxy.ts';

const test = ava.serial;

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly string[];
  readonly items?: Schema;
}

interface Operation {
  readonly requestBody?: { readonly content: Readonly<Record<string, unknown>> };
  readonly parameters?: readonly { readonly $ref?: string; readonly name?: string }[];
}

/** Of HTTP itself and of fetch (which adds the last two to a range), or told by a security scheme. */
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

/** Every field of finishing but the other backgrounds. */
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
};

let harness: ClientHarness;
let document: { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> };
let checker: AnswerChecker;

test.before(async () => {
  harness = await openClientHarness();
  document = (await harness.app.app.inject('/v1/openapi.json')).json();
  checker = new AnswerChecker(document);
});
test.after.always(() => harness.close());

function schemaOf(name: string): Schema {
  return resolvePointer(document, `#/components/schemas/${name}`) as Schema;
}

interface Fields {
  readonly all: readonly string[];
  readonly required: readonly string[];
}

/** The properties of every interface of types.ts, as the formatter writes them. */
function readInterfaces(): ReadonlyMap<string, Fields> {
  const text = readFileSync(new URL('../src/types.ts', import.meta.url), 'utf8');
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

test('its types have the fields of the document, no more and no less', t => {
  const interfaces = readInterfaces();
  const USAGE = ['Usage', 'UsageEntry', 'UsageFigures'];
  const names = ['QueuedJob', 'ProcessingJob', 'SucceededJob', 'ExpiredJob', 'FailedJob'];
  const schemas = new Map([
    ...[...names, 'Result', 'JobError', 'Callback', 'Account', 'Problem', ...USAGE].map(
      (name): [string, Schema] => [name, schemaOf(name)],
    ),
    ['FieldError', schemaOf('Problem').properties?.errors?.items ?? {}],
    ['Credits', schemaOf('SucceededJob').properties?.credits ?? {}],
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
  const checked = [...schemas.keys(), 'JobBase', 'MattingFields'];
  t.deepEqual([...interfaces.keys()].sort(), checked.sort(), 'every interface is held');
});

test('its codes are those of the document', t => {
  t.deepEqual([...ERROR_CODES].sort(), [...(schemaOf('ErrorCode').enum ?? [])].sort());
});

/** Of every answer in the document. */
function headerNamesOf(node: unknown): string[] {
  if (node === null || typeof node !== 'object') return [];
  return Object.entries(node).flatMap(([name, value]) =>
    name === 'headers' ? Object.keys(value as object) : headerNamesOf(value),
  );
}

test('the headers that it reads are in the document', t => {
  const folder = new URL('../src/', import.meta.url);
  const texts = readdirSync(folder).map(name => readFileSync(new URL(name, folder), 'utf8'));
  const read = texts.flatMap(text =>
    [...text.matchAll(/headers\.(?:get|has)\('([\w-]+)'\)/g)].map(([, name = '']) => name),
  );
  t.true(read.includes('x-job-id') && read.includes('retry-after'));
  const described = headerNamesOf(document).map(name => name.toLowerCase());
  // Of any answer of HTTP.
  const plain = ['content-type', 'content-encoding', 'location'];
  t.deepEqual(
    read.filter(name => !described.includes(name) && !plain.includes(name)),
    [],
  );
});

/** Holds a request as it was sent against the operation that it is for. */
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
  assert.ok(Object.keys(operation.requestBody?.content ?? {}).includes(type), type);
  if (type === 'application/json') {
    const pointer = '#/components/schemas/MattingRequest';
    assert.equal(checker.schemaError(pointer, JSON.parse(body.toString())), undefined);
  }
  if (type !== 'multipart/form-data') return;
  const parts = [...body.toString('latin1').matchAll(/form-data; name="(\w+)"/g)];
  const form = Object.fromEntries(parts.map(([, name]) => [name, 'a text']));
  assert.ok(parts.length > 0);
  assert.equal(checker.schemaError('#/components/schemas/MattingForm', form), undefined);
}

test('its requests are those of the document: paths, headers, bodies', async t => {
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
  await client.account();
  await client.usage();
  await client.usage({ from: '2026-04-01', to: '2026-04-30', group: 'key' });
  await node.stop();
  const made = new Set(proxy.seen.map(checkRequest));
  t.deepEqual([...made].sort(), [
    'GET /v1/account',
    'GET /v1/account/usage',
    'GET /v1/matting/jobs/{job_id}',
    'GET /v1/results/{token}',
    'POST /v1/matting application/octet-stream',
    'POST /v1/matting/jobs application/json',
    'POST /v1/matting/jobs application/octet-stream',
    'POST /v1/matting/jobs multipart/form-data',
  ]);
  t.true(proxy.seen.some(({ headers }) => headers.range !== undefined));
});
