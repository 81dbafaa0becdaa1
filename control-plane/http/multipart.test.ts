import assert from 'node:assert/strict';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { FIELDS_MAX } from './body-fields.ts';
import { boundaryOf, MultipartReader } from './multipart.ts';
import { parseContentType } from './request-headers.ts';
import { BOUNDARY, cutAt, formOf, partOf, refusalOf, splits } from './test/forms.ts';

const PART_HEAD_BYTES_MAX = 8192;

interface Read {
  readonly name: string;
  readonly isFile: boolean;
  readonly body: string;
}

function read(chunks: readonly Buffer[], boundary = BOUNDARY): Read[] {
  const reader = new MultipartReader(boundary, UNCOUNTED);
  const parts: Read[] = [];
  let open: { name: string; isFile: boolean; bytes: Buffer[] } | undefined;
  for (const chunk of chunks) {
    for (const event of reader.push(chunk)) {
      if (event.kind === 'head') {
        assert.equal(open, undefined);
        open = { ...event.head, bytes: [] };
        continue;
      }
      assert.ok(open, `${event.kind} outside of a part`);
      if (event.kind === 'data') {
        assert.ok(event.bytes.length > 0);
        open.bytes.push(Buffer.from(event.bytes));
      } else {
        const { name, isFile, bytes } = open;
        parts.push({ name, isFile, body: Buffer.concat(bytes).toString('latin1') });
        open = undefined;
      }
    }
  }
  reader.finish();
  assert.equal(open, undefined);
  return parts;
}

const refusal = (chunks: Buffer[]) => refusalOf(read, chunks);

function bytewise(body: Buffer): Buffer[] {
  return Array.from(body, byte => Buffer.of(byte));
}

const D = `--${BOUNDARY}`;
const NAMED = 'Content-Disposition: form-data; name="crop"';

function withHead(...lines: string[]): string {
  return `${D}\r\n${lines.join('\r\n')}\r\n\r\ntrue\r\n${D}--\r\n`;
}

const REFUSED: readonly [what: string, body: string, detail: RegExp][] = [
  ['nothing', '', /empty/],
  ['something else than a form', '{"image_url":"x"}', /does not begin with the boundary/],
  ['a text before the first boundary', `preamble\r\n${withHead(NAMED)}`, /does not begin/],
  ['another boundary', withHead(NAMED).replaceAll(BOUNDARY, 'another'), /does not begin/],
  ['a longer boundary', withHead(NAMED).replace(D, `${D}x`), /follows a boundary/],
  ['lines that end in LF', withHead(NAMED).replaceAll('\r', ''), /end in CR LF/],
  ['endless blanks behind', `${D}${' '.repeat(99)}\r\n`, /follows a boundary/],
  [
    'a boundary of another part inside',
    withHead(NAMED).replace('true', `true\r\n${D}x`),
    /follows/,
  ],
  ['no last boundary', withHead(NAMED).slice(0, -4 - D.length), /before its last boundary/],
  ['a boundary that never ends', D, /before its last boundary/],
  ['a part that never ends', `${D}\r\n${NAMED}\r\n\r\n${'A'.repeat(999)}`, /before its last/],
  ['text behind the last boundary', `${withHead(NAMED)}more`, /goes on/],
  ['no headers', `${D}\r\n\r\ntrue\r\n${D}--\r\n`, /Content-Disposition: form-data/],
  ['no disposition', withHead('Content-Type: text/plain'), /Content-Disposition: form-data/],
  [
    'another disposition',
    withHead(NAMED.replace('form-data', 'attachment')),
    /Content-Disposition/,
  ],
  ['no name', withHead('Content-Disposition: form-data'), /Content-Disposition/],
  [
    'a name in a charset',
    withHead("Content-Disposition: form-data; name*=utf-8''crop"),
    /Content-Disposition/,
  ],
  ['two names', withHead(`${NAMED}; name="scale"`), /Content-Disposition/],
  ['an open quote', withHead(NAMED.slice(0, -1)), /Content-Disposition/],
  ['text behind a parameter', withHead(`${NAMED} crop`), /Content-Disposition/],
  ['two dispositions', withHead(NAMED, NAMED), /content-disposition twice/],
  ['two types', withHead(NAMED, 'Content-Type: a/b', 'CONTENT-TYPE: a/b'), /twice/],
  ['a header without a colon', withHead(NAMED, 'Content-Type'), /not valid/],
  ['a null byte in a header', withHead(NAMED, 'X: \0'), /not valid/],
  ['a carriage return in a header', withHead(NAMED, 'X: a\rb'), /not valid/],
  ['Base64', withHead(NAMED, 'Content-Transfer-Encoding: base64'), /Content-Transfer-Encoding/],
  ['a form in a form', withHead(NAMED, 'Content-Type: multipart/mixed; boundary=b'), /itself/],
  ['another charset', withHead(NAMED, 'Content-Type: text/plain; charset=utf-16'), /UTF-8/],
];

