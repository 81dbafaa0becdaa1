import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { FIELDS_MAX, OVERLONG } from '@matting/http/body-fields.ts';
import { type JsonFields, JsonFieldsParser } from '@matting/http/json-fields.ts';
import { cutAt, refusalOf, splits } from '@matting/http/test/forms.ts';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { MATTING_FIELDS } from '../submission/matting-request.ts';
import { MATTING_JSON, readQueryFields } from './read-matting-body.ts';

interface Parsed {
  readonly texts: Record<string, string | typeof OVERLONG>;
  readonly image: string | undefined;
}

function parse(...chunks: Buffer[]): Parsed {
  const parser = new JsonFieldsParser(MATTING_JSON, UNCOUNTED);
  const image: Buffer[] = [];
  // push returns memory that it reuses.
  for (const chunk of chunks) image.push(Buffer.from(parser.push(chunk)));
  const { texts, imageGiven } = parser.finish();
  return {
    texts: Object.fromEntries(texts),
    image: imageGiven ? Buffer.concat(image).toString('latin1') : undefined,
  };
}

const refusal = (...chunks: Buffer[]) => refusalOf(all => parse(...all), chunks);

/** Splits the body in all ways; returns one reading if all are equal. */
function readings(body: Buffer): Parsed[] {
  const read = splits(body).map(chunks => parse(...chunks));
  return read.filter((one, index) => index === 0 || !isDeepStrictEqual(one, read[0]));
}

const REFUSED: readonly [what: string, body: string, detail: RegExp, field?: string][] = [
  ['nothing', '', /empty/],
  ['a byte order mark', '\ufeff{}', /byte order mark/],
  ['an array', '[]', /JSON object/],
  ['an open object', '{', /ends in the middle/],
  ['an open value', '{"image_url":"x', /ends in the middle/],
  ['no closing brace', '{"image_url":"x"', /ends in the middle/],
  ['a trailing comma', '{"image_url":"x",}', /double quotes/],
  ['a key without quotes', '{image_url:"x"}', /double quotes/],
  ['no colon', '{"image_url" "x"}', /colon/],
  ['no value', '{"image_url":}', /value is missing/],
  ['no comma', '{"image_url":"x" "output_format":"png"}', /comma/],
  ['a wrong literal', '{"image_url":nope}', /neither a string nor null/],
  ['an object behind', '{} {}', /goes on/],
  ['a number', '{"image_url":1}', /must be a string/, 'image_url'],
  ['false', '{"image_base64":false}', /must be a string/, 'image_base64'],
  ['an array as a value', '{"callback_secret":["x"]}', /must be a string/, 'callback_secret'],
  ['true for a length', '{"output_width":true}', /must be a number or a string/, 'output_width'],
  ['a number for crop', '{"crop":1}', /must be a boolean or a string/, 'crop'],
  ['a number for the scale', '{"scale":85}', /must be a string/, 'scale'],
  ['a longer true', '{"crop":trueish}', /must be a boolean or a string/, 'crop'],
  ['an octal number', '{"output_width":0100}', /must be a number/, 'output_width'],
  ['a point at the end', '{"output_width":1.}', /must be a number/, 'output_width'],
  ['an open exponent', '{"output_width":1e}', /must be a number/, 'output_width'],
  ['a very long number', `{"output_width":1${'0'.repeat(64)}}`, /over 64/, 'output_width'],
  ['an unknown field', '{"imageUrl":"x"}', /Unknown field: imageUrl/, 'imageUrl'],
  ['an empty name', '{"":"x"}', /Unknown field/, ''],
  ['__proto__', '{"__proto__":"x"}', /Unknown field: __proto__/, '__proto__'],
  ['a duplicate', '{"image_url":"x","image_url":"x"}', /given twice/, 'image_url'],
  ['a duplicate image', '{"image_base64":"AA","image_base64":"AA"}', /twice/, 'image_base64'],
  ['a duplicate in disguise', '{"image_url":"x","image\\u005furl":"y"}', /twice/, 'image_url'],
  ['a wrong escape', '{"image_url":"\\x"}', /image_url is not a valid JSON string/, 'image_url'],
  ['a short escape', '{"image_url":"\\u12"}', /not a valid JSON string/, 'image_url'],
  ['a raw new line', '{"image_url":"a\nb"}', /not a valid JSON string/, 'image_url'],
  ['half a surrogate pair', '{"image_url":"\\ud83d"}', /surrogate/, 'image_url'],
  ['a wrong escape in the image', '{"image_base64":"AA\\xAA"}', /wrong escape/, 'image_base64'],
  ['a bad digit in an escape', '{"image_base64":"\\u00g0"}', /wrong escape/, 'image_base64'],
  ['an escaped end of the image', '{"image_base64":"AA\\"}', /ends in the middle/],
  ['a raw new line in the image', '{"image_base64":"AA\nAA"}', /control/, 'image_base64'],
  ['a raw tab behind an escape', '{"image_base64":"\\/\tAA"}', /control/, 'image_base64'],
];

