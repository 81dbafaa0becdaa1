import assert from 'node:assert/strict';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import { FIELDS_MAX } from './body-fields.ts';
import { UrlencodedReader } from './urlencoded.ts';

function readPairs(body: string, chunkBytes = body.length || 1): [name: string, value: string][] {
  const reader = new UrlencodedReader('b64');
  const pairs: [string, string][] = [];
  const take = (events: ReturnType<UrlencodedReader['push']>) => {
    for (const event of events) {
      const last = pairs.at(-1);
      if (event.kind === 'head') pairs.push([event.head.name, '']);
      if (event.kind === 'data' && last !== undefined) last[1] += event.bytes.toString('latin1');
    }
  };
  const bytes = Buffer.from(body);
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    take(reader.push(bytes.subarray(at, at + chunkBytes)));
  }
  take(reader.finish());
  return pairs;
}

function refusedPairs(t: ExecutionContext, body: string, message: RegExp): void {
  for (const chunkBytes of [1, 3, body.length]) {
    throwsWith(
      t,
      () => readPairs(body, chunkBytes),
      (error: ContractError) => {
        t.is(error.code, 'INVALID_REQUEST');
        t.regex(error.message, message);
        return true;
      },
    );
  }
}

test('pairs › is readPairs as URLSearchParams writes it, in chunks of any size', t => {
  const text = fc.string({ unit: 'binary', maxLength: 20 });
  const pair = fc.tuple(fc.string({ minLength: 1, maxLength: 8 }), text);
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.array(pair, { maxLength: 8 }),
        fc.integer({ min: 1, max: 9 }),
        (sent, size) => {
          const wellFormed = sent.map(([name, value]) => [
            name.toWellFormed(),
            value.toWellFormed(),
          ]);
          const body = new URLSearchParams(wellFormed as [string, string][]).toString();
          const read_ = readPairs(body, size).map(([name, value]) => [
            name,
            Buffer.from(value, 'latin1').toString(),
          ]);
          assert.deepEqual(read_, wellFormed);
        },
      ),
    ),
  );
});

test('pairs › has nothing in names without values, empty pairs and an empty body', t => {
  for (const chunkBytes of [1, 2, 100]) {
    t.deepEqual(readPairs('', chunkBytes), []);
    t.deepEqual(readPairs('&&crop&&', chunkBytes), []);
    t.deepEqual(readPairs('crop=&size=hd&x', chunkBytes), [
      ['crop', ''],
      ['size', 'hd'],
    ]);
    t.deepEqual(readPairs('a=b=c', chunkBytes), [['a', 'b=c']]);
  }
});

test('pairs › has escapes in either case, wherever it is split', t => {
  const text = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));
  const bytes = text.map(hex => String.fromCharCode(Number.parseInt(hex, 16))).join('');
  for (const escapes of [text.join('%'), text.join('%').toUpperCase()]) {
    for (const chunkBytes of [1, 2, 3, 1000]) {
      t.deepEqual(readPairs(`a=%${escapes}`, chunkBytes), [['a', bytes]]);
    }
  }
});

test('pairs › is refusedPairs where an escape is none', t => {
  for (const body of ['a=%', 'a=%4', 'a=%zz', 'a=100%&b=c', '%4=b', 'a=%/0', 'a=%+0']) {
    refusedPairs(t, body, /%25/);
  }
});

test('pairs › is refusedPairs where a plus in Base64 was not escaped, which would change the picture', t => {
  refusedPairs(t, 'b64=ab+c', /%2B/);
  t.deepEqual(readPairs('b64=ab%2Bc'), [['b64', 'ab+c']]);
  t.deepEqual(readPairs('text=ab+c'), [['text', 'ab c']]);
});

test('pairs › is bounded in pairs and in names', t => {
  const pairs = (count: number) => Array.from({ length: count }, () => 'a=b').join('&');
  t.is(readPairs(pairs(FIELDS_MAX)).length, FIELDS_MAX);
  t.deepEqual(readPairs('&'.repeat(FIELDS_MAX - 1)), []);
  t.deepEqual(readPairs(`${'a&'.repeat(FIELDS_MAX - 1)}a`), []);
  for (const many of [pairs(FIELDS_MAX + 1), '&'.repeat(FIELDS_MAX), 'a&'.repeat(FIELDS_MAX)]) {
    refusedPairs(t, many, /more than 64 fields/);
  }
  refusedPairs(t, `${'n'.repeat(300)}=1`, /name of a field is over/);
  refusedPairs(t, '%ff=1', /not UTF-8/);
});
