/**
 * Each rule once, with the doors for which it holds. The readers' tests cover where a body is
 * split. Needs: batches, photoroom, portal, rembg, removebg.
 */
import type { IncomingMessage } from 'node:http';
import ava from 'ava';
import { readBatchBody } from '../../control-plane/batches/read-batch-body.ts';
import { readFormBody } from '../../control-plane/compat/picture-form.ts';
import {
  correctionBodyReaderOf,
  mattingBodyReaderOf,
} from '../../control-plane/core/http/read-matting-body.ts';
import {
  CHUNKS_READ_MAX,
  ENDLESS,
  endless,
  uploads,
} from '../../control-plane/core/test/endless-bodies.ts';
import { snapshot } from '../../control-plane/core/test/refusals.ts';
import { imageBody, pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import type { Answered } from '../../control-plane/http/answer-log.ts';
import { FIELDS_MAX } from '../../control-plane/http/body-fields.ts';
import { FORM_TYPE, formOf, imagePart } from '../../control-plane/http/test/forms.ts';
import { PHOTOROOM_FIELDS } from '../../control-plane/photoroom/photoroom-request.ts';
import { REMBG_FIELDS } from '../../control-plane/rembg/rembg-request.ts';
import { readRemovebgBody } from '../../control-plane/removebg/removebg-body.ts';
import { useTestApp } from '../../control-plane/test/app.ts';
import { UNCOUNTED } from '../../program/held-bytes.ts';
import type { ErrorCode } from '../../proto/contract/errors.ts';
import { IMAGE_BYTES_MAX, REQUEST_BODY_BYTES_MAX } from '../../proto/contract/limits.ts';
import { until } from '../support/waiting.ts';

const test = ava.serial;

const answered: Answered[] = [];
const settings = { photoroom: {}, rembg: { standInKeyId: undefined }, removebg: { waitMs: 0 } };
const onAnswered = (one: Answered) => void answered.push(one);
const app = useTestApp(test, { syncWaitMs: 200, settings, onAnswered }, async () => {
  const made = await app.post('/v1/matting/jobs', imageBody({ correctable: true }));
  first = made.json().job_id;
  await app.succeedJob(first);
});
let first: string;

const TYPES = {
  JSON: 'application/json',
  form: FORM_TYPE['content-type'],
  pairs: 'application/x-www-form-urlencoded',
  /** Its fields are in the query. */
  picture: 'image/png',
} as const;
type Encoding = keyof typeof TYPES;

/** A Buffer is a file in a form, and Base64 elsewhere. */
type Field = readonly [name: string, value: string | Buffer];

interface Door {
  readonly path: string;
  readonly encoding: Encoding;
  readonly image: Field;
  readonly text: readonly [name: string, value: string];
  readonly skips: boolean;
  readonly accept: string;
  readonly bytesMax: number;
}

const PNG = pngHeader(4, 3);
const ITEMS = '[{"image_url":"https://a.example/1"}]';
const JOBS = '/v1/matting/jobs';
const CORRECTIONS = `${JOBS}/:first/corrections`;
const IN_ANY_FORM = 'application/json, multipart/form-data, image/*, application/octet-stream';
const IN_THREE = 'multipart/form-data, application/x-www-form-urlencoded, application/json';
const FORM = 'multipart/form-data';

function door(path: string, encoding: Encoding, image: Field, more: Partial<Door> = {}): Door {
  const common = { path, encoding, image, skips: false, accept: IN_ANY_FORM };
  return { ...common, text: ['output_format', 'webp'], bytesMax: REQUEST_BODY_BYTES_MAX, ...more };
}
const OF_OTHERS = { text: ['size', 'hd'], skips: true, accept: IN_THREE } as const;
const OF_REMBG = { text: ['om', 'true'], skips: true, accept: FORM } as const;
const OF_BATCHES = { accept: 'application/json', bytesMax: 4 * 1_048_576 };
const [REMOVEBG, PHOTOROOM] = ['/v1.0/removebg', '/compat/photoroom/v1/segment'];

const DOORS: Readonly<Record<string, Door>> = {
  JSON: door(JOBS, 'JSON', ['image_base64', PNG]),
  'a form': door('/v1/matting', 'form', ['image_file', PNG]),
  'a picture': door(JOBS, 'picture', ['', PNG], { bytesMax: IMAGE_BYTES_MAX }),
  'a correction in JSON': door(CORRECTIONS, 'JSON', ['background', 'red']),
  'a correction in a form': door(CORRECTIONS, 'form', ['background_file', PNG]),
  'a batch': door('/v1/matting/batches', 'JSON', ['items', ITEMS], OF_BATCHES),
  'remove.bg, JSON': door(REMOVEBG, 'JSON', ['image_file_b64', PNG], OF_OTHERS),
  'remove.bg, a form': door(REMOVEBG, 'form', ['image_file', PNG], OF_OTHERS),
  'remove.bg, pairs': door(REMOVEBG, 'pairs', ['image_file_b64', PNG], OF_OTHERS),
  'Photoroom, JSON': door(PHOTOROOM, 'JSON', ['image_file_b64', PNG], OF_OTHERS),
  'Photoroom, a form': door(PHOTOROOM, 'form', ['image_file', PNG], OF_OTHERS),
  'rembg, a form': door('/compat/rembg/api/remove', 'form', ['file', PNG], OF_REMBG),
};

interface Sent {
  readonly query?: string;
  readonly body: Buffer | string;
  readonly headers?: Readonly<Record<string, string | string[] | undefined>>;
}

function written({ encoding }: Door, ...fields: Field[]): { body: Buffer; query: string } {
  const text = (value: Field[1]) => (typeof value === 'string' ? value : value.toString('base64'));
  const json = (value: Field[1]) => (value === ITEMS ? value : JSON.stringify(text(value)));
  const pairs = fields
    .filter(([name]) => name !== '')
    .map(([name, value]) => `${name}=${encodeURIComponent(text(value))}`)
    .join('&');
  const parts = fields.map(([name, body]) =>
    typeof body === 'string' ? { name, body } : imagePart(body, name),
  );
  const bodies: Record<Encoding, () => Buffer> = {
    JSON: () => Buffer.from(`{${fields.map(([name, value]) => `"${name}":${json(value)}`)}}`),
    form: () => formOf(parts),
    pairs: () => Buffer.from(pairs),
    picture: () => PNG,
  };
  return { body: bodies[encoding](), query: encoding === 'picture' ? `?${pairs}` : '' };
}

const whole = (to: Door) => written(to, to.image, to.text);
const under = (to: Door, headers: Sent['headers'] = {}): Sent => ({ ...whole(to), headers });
const beside = (to: Door, ...fields: Field[]) => written(to, to.image, ...fields);
function replaced(to: Door, from: string, by: string, sent = whole(to)): Sent {
  const body = Buffer.from(sent.body.toString('latin1').replace(from, by), 'latin1');
  return { body: to.encoding === 'picture' ? PNG : body, query: sent.query.replace(from, by) };
}
function escapedTwin(to: Door): Sent {
  const [name, value] = to.text;
  const hex = name.charCodeAt(0).toString(16);
  const escaped = `${to.encoding === 'JSON' ? '\\u00' : '%'}${hex}${name.slice(1)}`;
  return replaced(to, 'twin', escaped, beside(to, to.text, ['twin', value]));
}

interface Rule {
  readonly on: (door: Door, name: string) => boolean;
  readonly code: ErrorCode;
  readonly says: string | ((door: Door) => string);
  readonly sent: (door: Door) => Sent | readonly Sent[];
  readonly lacks?: string;
  readonly header?: readonly [name: string, valueOf: (door: Door) => string];
}

const are = (...encodings: Encoding[]) =>
  ((to: Door) => encodings.includes(to.encoding)) as Rule['on'];
const named = (...names: string[]) => ((_door, name) => names.includes(name)) as Rule['on'];
const FORMS = named('a form', 'a correction in a form');
const all = () => true;
const bad = (on: Rule['on'], says: Rule['says'], sent: Rule['sent'], more: Partial<Rule> = {}) =>
  ({ on, code: 'INVALID_REQUEST', says, sent, ...more }) as const;

const NEVER_IN_A_QUERY = [
  ...['image_url', 'image_base64', 'background_url', 'callback_url', 'callback_secret'],
  ...['keep', 'erase', 'image_file', 'background_file', 'hints_file'],
];
const OF_NOBODY = ['imageFile', '__proto__', 'constructor', 'image_file[]', 'Image_File'];
const PICTURES = ['image', 'file', 'photo'];
const SOURCES = 'Send the image as image_file (in a form), image_url or image_base64.';
const textTwice: Rule['says'] = ({ text: [name] }) => `${name} is given twice`;
const typesBut = (accept: string) =>
  Object.values(TYPES).filter(type => !accept.includes(type.split(/;|png/)[0]!));

const RULES: Readonly<Record<string, Rule>> = {
  'an empty body': bad(are('JSON', 'form'), 'The body is empty', () => ({ body: '' })),
  'a body that is cut': bad(are('JSON', 'form'), 'The body ends ', to => ({
    body: whole(to).body.subarray(0, -6),
  })),
  'a body that goes on': bad(are('JSON', 'form'), 'The body goes on after', to => ({
    body: `${whole(to).body}more`,
  })),
  'a list': bad(are('JSON'), 'JSON object', () => ({ body: '[]' })),
  'single quotes': bad(are('JSON'), 'double quotes', () => ({ body: "{'crop':'true'}" })),
  'another boundary': bad(are('form'), 'does not begin with the boundary', to =>
    under(to, { 'content-type': `${FORM}; boundary=b` }),
  ),
  'no boundary': bad(are('form'), 'one boundary', to =>
    ['', '; boundary='].map(end => under(to, { 'content-type': `${FORM}${end}` })),
  ),
  'a text twice': bad(all, textTwice, to => beside(to, to.text, to.text)),
  'a text twice, once in escapes': bad(are('JSON', 'picture', 'pairs'), textTwice, escapedTwin),
  'a file twice': bad(
    are('form'),
    ({ image: [name] }) => `${name} is given twice`,
    to => beside(to, to.image),
  ),
  'more than 64 fields': bad(
    ({ skips, encoding }) => skips || encoding === 'picture',
    'more than 64 fields',
    to => written(to, ...Array<Field>(FIELDS_MAX).fill(['tag', '']), to.text),
  ),
  'a text that is not UTF-8': bad(all, 'UTF-8', to =>
    replaced(to, to.text[1], are('JSON', 'form')(to, '') ? '\xff' : '%ff'),
  ),
  'a wrong escape': bad(are('pairs', 'picture'), '%25', to =>
    ['85%', '%', '%e0%a4%a'].map(wrong => replaced(to, to.text[1], wrong)),
  ),
  'a plus in Base64': bad(are('pairs'), '%2B', to => ({ body: `${to.image[0]}=ab+c` })),
  'an object for a text': bad(
    are('JSON'),
    ({ text: [name] }) => `${name} must be `,
    to => replaced(to, `"${to.text[1]}"`, '{}'),
  ),
  'a field of nobody': bad(
    to => !to.skips,
    '"is unknown. ',
    to => OF_NOBODY.flatMap(name => [beside(to, [name, 'x']), beside(to, [name, PNG])]),
  ),
  'a picture under another name': bad(named('JSON', 'a form'), SOURCES, to =>
    PICTURES.map(name => written(to, [name, PNG], to.image)),
  ),
  'a picture under another name behind the image': bad(
    to => !to.skips,
    '',
    to => PICTURES.map(name => beside(to, [name, PNG])),
    { lacks: SOURCES },
  ),
  'a file where a text belongs': bad(FORMS, 'must be text', to =>
    ['callback_secret', 'output_format', 'crop'].map(name => beside(to, [name, PNG])),
  ),
  'a text where a file belongs': bad(FORMS, '_file=@photo.jpg', to =>
    [to.image[0], 'background_file', 'hints_file'].map(name => written(to, [name, 'a.jpg'])),
  ),
  'a field in the query of a form': {
    ...bad(FORMS, 'must be a part of the form', to =>
      ['output_format', 'image_file'].map(name => ({ ...whole(to), query: `?${name}=x` })),
    ),
    code: 'INVALID_PARAMETER',
  },
  'a field of nobody in a query': bad(
    (to, name) => FORMS(to, name) || to.encoding === 'picture',
    'Did you mean output_format?',
    to => ({ ...whole(to), query: '?outputFormat=png' }),
  ),
  'what a query must not have': {
    ...bad(are('picture'), 'Send multipart/form-data or JSON', to =>
      NEVER_IN_A_QUERY.map(name => written(to, [name, 'x'])),
    ),
    code: 'INVALID_PARAMETER',
  },
  'a Content-Encoding': {
    ...bad(all, 'Content-Encoding', to =>
      ['gzip', 'identity', ''].map(one => under(to, { 'content-encoding': one })),
    ),
    code: 'UNSUPPORTED_MEDIA_TYPE',
    header: ['accept-encoding', () => 'identity'],
  },
  'another type': {
    ...bad(all, 'Send ', to =>
      [
        ...['text/plain', 'text/json', 'multipart/mixed; boundary=x', 'video/mp4', undefined],
        ...[[TYPES[to.encoding], 'text/plain'], 'application/json; charset=utf-16le'],
        ...typesBut(to.accept),
      ].map(type => under(to, { 'content-type': type })),
    ),
    code: 'UNSUPPORTED_MEDIA_TYPE',
    header: ['accept', ({ accept }) => accept],
  },
  'a Content-Length over the bound': {
    ...bad(
      all,
      ({ bytesMax }) => `${bytesMax / 1_048_576} MiB`,
      to => under(to, { 'content-length': `${to.bytesMax + 1}` }),
    ),
    code: 'IMAGE_TOO_LARGE',
  },
};

async function answerTo(door: Door, { query = '', body, headers }: Sent) {
  const url = door.path.replace(':first', first);
  const key = /^\/(?:v1\.0|compat)/.test(url) ? { 'x-api-key': app.token } : {};
  const sent = { 'content-type': TYPES[door.encoding], ...key, ...headers };
  const before = answered.length;
  const answer = await app.post(`${url}${query}`, body, sent);
  await until('the answer is logged', () => answered.length > before);
  return { ...answer, answer, code: answered.at(-1)?.code };
}

for (const [what, { on, sent, code, says, lacks, header }] of Object.entries(RULES)) {
  for (const [name, door] of Object.entries(DOORS).filter(([name, to]) => on(to, name))) {
    test(`${what} is refused › ${name}`, async t => {
      const before = await snapshot(app);
      for (const one of [sent(door)].flat()) {
        const { answer, code: seen } = await answerTo(door, one);
        const of = `${one.query ?? ''} ${String(one.body).slice(0, 300)}\n${answer.payload}`;
        t.is(seen, code, of);
        t.true(answer.payload.includes(typeof says === 'string' ? says : says(door)), of);
        if (lacks) t.false(answer.payload.includes(lacks), of);
        if (header) t.is(answer.headers[header[0]], header[1](door), of);
      }
      t.deepEqual(await snapshot(app), before);
    });
  }
}

for (const [name, door] of Object.entries(DOORS)) {
  test(`a body of the kind is taken, and a Content-Length at the bound › ${name}`, async t => {
    // Without a node nobody ends the job that the interface waits for.
    const { answer, code } = await answerTo(door, whole(door));
    const isWaitedFor = answer.headers['x-job-id'] !== undefined;
    t.is(code, isWaitedFor ? 'SERVICE_UNAVAILABLE' : undefined, answer.payload);
    const bytes = `${door.bytesMax}`;
    const long = await answerTo(door, under(door, { 'content-length': bytes }));
    t.not(long.code, 'IMAGE_TOO_LARGE');
  });
}

const READERS: Readonly<
  Record<string, readonly [types: RegExp, read: (request: IncomingMessage) => Promise<unknown>]>
> = {
  'of /v1/matting': [/json|multipart/, request => mattingBodyReaderOf(request)(uploads)],
  'of corrections': [/json|multipart/, request => correctionBodyReaderOf(request)(uploads)],
  'of batches': [/json/, request => readBatchBody(request, UNCOUNTED)],
  'of remove.bg': [/./, request => readRemovebgBody(request, uploads)],
  'of Photoroom': [/./, request => readFormBody(request, uploads, PHOTOROOM_FIELDS)],
  'of rembg': [/multipart/, request => readFormBody(request, uploads, REMBG_FIELDS)],
};

for (const [reader, [types, read]] of Object.entries(READERS)) {
  for (const [what, sent] of ENDLESS.filter(([, { type }]) => types.test(type))) {
    test(`endless ${what} are read up to the bound alone › ${reader}`, async t => {
      const { request, read: chunksRead } = endless(sent);
      await t.throwsAsync(read(request), { code: 'INVALID_REQUEST' });
      t.true(chunksRead() <= CHUNKS_READ_MAX, `${chunksRead()} chunks were read`);
    });
  }
}