for (const [what, body, detail] of REFUSED) {
  test(`multipart › refuses ${what}, wherever the body is split`, t => {
    const bytes = Buffer.from(body, 'latin1');
    const details = [...splits(bytes), bytewise(bytes)].map(chunks => refusal(chunks).message);
    for (const one of new Set(details)) t.regex(one, detail);
  });
}

test('multipart › refuses headers and parts that are too many', t => {
  const long = withHead(NAMED, `X: ${'a'.repeat(PART_HEAD_BYTES_MAX)}`);
  t.regex(refusal([Buffer.from(long)]).message, /over 8192 bytes/);
  const open = `${D}\r\n${NAMED}; filename="${'a'.repeat(PART_HEAD_BYTES_MAX)}`;
  t.regex(refusal([Buffer.from(open)]).message, /over 8192 bytes/);
  const part = partOf({ name: 'crop', body: '' });
  const parts = Buffer.concat(Array.from({ length: FIELDS_MAX + 1 }, () => part));
  t.regex(refusal([parts]).message, /more than 64 fields/);
});

test('multipart › a body that is cut anywhere is refused', t => {
  const image = { name: 'image_file', body: '\r\n--\r\n\0', fileName: 'a.png', type: 'image/png' };
  const form = formOf([{ name: 'crop', body: 'true' }, image]);
  const whole = read([form]);
  // Bytes after the last boundary may be missing.
  for (let end = 0; end <= form.length; end += 1) {
    const cut = form.subarray(0, end);
    if (end >= form.length - 2) t.deepEqual(read(bytewise(cut)), whole);
    else refusal(bytewise(cut));
  }
});

/** Bytes are latin1 text in this file. */
const UTF8_NAME = Buffer.from('ä 中.jpg').toString('latin1');

const LAWFUL: readonly [client: string, head: readonly string[], isFile: boolean][] = [
  ['a form field', [NAMED], false],
  ['no quotes', ['content-disposition: form-data;name=crop'], false],
  ['a file name', [`${NAMED}; filename="photo.jpg"`], true],
  ['an empty file name', [`${NAMED}; filename=""`], true],
  ['quotes in a file name', [`${NAMED}; filename="a \\"b\\"; name=c.jpg"`], true],
  ['a file name twice coded', [`${NAMED}; filename=a.jpg; filename*=utf-8''%C3%A4.jpg`], true],
  ['a file name in UTF-8', [`${NAMED}; filename="${UTF8_NAME}"`, 'Content-Type: image/jpeg'], true],
  ['a picture without a name', [NAMED, 'Content-Type: image/jpeg'], true],
  ['bytes as S3 names them', [NAMED, 'Content-Type: binary/octet-stream'], true],
  ['the default charset of Java', [NAMED, 'Content-Type: text/plain; charset=ISO-8859-1'], false],
  ['a file name that ends in a backslash', [`${NAMED}; filename="photo\\"`], true],
  ['a file name that is a backslash', [`${NAMED}; filename="\\"`], true],
  ['a file name before a coded one', [`${NAMED}; filename="a\\"; filename*=utf-8''a%5C`], true],
  ['a file name in Shift_JIS', [`${NAMED}; filename="\x94\\"; x=y`], true],
];

for (const [what, head, isFile] of LAWFUL) {
  test(`multipart › reads a part with ${what}, wherever the body is split`, t => {
    const body = Buffer.from(withHead(...head), 'latin1');
    const seen = [...splits(body), bytewise(body)].map(chunks => JSON.stringify(read(chunks)));
    const expected = JSON.stringify([{ name: 'crop', isFile, body: 'true' }]);
    t.deepEqual([...new Set(seen)], [expected]);
  });
}

test('multipart › reads empty lines first, blanks behind a boundary, nothing behind the last', t => {
  const expected = [{ name: 'crop', isFile: false, body: 'true' }];
  for (const body of [
    `\r\n\r\n${withHead(NAMED)}`,
    withHead(NAMED).replace(D, `${D} \t`),
    withHead(NAMED).slice(0, -2),
    `${withHead(NAMED)}\r\n \t`,
  ]) {
    t.deepEqual(read(bytewise(Buffer.from(body))), expected);
  }
  t.deepEqual(read([Buffer.from(`${D}--\r\n`)]), []);
});

function parsed(type: string) {
  const read = parseContentType(type);
  assert.ok(read);
  return read;
}

