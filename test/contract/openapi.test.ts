/** Needs: batches, removebg, portal. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import ava from 'ava';
import { NOT_IN_A_CORRECTION } from '../../control-plane/core/corrections/correctable.ts';
import { NOT_IN_A_QUERY } from '../../control-plane/core/http/read-matting-body.ts';
import { MATTING_FIELDS } from '../../control-plane/core/submission/matting-request.ts';
import { imageBody } from '../../control-plane/core/test/support/test-app.ts';
import { renderOutboxBody } from '../../control-plane/core/webhooks/send-webhooks.ts';
import { FORM_TYPE, formOf } from '../../control-plane/http/test/forms.ts';
import { useTestApp } from '../../control-plane/test/app.ts';
import { ERROR_CATALOGUE, isErrorCode } from '../../proto/contract/errors.ts';
import { FINISHING_FIELDS, fieldKind } from '../../proto/contract/finishing/table.ts';
import {
  contentTypeOf,
  FORMAT_NAMES,
  OUTPUT_FORMATS,
  TRANSPARENT_FORMATS,
} from '../../proto/contract/formats.ts';
import {
  IDEMPOTENCY_KEY_LENGTH_MAX,
  IMAGE_SIDE_PX_MAX,
  URL_LENGTH_MAX,
} from '../../proto/contract/limits.ts';
import { AnswerChecker, escapePointer, resolvePointer } from '../support/openapi.ts';
import { routesOf } from '../support/printed-routes.ts';
import { fc } from '../support/property-tests.ts';
import { sameNames } from '../support/same-names.ts';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');

type Json = { readonly [name: string]: Json };

const options = { syncWaitMs: 0, credits: 100_000, jobsInFlightMax: 100_000 };
const app = useTestApp(test, options, async () => {
  document = (await app.app.inject('/v1/openapi.json')).json();
  checker = new AnswerChecker(document);
});
let checker: AnswerChecker;
let document: Json;

/** With a JSON pointer to it. */
function nodesOf(node: unknown, at = '#'): { at: string; name: string; node: Json }[] {
  if (node === null || typeof node !== 'object') return [];
  return Object.entries(node).flatMap(([name, value]) => {
    const here = `${at}/${escapePointer(name)}`;
    return [{ at: here, name, node: value as Json }, ...nodesOf(value, here)];
  });
}

const schemaFile = path.resolve(import.meta.dirname, 'openapi-schema/oas-3.1.json');
const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
ajv.addFormat('media-range', true);
const isOpenApi = ajv.compile(JSON.parse(readFileSync(schemaFile, 'utf8')));

test('an answer that departs from the document is found out', t => {
  const answer = {
    method: 'GET',
    url: '/livez',
    status: 200,
    headers: {
      'x-request-id': 'req_1',
      'cache-control': 'no-store',
      'content-type': 'application/json; charset=utf-8',
    },
    body: '{"status":"alive"}',
  };
  const trial = new AnswerChecker(document);
  trial.check(answer);
  const { 'x-request-id': _, ...nameless } = answer.headers;
  const departures = [
    { ...answer, method: 'POST' },
    { ...answer, url: '/livezz' },
    { ...answer, status: 201 },
    { ...answer, headers: nameless },
    { ...answer, headers: { ...answer.headers, 'x-request-id': 'two words' } },
    { ...answer, headers: { ...answer.headers, 'x-powered-by': 'a framework' } },
    { ...answer, headers: { ...answer.headers, 'content-type': 'text/plain' } },
    { ...answer, body: '{"status":"asleep"}' },
    { ...answer, body: '{"status":"alive","more":1}' },
    { ...answer, body: '{}' },
  ];
  for (const departure of departures) t.throws(() => trial.check(departure));
  t.true(trial.unseen().includes('GET /livez 400'));
  t.false(trial.unseen().includes('GET /livez 200'));
});

test('the document is OpenAPI 3.1 by the official schema', t => {
  t.truthy(isOpenApi(document), ajv.errorsText(isOpenApi.errors));
});

