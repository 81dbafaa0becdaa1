import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fc } from '../../../test/support/property-tests.ts';
import { Base64Decoder } from '../../src/sources/base64-decoder.ts';

/** Decodes text given in pieces of these lengths, the last of them repeated. */
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

/** What it decodes to, or the code of its refusal. */
function outcome(text: string, lengths: readonly number[]): string {
  try {
    return decode(text, lengths).toString('hex');
  } catch (error) {
    return (error as { code: string }).code;
  }
}

describe('Base64 that is refused', () => {
  const cases: [string, string][] = [
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
  for (const [name, text] of cases) {
    it(name, () => {
      for (const lengths of [[text.length || 1], [1], [2, 3]]) {
        assert.throws(() => decode(text, lengths), {
          code: 'INVALID_IMAGE_SOURCE',
          retryable: false,
        });
      }
    });
  }

  it('names the field and the place, and nothing of the content', () => {
    const expected = [
      { field: 'image_base64', detail: 'character 6 is not in the Base64 alphabet' },
    ];
    for (const lengths of [[11], [1], [4, 7]]) {
      assert.throws(() => decode('QUJDR!secret', lengths), { fieldErrors: expected });
    }
  });
});

describe('Base64 that is taken', () => {
  const cases: [string, string, string][] = [
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
  for (const [name, text, expected] of cases) {
    it(name, () => {
      for (const lengths of [[text.length], [1], [3], [5, 1]]) {
        assert.equal(decode(text, lengths).toString('latin1'), expected);
      }
    });
  }

  it('gives back any bytes, however the text is cut, wrapped, padded and prefixed', () => {
    fc.assert(
      fc.property(
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
          const decoded = decode(prefix + lines.join(space), lengths);
          assert.deepEqual(decoded, Buffer.from(bytes));
        },
      ),
      { numRuns: 300 },
    );
  });

  it('takes a long text as it takes its pieces, whatever stands in it', () => {
    const long = Buffer.alloc(900, 'any bytes').toString('base64');
    for (const strange of ['-', '_', '=', '==', ' ', '\r\n', '\0', '\u007f', 'é', 'AB', '']) {
      for (const at of [0, 5, 400, 800, 1195, 1198, 1199, 1200]) {
        const text = long.slice(0, at) + strange + long.slice(at);
        assert.equal(outcome(text, [text.length + 1]), outcome(text, [100]), `${strange} at ${at}`);
        const replaced = long.slice(0, at) + strange + long.slice(at + strange.length);
        assert.equal(outcome(replaced, [2000]), outcome(replaced, [100]), `${strange} for ${at}`);
      }
    }
  });

  it('agrees with itself on any text, however it is cut', () => {
    const character = fc.constantFrom(...'ABCDdata:;,base64+/=-_ \n\0é');
    fc.assert(
      fc.property(
        fc.string({ unit: character, maxLength: 40 }),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 20 }),
        (text, lengths) => assert.equal(outcome(text, lengths), outcome(text, [1000])),
      ),
      { numRuns: 1000 },
    );
  });
});

describe('the cost of white space', () => {
  const CHUNK_LENGTH = 65_536;
  for (const [name, line] of [
    ['after each group', 'AAAA '],
    ['as in a mail', `${'A'.repeat(76)}\r\n`],
  ] as const) {
    it(`is read once by each decoder: ${name}`, t => {
      const chunk = Buffer.from(line.repeat(CHUNK_LENGTH / line.length));
      const native = t.mock.method(Buffer.prototype, 'write');
      const decoder = new Base64Decoder();
      for (let count = 0; count < 3; count += 1) decoder.push(chunk);
      assert.ok(native.mock.callCount() <= 3, `${native.mock.callCount()}`);
      assert.ok(decoder.decodedBytes > 3 * 0.55 * CHUNK_LENGTH);
    });
  }
});