for (const [what, body, detail, field] of REFUSED) {
  test(`a body › refuses ${what}, wherever the body is split`, t => {
    const errors = splits(Buffer.from(body)).map(chunks => refusal(...chunks));
    for (const message of new Set(errors.map(error => error.message))) t.regex(message, detail);
    const fields = new Set(errors.map(error => error.fieldErrors[0]?.field));
    t.deepEqual([...fields], [field]);
  });
}

test('a body › refuses text that is not UTF-8', t => {
  for (const bytes of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xe2, 0x82]]) {
    const body = Buffer.concat([
      Buffer.from('{"image_url":"'),
      Buffer.from(bytes),
      Buffer.from('"}'),
    ]);
    t.regex(refusal(body).message, /UTF-8/);
  }
});

test('a body › an unknown name is shown cut short', t => {
  const error = refusal(Buffer.from(`{"${'\u{1f600}'.repeat(60)}":"x"}`));
  const [shown] = error.fieldErrors;
  assert.ok(shown && shown.field.length <= 64);
  t.truthy(shown.field.isWellFormed());
  t.regex(refusal(Buffer.from(`{"${'k'.repeat(100_000)}":"x"}`)).message, /Unknown field/);
});

test('a body › crop may be a boolean and lengths may be numbers, wherever the body is split', t => {
  const sent = ['true', 'false', '2000', '0', '-1.50', '1e3', '0.25', '1000.0', '1E-2', '1e400'];
  const meant = ['true', 'false', '2000', '0', '-1.5', '1000', '0.25', '1000', '0.01', 'Infinity'];
  for (const [index, literal] of sent.entries()) {
    const field = index < 2 ? 'crop' : 'output_width';
    const expected = { texts: { [field]: meant[index], scale: 'x' }, image: undefined };
    for (const space of ['', ' ', '\r\n']) {
      const body = Buffer.from(`{"${field}":${space}${literal}${space},"scale":"x"}`);
      t.deepEqual(readings(body), [expected]);
    }
  }
});

test('a body › escapes in the image are undone, wherever the body is split', t => {
  const body = Buffer.from('{"image_base64":"ab\\/+\\u002B\\u002fc\\n\\"=","output_format":"png"}');
  t.deepEqual(readings(body), [{ texts: { output_format: 'png' }, image: 'ab/++/c\n"=' }]);
});

test('a body › an escape beyond ASCII in the image is a byte of no alphabet', t => {
  t.is(parse(Buffer.from('{"image_base64":"a\\u00e9b"}')).image, 'a\xffb');
});

test('a body › a string no rule allows is dropped, the longest lawful one is kept', t => {
  const longest = '\\u0061'.repeat(URL_LENGTH_MAX);
  const kept = parse(Buffer.from(`{"image_url":"${longest}"}`));
  t.is(kept.texts.image_url, 'a'.repeat(URL_LENGTH_MAX));
  const dropped = parse(Buffer.from(`{"image_url":"${longest}a","output_format":"webp"}`));
  t.deepEqual(dropped.texts, { image_url: OVERLONG, output_format: 'webp' });
});

const writtenString = fc
  .array(fc.tuple(fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }), fc.nat(2)), {
    maxLength: 12,
  })
  .map(units => {
    const raw = units.map(([unit, style]) => {
      if (style === 0) return JSON.stringify(unit).slice(1, -1);
      if (style === 1) {
        return Array.from({ length: unit.length }, (_, index) => {
          const code = unit.charCodeAt(index).toString(16).padStart(4, '0');
          return `\\u${code}`;
        }).join('');
      }
      return unit === '/' ? '\\/' : JSON.stringify(unit).slice(1, -1);
    });
    return { raw: `"${raw.join('')}"`, text: units.map(([unit]) => unit).join('') };
  })
  .filter(({ text }) => text.isWellFormed());

const blank = fc.stringMatching(/^[ \t\r\n]{0,2}$/);
const textFields = MATTING_FIELDS.filter(field => field !== 'image_base64');

const written = (raw: string) => ({ raw, text: raw });
const member = fc.oneof(
  fc.tuple(fc.constantFrom(...textFields), fc.option(writtenString, { freq: 4 })),
  fc.tuple(fc.constant('crop' as const), fc.constantFrom('true', 'false').map(written)),
  fc.tuple(fc.constant('output_width' as const), fc.nat().map(String).map(written)),
);

const flatBody = fc
  .tuple(
    fc.uniqueArray(member, { selector: ([field]) => field }),
    fc.option(fc.stringMatching(/^[A-Za-z0-9+/=]{0,40}$/)),
    fc.nat(4),
    blank,
  )
  .map(([members, image, imageAt, space]) => {
    const pairs = members.map(([field, value]) => `"${field}"${space}:${value?.raw ?? 'null'}`);
    if (image !== null) pairs.splice(imageAt, 0, `"image_base64":${space}"${image}"`);
    const texts = Object.fromEntries(
      members.flatMap(([field, value]) => (value === null ? [] : [[field, value.text]])),
    );
    const body = `${space}{${space}${pairs.join(`${space},`)}${space}}${space}`;
    return { body: Buffer.from(body), texts, image: image ?? undefined };
  });