test('the document’s schemas are of JSON Schema 2020-12', t => {
  const schemas = nodesOf(document).filter(({ name }) => name === 'schema');
  const named = Object.values(document.components?.schemas ?? {});
  for (const schema of [...schemas.map(({ node }) => node), ...named]) {
    t.truthy(ajv.validateSchema(schema), ajv.errorsText(ajv.errors));
  }
  t.true(schemas.length > 50);
});

/** Generators read these as conditions. */
const CONDITIONS = /\/(?:if|then|else|dependentSchemas|examples?)(?:\/|$)/;

test('generators of clients can take each schema', t => {
  for (const { at, name, node } of nodesOf(document)) {
    if (CONDITIONS.test(at)) continue;
    if (name === '$ref') t.notRegex(String(node), /\/properties\//, at);
    if (name === 'description') t.false(String(node).includes('*/'), `${at} ends a comment`);
    // Some generators use only the first, and prefer JSON.
    if (name === 'requestBody') t.is(Object.keys(node.content ?? {})[0], 'application/json', at);
    const { type, const: only, enum: choice, contentMediaType } = node ?? {};
    if (only !== undefined || Array.isArray(choice)) t.truthy(type, `${at} has a type`);
    const types = [type ?? []].flat().map(String);
    const values = types.filter(one => one !== 'null');
    t.true(values.length <= 1, `${at} has one type: ${types}`);
    if (types.length > values.length) t.true(values.length > 0 || /\/anyOf\//.test(at), at);
    t.is(contentMediaType, undefined, `${at} is binary`);
    for (const [field, property] of Object.entries(node?.properties ?? {})) {
      const isRequired = [node.required ?? []].flat().map(String).includes(field);
      t.true(isRequired || property.const === undefined, `${at}: ${field} has one value`);
      t.is(property.default, undefined, `${at}: ${field} would be sent`);
    }
  }
});

test('every reference leads somewhere and no component is there for nothing', t => {
  const references = nodesOf(document).filter(({ name }) => name === '$ref');
  const targets = new Set(references.map(({ node }) => String(node)));
  for (const target of targets) t.truthy(resolvePointer(document, target));
  const named = ['parameters', 'headers', 'schemas'].flatMap(kind =>
    Object.keys(document.components?.[kind] ?? {}).map(name => `#/components/${kind}/${name}`),
  );
  const unused = named.filter(name => !targets.has(name));
  t.deepEqual(unused, []);
});

test('every operation has a name of its own, a tag, a summary and says whether it needs a key', t => {
  const methods = ['get', 'head', 'post', 'delete'];
  const operations = nodesOf({ paths: document.paths, webhooks: document.webhooks })
    .filter(({ name, node }) => methods.includes(name) && node.responses !== undefined)
    .map(({ node }) => node as unknown as Record<string, unknown>);
  const names = operations.map(({ operationId }) => operationId);
  t.is(new Set(names).size, operations.length);
  const tags = Object.values(document.tags ?? {}).map(tag => String(tag.name));
  for (const { operationId, tags: own, summary, security } of operations) {
    assert.ok(Array.isArray(own) && own.every(tag => tags.includes(tag)), String(operationId));
    t.truthy(summary, String(operationId));
    t.true(Array.isArray(security), String(operationId));
  }
});

test('every example fits its schema', t => {
  let count = 0;
  const check = (pointer: string, value: unknown) => {
    count += 1;
    const error = checker.schemaError(pointer, value);
    t.is(error, undefined, `${pointer}: ${error}\n${JSON.stringify(value)}`);
  };
  for (const { at, node } of nodesOf(document)) {
    if (node?.schema === undefined) continue;
    for (const { value } of Object.values(node.examples ?? {})) check(`${at}/schema`, value);
    if (node.example !== undefined) check(`${at}/schema`, node.example);
  }
  t.true(count > 100, `${count} examples`);
});

test('every public code is named by some answer', t => {
  const codes = nodesOf({ paths: document.paths, responses: document.components?.responses })
    .filter(({ name }) => name === 'examples')
    .flatMap(({ node }) => Object.keys(node));
  const missing = Object.entries(ERROR_CATALOGUE)
    .filter(([code, spec]) => spec.scope === 'public' && !codes.includes(code))
    .map(([code]) => code);
  t.deepEqual(missing, []);
});

/** Documented elsewhere, self-describing, or pages with their assets. */
const OTHER_INTERFACES = /^\w+ \/(?:v1\.0\/|mcp(?:\/|$)|account(?:\/|$)|docs\/assets\/)/;

test('the document’s operations are exactly the routes', async t => {
  const found = routesOf(app.app)
    .map(route => route.replaceAll(/:(\w+)/g, '{}'))
    .filter(route => !OTHER_INTERFACES.test(route));
  const described = Object.entries(document.paths ?? {}).flatMap(([route, item]) =>
    // Every GET answers HEAD, as the description says.
    Object.keys({ ...item, ...(item.get === undefined ? {} : { head: true }) }).map(
      method => `${method.toUpperCase()} ${route.replaceAll(/\{\w+\}/g, '{}')}`,
    ),
  );
  sameNames(t, found, described);
});

function at(pointer: string): unknown {
  return resolvePointer(document, pointer);
}

test('a form has a part for every field, and a picture a parameter for every one it may have', t => {
  const { image_file, background_file, hints_file, ...form } = at(
    '#/components/schemas/MattingForm/properties',
  ) as Json;
  t.truthy(image_file && background_file && hints_file);
  const json = at('#/components/schemas/MattingRequest/properties') as Json;
  sameNames(t, Object.keys(form), MATTING_FIELDS);
  sameNames(t, Object.keys(json), MATTING_FIELDS);
  const corrected = at('#/components/schemas/CorrectionRequest/properties') as Json;
  const left = MATTING_FIELDS.filter(field => !NOT_IN_A_CORRECTION.includes(field));
  sameNames(t, Object.keys(corrected), left);
  const batch = at('#/components/schemas/BatchRequest/properties') as Json;
  const notShared = ['image_url', 'image_base64', 'reference', 'keep', 'erase'];
  const shared = MATTING_FIELDS.filter(field => !notShared.includes(field));
  sameNames(t, Object.keys(batch), ['items', 'name', ...shared]);
  for (const path of ['~1v1~1matting', '~1v1~1matting~1jobs']) {
    const references = at(`#/paths/${path}/post/parameters`) as readonly { $ref: string }[];
    const parameters = references.map(({ $ref }) => at($ref) as { in: string; name: string });
    const query = parameters.filter(parameter => parameter.in === 'query').map(({ name }) => name);
    const allowed = MATTING_FIELDS.filter(field => !NOT_IN_A_QUERY.includes(field));
    sameNames(t, query, allowed, path);
  }
});

test('the limits and formats it names are those of the contract', t => {
  const schemas = '#/components/schemas';
  t.is(at('#/components/parameters/IdempotencyKey/schema/maxLength'), IDEMPOTENCY_KEY_LENGTH_MAX);
  for (const field of ['image_url', 'callback_url']) {
    t.is(at(`${schemas}/MattingRequest/properties/${field}/maxLength`), URL_LENGTH_MAX);
  }
  for (const side of ['width', 'height']) {
    t.is(at(`${schemas}/Result/properties/${side}/maximum`), IMAGE_SIDE_PX_MAX);
  }
  const mediaTypes = TRANSPARENT_FORMATS.map(contentTypeOf);
  t.deepEqual(at(`${schemas}/Result/properties/format/enum`), OUTPUT_FORMATS);
  const all = OUTPUT_FORMATS.map(contentTypeOf);
  t.deepEqual(at(`${schemas}/Result/properties/contentType/enum`), all);
  for (const status of [200, 206]) {
    const content = at(`#/paths/~1v1~1results~1{token}/get/responses/${status}/content`) as Json;
    t.deepEqual(Object.keys(content), [...mediaTypes, contentTypeOf('jpeg')]);
  }
  const waited = at('#/paths/~1v1~1matting/post/responses/200/content') as Json;
  const answers = ['application/json', ...mediaTypes, contentTypeOf('jpeg')];
  t.deepEqual(Object.keys(waited), answers);
  const wish = at(`${schemas}/MattingRequest/properties/output_format`) as Json;
  t.deepEqual(wish.examples, TRANSPARENT_FORMATS);
  const wishes = [...TRANSPARENT_FORMATS, 'jpeg', 'jpg'];
  sameNames(t, namesIn(String(wish.description)), wishes);
  const pattern = new RegExp(String(wish.pattern));
  const others = ['gif', 'pngs', 'jpgs', 'zip', ''];
  const taken = [...wishes, ...others].filter(format => pattern.test(format));
  t.deepEqual(taken, wishes);
  t.true(wishes.every(format => pattern.test(format.toUpperCase())));
});

/** Code spans that are single names. */
function namesIn(text: string): string[] {
  return [...text.matchAll(/`(\w+)`/g)].map(([, name]) => String(name));
}

test('docs/finishing.md has a line for every field, docs/requests.md and README.md name every format', t => {
  const read = (name: string) => readFileSync(path.join(ROOT, name), 'utf8');
  const [, finishing = ''] = read('docs/finishing.md').split('\n## Finishing\n');
  const [table = ''] = finishing.split('\n## ');
  const rows = [...table.matchAll(/^\| (`[^|]*) \|/gm)].flatMap(([, cell]) =>
    namesIn(String(cell)),
  );
  sameNames(t, rows, [...FINISHING_FIELDS, 'background_file']);
  for (const kind of ['boolean', 'number'] as const) {
    const fields = FINISHING_FIELDS.filter(field => fieldKind(field) === kind);
    const said = new RegExp(`((?:\`\\w+\`(?:, | and )?)+) can be (?:a )?${kind}`).exec(table);
    sameNames(t, namesIn(String(said?.[1])), fields, kind);
  }
  const row = /^\| `output_format` \|(.*?)\. Default/m.exec(read('docs/requests.md'))?.[1] ?? '';
  sameNames(t, namesIn(row), TRANSPARENT_FORMATS);
  const output = /\*\*Output\*\*: (.*?), or the finished job/.exec(read('README.md'))?.[1] ?? '';
  const names = TRANSPARENT_FORMATS.map(format => FORMAT_NAMES[format]);
  sameNames(t, output.split(/, | or /), names);
});

test('the document’s error codes are the public ones of the catalogue', t => {
  const codes = Object.entries(ERROR_CATALOGUE)
    .filter(([, spec]) => spec.scope === 'public')
    .map(([code]) => code);
  const named = at('#/components/schemas/ErrorCode/enum') as string[];
  if (sameNames(t, named, codes)) t.deepEqual(named, codes, 'in the order of the catalogue');
});

const SECRET = 'a secret of 24 characters';
const CALLBACK = 'https://example.com/hook';

/** A schema cannot judge bytes, addresses and duplicates. */
const bodies: readonly (readonly [sent: unknown, isTaken: boolean])[] = [
  [imageBody(), true],
  [imageBody({ image_url: null, output_format: null, callback_url: null }), true],
  [imageBody({ callback_secret: null }), true],
  [imageBody({ callback_url: CALLBACK, callback_secret: SECRET }), true],
  [imageBody({ output_format: 'WebP' }), true],
  [{ image_url: 'https://example.com/a.jpg', image_base64: null }, true],
  [{}, false],
  [[], false],
  ['text', false],
  [null, false],
  [{ image_url: null, image_base64: null }, false],
  [imageBody({ image_url: 'https://example.com/a.jpg' }), false],
  [imageBody({ image_url: '' }), false],
  [{ image_url: 7 }, false],
  [{ image_base64: ['AAAA'] }, false],
  [{ image_url: `https://example.com/${'a'.repeat(2048)}` }, false],
  [imageBody({ output_format: 'gif' }), false],
  [imageBody({ output_format: '' }), false],
  [imageBody({ output_format: true }), false],
  [imageBody({ callback_url: CALLBACK }), false],
  [imageBody({ callback_secret: SECRET }), false],
  [imageBody({ callback_url: CALLBACK, callback_secret: null }), false],
  [imageBody({ callback_url: CALLBACK, callback_secret: 'short' }), false],
  [imageBody({ callback_url: CALLBACK, callback_secret: 'a'.repeat(129) }), false],
  [imageBody({ callback_url: CALLBACK, callback_secret: `${SECRET} é` }), false],
  [imageBody({ callbackUrl: CALLBACK }), false],
];

test('the schema of a submission takes what the service takes', async t => {
  const pointer = '#/components/schemas/MattingRequest';
  for (const [sent, isTaken] of bodies) {
    const text = JSON.stringify(sent);
    const answer = await app.post('/v1/matting/jobs', text);
    t.is(answer.statusCode, isTaken ? 202 : 400, `${text}\n${answer.payload}`);
    const error = checker.schemaError(pointer, sent);
    t.is(error === undefined, isTaken, `${text}\n${error}`);
  }
});

test('a callback’s body fits the schema of its webhook', async t => {
  const key = { callback_url: CALLBACK, callback_secret: SECRET, model: 'isnet' };
  const submit = async (): Promise<string> =>
    (await app.post('/v1/matting/jobs', imageBody(key))).json().job_id;
  const [succeeded, failed] = [await submit(), await submit()];
  await app.succeedJob(succeeded);
  await app.failJob(failed, { code: 'PROCESSING_FAILED', detail: 'no', retryable: false });
  for (const [jobId, type] of [
    [succeeded, 'matting.job.succeeded'],
    [failed, 'matting.job.failed'],
  ] as const) {
    const job = await app.stores.jobs.find(jobId);
    assert.ok(job);
    const body = JSON.parse(renderOutboxBody(app.services.jobViews, job));
    t.is(body.type, type);
    const content = `${escapePointer('application/json')}`;
    const pointer = `#/webhooks/${type}/post/requestBody/content/${content}/schema`;
    t.is(checker.schemaError(pointer, body), undefined);
    t.not(checker.schemaError(pointer, { ...body, type: 'other' }), undefined);
  }
});

const paths = [
  '/v1/matting',
  '/v1/matting/jobs',
  '/v1/matting/jobs/6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f',
  '/v1/results/abcdef',
  '/v1/account',
  '/v1/account/packages',
  '/v1/account/keys',
  '/v1/account/usage',
  '/v1/account/usage?from=2026-01-01&to=2026-01-31&group=',
  '/',
  '/docs',
  '/docs/errors',
  '/livez',
  '/readyz',
];
const place = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...paths) },
  { weight: 1, arbitrary: fc.webPath().map(rest => `/v1${rest}`) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...paths), fc.webPath()).map(p => p.join('')) },
);
const method = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('GET', 'POST') },
  {
    weight: 1,
    arbitrary: fc.constantFrom('HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND'),
  },
);

