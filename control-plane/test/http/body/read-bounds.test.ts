/**
 * What is read is counted, whatever it means: a long body of what means nothing is refused at the
 * bound of fields, long before its end.
 */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import test from 'ava';
import { throwsWith } from '../../../../test/support/throws.ts';
import { parseForm } from '../../../src/http/account/session/form-body.ts';
import { FIELDS_MAX } from '../../../src/http/body/malformed.ts';
import { readQueryFields } from '../../../src/http/body/query-fields.ts';
import { mattingBodyReaderOf } from '../../../src/http/body/read-matting-body.ts';
import { readRemovebgBody } from '../../../src/http/removebg/removebg-body.ts';
import type { RequestUploads } from '../../../src/services/submission/submit-upload.ts';
import { BOUNDARY } from '../../support/forms.ts';

const CHUNK_BYTES = 64 * 1024;
/** That of the beginning, the one it is refused in, and what the stream has read ahead. */
const CHUNKS_READ_MAX = 4;
/** As good as endless. */
const CHUNKS_SENT = 16;

const upload = { takeBytes: () => undefined, write: async () => undefined };
const uploads = { image: upload, background: upload } as unknown as RequestUploads;

interface Endless {
  readonly type: string;
  /** What comes once, and what comes again and again. */
  readonly once: string;
  readonly again: string;
}

function requestOf({ type, once, again }: Endless): {
  request: IncomingMessage;
  read: () => number;
} {
  let read = 0;
  const repeated = Buffer.alloc(CHUNK_BYTES - (CHUNK_BYTES % again.length), again);
  const body = new Readable({
    read() {
      const chunk = read === 0 ? Buffer.from(once) : repeated;
      this.push(read < CHUNKS_SENT ? chunk : null);
      read += 1;
    },
  });
  const rawHeaders = ['Content-Type', type];
  const headers = { 'transfer-encoding': 'chunked' };
  const request = Object.assign(body, { rawHeaders, headers, url: '/' });
  return { request: request as unknown as IncomingMessage, read: () => read };
}

const JSON_TYPE = 'application/json';
const PAIRS = 'application/x-www-form-urlencoded';
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;
const part = (name: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n\r\n`;

const MANNERS: readonly [what: string, sent: Endless][] = [
  ['pairs without a name or a value', { type: PAIRS, once: '', again: '&' }],
  ['pairs without a value', { type: PAIRS, once: '', again: 'a&' }],
  ['pairs without a name', { type: PAIRS, once: '', again: '=&' }],
  ['unknown pairs', { type: PAIRS, once: '', again: 'a=b&' }],
  ['empty pairs of a field', { type: PAIRS, once: '', again: 'size=&' }],
  ['unknown fields', { type: JSON_TYPE, once: '{', again: '"a":1,' }],
  ['unknown fields in lines', { type: JSON_TYPE, once: '{', again: '"a" : null ,\n' }],
  ['fields without a name', { type: JSON_TYPE, once: '{', again: '"":"",' }],
  ['empty objects', { type: JSON_TYPE, once: '{', again: '"a":{},' }],
  ['an object of fields', { type: JSON_TYPE, once: '{"a":{', again: '"a":1,' }],
  ['arrays in arrays', { type: JSON_TYPE, once: '{"a":', again: '[' }],
  ['a string in an array', { type: JSON_TYPE, once: '{"a":["', again: 'x' }],
  ['digits', { type: JSON_TYPE, once: '{"a":1', again: '1' }],
  ['empty parts', { type: FORM, once: '', again: part('a') }],
  ['parts of a field', { type: FORM, once: '', again: part('size') }],
  ['the headers of a part', { type: FORM, once: `--${BOUNDARY}\r\n`, again: 'A: b\r\n' }],
  ['line ends', { type: FORM, once: '', again: '\r\n' }],
];

for (const [what, sent] of MANNERS) {
  test(`of endless ${what} no more is read than what is refused`, async t => {
    const { request, read } = requestOf(sent);
    await t.throwsAsync(readRemovebgBody(request, uploads), { code: 'INVALID_REQUEST' });
    t.true(read() <= CHUNKS_READ_MAX, `${read()} chunks were read`);
    if (sent.type === PAIRS) return;
    const other = requestOf(sent);
    const reader = mattingBodyReaderOf(other.request);
    await t.throwsAsync(reader(uploads), { code: 'INVALID_REQUEST' });
    t.true(other.read() <= CHUNKS_READ_MAX, `${other.read()} chunks were read`);
  });
}

for (const [what, pair] of [
  ['empty pairs', ''],
  ['empty values', 'scale='],
] as const) {
  test(`a query of ${what} is refused at the bound`, t => {
    const query = (count: number) => `/?${Array.from({ length: count }, () => pair).join('&')}`;
    t.throws(() => readQueryFields(query(FIELDS_MAX + 1)), { message: /more than 64 fields/ });
    if (pair === '') t.is(readQueryFields(query(FIELDS_MAX)).size, 0);
  });
}

test('a form of the account area has a bound of its fields, empty ones too', t => {
  for (const pair of ['', 'a', 'a=', 'a=b', '=']) {
    const form = (count: number) =>
      Buffer.from(Array.from({ length: count }, () => pair).join('&'));
    throwsWith(t, () => parseForm(form(FIELDS_MAX + 1)), { kind: 'badForm' }, pair);
    parseForm(form(FIELDS_MAX));
  }
});

test('a form of the account area has a bound of marks on one letter', t => {
  const form = (marks: number) => Buffer.from(`a=e${'\u0301\u0316'.repeat(marks / 2)}`);
  throwsWith(t, () => parseForm(form(32)), { kind: 'badForm' });
  t.is(
    parseForm(form(30)).text('a'),
    `\u00e9${'\u0316'.repeat(15)}${'\u0301'.repeat(14)}`.normalize('NFC'),
  );
  t.is(parseForm(Buffer.from('a=Zo%C3%AB e\u0301 ร้าน कि')).text('a'), 'Zoë é ร้าน कि');
});
