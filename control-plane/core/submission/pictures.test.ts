import assert from 'node:assert/strict';
import { Base64Decoder } from '@matting/http/base64.ts';
import { IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import sinon from 'sinon';
import { requireAcceptableImage } from '../jobs/acceptable-image.ts';
import { pngHeader as pngOf } from '../test/support/test-app.ts';

const test = ava.serial;

function accept(file: Buffer, sizeBytes = file.length) {
  return requireAcceptableImage(
    (offset, length) => file.subarray(offset, offset + length),
    sizeBytes,
  );
}

test('an acceptable image › refuses more than 50 MB, and takes exactly 50 MB', async t => {
  await t.throwsAsync(accept(pngOf(1, 1), IMAGE_BYTES_MAX + 1), { code: 'IMAGE_TOO_LARGE' });
  await accept(pngOf(1, 1), IMAGE_BYTES_MAX);
});

test('an acceptable image › refuses bytes that are not a supported image', async t => {
  for (const text of ['', 'GIF89a', 'this is text that calls itself image.png']) {
    await rejectsWith(t, accept(Buffer.from(text)), {
      code: 'UNSUPPORTED_IMAGE_FORMAT',
      retryable: false,
    });
  }
});

test('an acceptable image › refuses animations', async t => {
  const animated = Buffer.alloc(48);
  animated.write('RIFF(\0\0\0WEBPVP8X\n\0\0\0\x02', 'latin1');
  await t.throwsAsync(accept(animated), {
    code: 'UNSUPPORTED_IMAGE_FORMAT',
    message: /animated\. Send one frame/,
  });
});

test('an acceptable image › refuses a side or an area over the bound, and takes the bound itself', async t => {
  for (const [width, height] of [
    [10_001, 1],
    [1, 10_001],
    [17_000, 17_000],
    [2 ** 31 - 1, 2 ** 31 - 1],
  ] as const) {
    await t.throwsAsync(accept(pngOf(width, height)), { code: 'IMAGE_RESOLUTION_TOO_LARGE' });
  }
  await accept(pngOf(10_000, 10_000));
});

test('an acceptable image › takes a known format whose size cannot be read', async t => {
  const header = await accept(pngOf(0, 5));
  t.deepEqual(header, {
    format: 'png',
    width: undefined,
    height: undefined,
    animated: false,
  });
});

/** Pieces of these lengths, the last one repeated. */
function decode(text: string, lengths: readonly number[] = [text.length || 1]): Buffer {
  const decoder = new Base64Decoder();
  const bytes = Buffer.from(text, 'utf8');
  const parts: Uint8Array[] = [];
  for (let from = 0, i = 0; from < bytes.length; i += 1) {
    const length = lengths[Math.min(i, lengths.length - 1)] ?? 1;
    parts.push(decoder.push(bytes.subarray(from, from + length)));
    from += length;
  }
  parts.push(decoder.finish());
  const out = Buffer.concat(parts);
  assert.equal(decoder.decodedBytes, out.length);
  return out;
}

function outcome(text: string, lengths: readonly number[]): string {
  try {
    return decode(text, lengths).toString('hex');
  } catch (error) {
    return (error as { code: string }).code;
  }
}

const REFUSED_TEXTS: [string, string][] = [
  ['nothing', ''],
  ['white space', ' \r\n\t'],
  ['a data URI without data', 'data:image/png;base64,'],
  ['padding alone', '===='],
  ['one character', 'Q'],
  ['five characters', 'QUJDR'],
  ['the URL-safe alphabet', 'Q-_A'],
  ['the URL-safe alphabet in a full group', 'QUJD____'],
  ['one = of two', 'QQ='],
  ['= for a full group', 'QUJD='],
  ['three =', 'QQ==='],
  ['= after one character', 'Q==='],
  ['data after padding', 'QQ==QUJD'],
  ['data between two =', 'QQ=A='],
  ['no Base64 at all', 'not, base64!'],
  ['characters that are not ASCII', 'QUJDé'],
  ['a NUL', 'QUJD\0'],
  ['a no-break space', 'QU\u00a0JD'],
  ['percent-encoding', 'data:image/png;base64,QQ%3D%3D'],
  ['a data URI without ;base64', 'data:image/png,QUJD'],
  ['a data URI with another encoding', 'data:image/png;base32,QUJD'],
  ['a data URI without a comma', 'data:image/png;base64'],
  ['base64 as the media type', 'data:base64,QUJD'],
  ['a second data URI prefix', 'data:image/png;base64,data:image/png;base64,QUJD'],
  ['an endless prefix', `data:${'x'.repeat(2000)};base64,QUJD`],
];
for (const [name, text] of REFUSED_TEXTS) {
  test(`Base64 that is refused › ${name}`, t => {
    for (const lengths of [[text.length || 1], [1], [2, 3]]) {
      throwsWith(t, () => decode(text, lengths), {
        code: 'INVALID_IMAGE_SOURCE',
        retryable: false,
      });
    }
  });
}

test('Base64 that is refused › names the field and the place, and nothing of the content', t => {
  const expected = [
    { field: 'image_base64', detail: 'is not Base64: character 6 is not in the Base64 alphabet' },
  ];
  for (const lengths of [[11], [1], [4, 7]]) {
    throwsWith(t, () => decode('QUJDR!secret', lengths), { fieldErrors: expected });
  }
});

const TAKEN: [string, string, string][] = [
  ['with padding', 'QQ==', 'A'],
  ['without padding', 'QQ', 'A'],
  ['two bytes without padding', 'QUI', 'AB'],
  ['white space anywhere', ' Q\tU\r\nJ\fD\nQ Q = \n= \n', 'ABCA'],
  ['a data URI', 'data:image/png;base64,QUJD', 'ABC'],
  ['a data URI without a media type', 'data:;base64,QUJD', 'ABC'],
  ['a data URI with parameters, in any case', 'DATA:text/plain;charset=utf-8;BASE64,QUJD', 'ABC'],
  ['a data URI behind white space', '\n data:image/png;base64,QUJD', 'ABC'],
  ['what begins like a data URI', 'data', 'u\xabZ'],
  ['less than that', 'dat', 'u\xab'],
  ['more than that', 'dataQUJD', 'u\xabZABC'],
  ['bits too many in the last character', 'QR==', 'A'],
  ['the whole of + and /', '++//', '\xfb\xef\xff'],
];
for (const [name, text, expected] of TAKEN) {
  test(`Base64 that is taken › ${name}`, t => {
    for (const lengths of [[text.length], [1], [3], [5, 1]]) {
      t.is(decode(text, lengths).toString('latin1'), expected);
    }
  });
}

test('Base64 that is taken › gives back any bytes, however the text is cut, wrapped, padded and prefixed', t => {
  const property = fc.property(
    fc.uint8Array({ minLength: 1, maxLength: 300 }),
    fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1, maxLength: 40 }),
    fc.constantFrom('', '\r\n', ' '),
    fc.integer({ min: 1, max: 77 }),
    fc.boolean(),
    fc.constantFrom('', 'data:image/jpeg;base64,', ' data:;base64,'),
    (bytes, lengths, space, column, padded, prefix) => {
      const text = Buffer.from(bytes).toString('base64');
      const body = padded ? text : text.replace(/=+$/, '');
      const lines = body.match(new RegExp(`.{1,${column}}`, 'g')) ?? [];
      return decode(prefix + lines.join(space), lengths).equals(bytes);
    },
  );
  t.notThrows(() => fc.assert(property, { numRuns: 300 }));
});