const value = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom('png', 'jxl', 'GIF', '', 'iVBORw0KGgo=', 'data:,', 'http://127.0.0.1/'),
  fc.webUrl(),
  fc.base64String(),
  fc.jsonValue({ maxDepth: 2 }),
);
const field = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('image_url', 'image_base64', 'output_format') },
  {
    weight: 1,
    arbitrary: fc.constantFrom('callback_url', 'callback_secret', '__proto__', 'toString'),
  },
  { weight: 1, arbitrary: fc.string() },
);
const body = fc.oneof(
  { weight: 5, arbitrary: fc.array(fc.tuple(field, value), { maxLength: 3 }).map(written) },
  { weight: 1, arbitrary: fc.json() },
  { weight: 1, arbitrary: fc.string({ unit: 'binary' }) },
  { weight: 1, arbitrary: fc.constant(JSON.stringify(imageBody())) },
  { weight: 1, arbitrary: fc.array(fc.tuple(field, value), { maxLength: 3 }).map(writtenForm) },
);

/** By hand, to repeat fields. */
function written(members: readonly (readonly [string, unknown])[]): string {
  const pairs = members.map(([name, one]) => `${JSON.stringify(name)}:${JSON.stringify(one)}`);
  return `{${pairs.join()}}`;
}

function writtenForm(members: readonly (readonly [string, unknown])[]): string {
  const parts = members.map(([name, one]) => ({ name: `${name}`, body: `${one}` }));
  return formOf(parts).toString('latin1');
}