test('a body › reads every lawful body, however it is cut', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(flatBody, fc.array(fc.nat(), { maxLength: 6 }), ({ body, texts, image }, at) => {
        assert.deepEqual(parse(...cutAt(body, at)), { texts, image });
      }),
      { numRuns: 200 },
    ),
  );
});

test('a body › is read as JSON.parse reads it, in any chunks', t => {
  const mutation = fc.record({
    at: fc.nat(),
    drop: fc.nat(2),
    put: fc.string({ unit: fc.constantFrom(...'"{}:,\\nul \0\n\x1fax/'), maxLength: 2 }),
  });
  const judge = (chunks: Buffer[]) => {
    try {
      return parse(...chunks);
    } catch (error) {
      assert.ok(error instanceof ContractError, String(error));
      return error.message;
    }
  };
  t.notThrows(() =>
    fc.assert(
      fc.property(flatBody, mutation, fc.array(fc.nat(), { maxLength: 4 }), (sent, change, at) => {
        const offset = change.at % (sent.body.length + 1);
        const body = Buffer.concat([
          sent.body.subarray(0, offset),
          Buffer.from(change.put),
          sent.body.subarray(offset + change.drop),
        ]);
        const whole = judge([body]);
        assert.deepEqual(judge(cutAt(body, at)), whole);
        if (typeof whole === 'string') return;
        // Raw control characters are left to the Base64 reader.
        if (Buffer.from(whole.image ?? '').some(byte => byte < 0x20)) return;
        const meant = JSON.parse(body.toString()) as Record<string, string | null>;
        for (const [field, text] of Object.entries(whole.texts)) {
          assert.equal(String(meant[field]), text);
        }
        assert.equal(meant.image_base64 ?? undefined, whole.image);
      }),
      { numRuns: 500 },
    ),
  );
});

const FIELDS: JsonFields<'size'> = {
  image: 'image',
  fieldOf: name => (name === 'size' || name === 'image' ? name : undefined),
  literalsOf: () => ['boolean', 'number'],
};

function read(body: string, chunkBytes: number): Record<string, unknown> {
  const parser = new JsonFieldsParser<'size'>(FIELDS, UNCOUNTED);
  const bytes = Buffer.from(body);
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    parser.push(bytes.subarray(at, at + chunkBytes));
  }
  return Object.fromEntries(parser.finish().texts);
}

for (const value of [
  '{}',
  '{"a":{"b":[1,{"c":null}]}}',
  '[[],{},"]",true]',
  '{"}":"]","\\"}":"\\\\"}',
  ' [ "中", "\\u005d" ] ',
  'false',
  '-1.5e3',
]) {
  test(`unknown fields › skips ${value}, wherever it is split`, t => {
    for (const chunkBytes of [1, 2, 3, 1000]) {
      const body = `{"x":${value},"size":"hd","y":${value}}`;
      t.deepEqual(read(body, chunkBytes), { size: 'hd' });
    }
  });
}

for (const value of ['{]', '[1,]', '{"a"}', '{"a":1', '[', '[nul]', '[]]', '[\u0001]']) {
  test(`unknown fields › refuses ${JSON.stringify(value)}, which is skipped by nobody`, t => {
    for (const chunkBytes of [1, 3, 1000]) {
      const refused = { code: 'INVALID_REQUEST' };
      throwsWith(t, () => read(`{"x":${value},"size":"hd"}`, chunkBytes), refused);
    }
  });
}

test('unknown fields › skips up to 12 KiB of it, however deep', t => {
  const deep = (depth: number) => `{"x":${'['.repeat(depth)}${']'.repeat(depth)},"size":"hd"}`;
  t.deepEqual(read(deep(6144), 1000), { size: 'hd' });
  t.throws(() => read(deep(6145), 1000), { message: /over 12288 bytes/ });
});

test('unknown fields › a field of the interface is no object', t => {
  for (const field of ['size', 'image']) {
    t.throws(() => read(`{"${field}":{}}`, 1000), { message: /must be a/ });
  }
});

test('unknown fields › counts the fields that are skipped', t => {
  const object = (count: number) =>
    `{${Array.from({ length: count }, (_, index) => `"${index % 2}":{}`).join(',')}}`;
  t.deepEqual(read(object(FIELDS_MAX), 1000), {});
  t.throws(() => read(object(FIELDS_MAX + 1), 1000), { message: /more than 64 fields/ });
});

test('bounds › a query of as many empty pairs as there may be fields is empty', t => {
  t.is(readQueryFields(`/?${'&'.repeat(FIELDS_MAX - 1)}`).size, 0);
  t.throws(() => readQueryFields(`/?${'&'.repeat(FIELDS_MAX)}`), { message: /more than 64/ });
});