test('multipart › the boundary of a Content-Type', t => {
  const form = 'multipart/form-data';
  for (const [type, boundary] of [
    [`${form}; boundary=abc`, 'abc'],
    [`${form};BOUNDARY="a=b:c/d?e"`, 'a=b:c/d?e'],
    [`${form}; charset=ISO-8859-1; boundary=----=_Part_1.2`, '----=_Part_1.2'],
    [`${form}; boundary=${'a'.repeat(70)};`, 'a'.repeat(70)],
  ] as const) {
    t.is(boundaryOf(parsed(type)), boundary);
  }
  for (const type of [
    form,
    `${form}; boundary=`,
    `${form}; boundary=""`,
    `${form}; boundary=a; boundary=b`,
    `${form}; boundary=a b`,
    `${form}; boundary="a`,
    `${form}; boundary="a\\rb "`,
    `${form}; boundary=${'a'.repeat(71)}`,
  ]) {
    t.throws(() => boundaryOf(parsed(type)), { code: 'INVALID_REQUEST' }, type);
  }
});

/** Full of boundary fragments. */
const hostileBytes = fc
  .array(
    fc.oneof(
      fc.constantFrom('\r', '\n', '\r\n', '-', '--', '\r\n--', D, `\r\n-${D}`, BOUNDARY),
      fc.string({ unit: 'binary-ascii', maxLength: 9 }),
      fc.uint8Array({ maxLength: 9 }).map(bytes => Buffer.from(bytes).toString('latin1')),
    ),
    { maxLength: 8 },
  )
  .map(pieces => pieces.join(''))
  // No client chooses a boundary that its data contains.
  .filter(text => !`\r\n${text}`.includes(`\r\n${D}`));
const token = fc.stringMatching(/^[a-z_]{1,12}$/);
const sentPart = fc.record(
  { name: token, body: hostileBytes, isFile: fc.boolean() },
  { noNullPrototype: true },
);

function written(parts: readonly Read[]): Buffer {
  return formOf(
    parts.map(({ name, body, isFile }) => ({
      name,
      body: Buffer.from(body, 'latin1'),
      ...(isFile ? { fileName: 'x.bin', type: 'application/octet-stream' } : {}),
    })),
  );
}

const cuts = fc.array(fc.nat(), { maxLength: 8 });

test('multipart › reads every lawful form, however it is cut', t => {
  const parts = fc.array(sentPart, { maxLength: 6 });
  t.notThrows(() =>
    fc.assert(
      fc.property(parts, cuts, (sent, at) => {
        assert.deepEqual(read(cutAt(written(sent), at)), sent);
      }),
      { numRuns: 200 },
    ),
  );
});

/** As Node does; a picture's type without a file name also counts as text. */
const utf8 = (bytes: Buffer | ArrayBuffer) => new TextDecoder().decode(bytes);

async function byNode(body: Buffer): Promise<[name: string, body: string][] | undefined> {
  const headers = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` };
  try {
    const form = await new Response(new Uint8Array(body), { headers }).formData();
    const entries = Array.from(form, async ([name, value]): Promise<[string, string]> => {
      return [name, typeof value === 'string' ? value : utf8(await value.arrayBuffer())];
    });
    return await Promise.all(entries);
  } catch {
    return undefined;
  }
}

test('multipart › what it takes of a form with faults the reader of Node takes alike; cuts never matter', async t => {
  const fault = fc.record({
    at: fc.nat(),
    drop: fc.nat(3),
    put: fc.constantFrom('', '\r\n', '-', '--', ' ', '"', ';', ':', '\0', D, `\r\n${D}\r\n`, NAMED),
  });
  let taken = 0;
  const judge = (chunks: Buffer[]): Read[] | string => {
    try {
      return read(chunks);
    } catch (error) {
      assert.ok(error instanceof ContractError, String(error));
      return error.message;
    }
  };
  const parts = fc.array(sentPart, { minLength: 1, maxLength: 3 });
  await t.notThrowsAsync(
    fc.assert(
      fc.asyncProperty(parts, fault, cuts, async (sent, { at, drop, put }, cutIndexes) => {
        const form = written(sent);
        const offset = at % (form.length + 1);
        const body = Buffer.concat([
          form.subarray(0, offset),
          Buffer.from(put),
          form.subarray(offset + drop),
        ]);
        const whole = judge([body]);
        assert.deepEqual(judge(cutAt(body, cutIndexes)), whole);
        assert.deepEqual(judge(bytewise(body)), whole);
        if (typeof whole === 'string') return;
        const other = await byNode(body);
        // Node's parser takes no folded lines, blanks after a boundary or files without a file
        // name.
        if (other === undefined) return;
        taken += 1;
        const mine = whole.map(part => [part.name, utf8(Buffer.from(part.body, 'latin1'))]);
        assert.deepEqual(other, mine);
      }),
      { numRuns: 500 },
    ),
  );
  t.true(taken > 25, `${taken} forms were compared`);
});