const headerText = fc.stringMatching(/^[\x20-\x7e]{0,40}$/);
const mediaRange = fc.tuple(
  fc.constantFrom('text/html', '*/*', 'image/png', 'image/*', 'image/jpeg', 'application/json'),
  fc.constantFrom('', ';q=0', ';q=0.5', ';q=high', ';level=1'),
);
const accept = fc
  .array(mediaRange, { maxLength: 4 })
  .map(ranges => ranges.map(r => r.join('')).join());
const headers = fc.record(
  {
    authorization: fc.oneof(fc.constant('good'), fc.constant('good'), headerText),
    'idempotency-key': fc.oneof(fc.constant('key'), fc.uuid(), headerText),
    'content-type': fc.oneof(
      { weight: 3, arbitrary: fc.constant('application/json') },
      { weight: 1, arbitrary: fc.constantFrom(FORM_TYPE['content-type'], 'image/png') },
      { weight: 2, arbitrary: headerText },
    ),
    prefer: headerText,
    range: headerText,
    'if-none-match': headerText,
    accept: fc.oneof(accept, headerText),
    'content-encoding': fc.constant('gzip'),
  },
  { requiredKeys: ['authorization', 'idempotency-key', 'content-type'] },
);

const UNDESCRIBED = ['NOT_FOUND', 'METHOD_NOT_ALLOWED', 'INVALID_REQUEST'];