test('Base64 that is taken › takes a long text as it takes its pieces, whatever stands in it', t => {
  const long = Buffer.alloc(900, 'any bytes').toString('base64');
  for (const strange of ['-', '_', '=', '==', ' ', '\r\n', '\0', '\u007f', 'é', 'AB', '']) {
    for (const at of [0, 5, 400, 800, 1195, 1198, 1199, 1200]) {
      const text = long.slice(0, at) + strange + long.slice(at);
      t.is(outcome(text, [text.length + 1]), outcome(text, [100]), `${strange} at ${at}`);
      const replaced = long.slice(0, at) + strange + long.slice(at + strange.length);
      t.is(outcome(replaced, [2000]), outcome(replaced, [100]), `${strange} for ${at}`);
    }
  }
});

test('Base64 that is taken › agrees with itself on any text, however it is cut', t => {
  const character = fc.constantFrom(...'ABCDdata:;,base64+/=-_ \n\0é');
  const property = fc.property(
    fc.string({ unit: character, maxLength: 40 }),
    fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 20 }),
    (text, lengths) => outcome(text, lengths) === outcome(text, [1000]),
  );
  t.notThrows(() => fc.assert(property, { numRuns: 1000 }));
});

const CHUNK_LENGTH = 65_536;
for (const [name, line] of [
  ['after each group', 'AAAA '],
  ['as in a mail', `${'A'.repeat(76)}\r\n`],
] as const) {
  test(`the cost of white space › is read once by each decoder: ${name}`, t => {
    const chunk = Buffer.from(line.repeat(CHUNK_LENGTH / line.length));
    const native = sinon.spy(Buffer.prototype, 'write');
    t.teardown(() => native.restore());
    const decoder = new Base64Decoder();
    for (let count = 0; count < 3; count += 1) decoder.push(chunk);
    t.true(native.callCount <= 3, `${native.callCount}`);
    t.true(decoder.decodedBytes > 3 * 0.55 * CHUNK_LENGTH);
  });
}