test('random requests get only answers of the document or the catalogue, and no 5xx', async t => {
  const request = fc.record({ method, path: place, headers, body, rare: fc.nat(9) });
  let taken = 0;
  const property = fc.asyncProperty(request, async sent => {
    const { 'content-encoding': coding, ...kept } = sent.headers;
    const good = kept.authorization === 'good';
    const answer = await app.app.inject({
      method: sent.method as 'GET',
      url: sent.path,
      headers: {
        ...kept,
        ...(good ? { authorization: `Bearer ${app.token}` } : {}),
        ...(sent.rare === 0 && coding !== undefined ? { 'content-encoding': coding } : {}),
      },
      ...(sent.method === 'POST' ? { payload: sent.body } : {}),
    });
    assert.ok(answer.statusCode < 500, answer.payload);
    assert.match(String(answer.headers['x-request-id']), /^req_/);
    assert.doesNotMatch(answer.payload, /node_modules|at \w+ \(|\.ts:\d/);
    if (answer.statusCode === 202) taken += 1;
    if (answer.statusCode >= 400 && sent.method !== 'HEAD') {
      const problem = answer.json();
      assert.ok(isErrorCode(problem.code));
      assert.equal(ERROR_CATALOGUE[problem.code as 'NOT_FOUND'].http, answer.statusCode);
      if (UNDESCRIBED.includes(problem.code)) return;
    }
    if (answer.statusCode === 404 || answer.statusCode === 405) return;
    const { statusCode: status, rawPayload } = answer;
    const plain = { method: sent.method, url: sent.path, status, body: rawPayload };
    if (sent.method !== 'HEAD') checker.check({ ...plain, headers: answer.headers });
  });
  // A valid one; otherwise a run might never pass the checks before the body.
  const lawful = {
    method: 'POST',
    path: '/v1/matting/jobs',
    headers: {
      authorization: 'good',
      'idempotency-key': 'lawful',
      'content-type': 'application/json',
    },
    body: JSON.stringify(imageBody()),
    rare: 1,
  };
  await t.notThrowsAsync(fc.assert(property, { numRuns: 200, examples: [[lawful]] }));
  t.true(taken > 0, 'not one request was taken');
  t.is(app.services.uploads.open, 0);
});
