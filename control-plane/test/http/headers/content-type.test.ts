/** One reader of Content-Type for every interface: what it takes, and that a long one costs little. */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { test } from 'node:test';
import {
  bodyTypeOf,
  charsetOf,
  extendsAscii,
  parseContentType,
  readParameters,
} from '../../../src/http/headers/content-type.ts';

function typeOf(contentTypes: readonly string[], headers = { 'content-length': '1' }) {
  const rawHeaders = contentTypes.flatMap(value => ['Content-Type', value]);
  return bodyTypeOf({ rawHeaders, headers } as unknown as IncomingMessage);
}

const kindOf = (...contentTypes: string[]) => {
  const type = typeOf(contentTypes);
  return typeof type === 'object' ? type.type : type;
};

test('a type in any case, with blanks and parameters', () => {
  for (const text of ['a/B', 'A/b ;', 'a/b; C=d', 'a/b;c="d"', 'a/b \t; c = d ;']) {
    assert.equal(parseContentType(text)?.type, 'a/b', text);
  }
  assert.deepEqual(
    [...parseContentType('a/b;C="d\\"e"; f=g')!.parameters!],
    [
      ['c', 'd"e'],
      ['f', 'g'],
    ],
  );
  for (const text of ['', 'a', 'a/', '/b', 'a/b c', 'a/b,c/d', 'ä/b']) {
    assert.equal(parseContentType(text), undefined, text);
  }
  for (const text of ['a/b; c', 'a/b; c=', 'a/b; c=d c=e', 'a/b; c=d; C=e', 'a/b; c="d']) {
    assert.equal(parseContentType(text)!.parameters, undefined, text);
  }
});

test('a charset counts for JSON alone, where it makes others of the bytes of ASCII', () => {
  for (const charset of [
    'utf-8',
    'UTF8',
    'ISO-8859-1',
    'us-ascii',
    '"windows-1252"',
    'GBK',
    'Shift_JIS',
  ]) {
    assert.equal(kindOf(`application/json; charset=${charset}`), 'application/json', charset);
  }
  for (const charset of [
    'utf-16',
    'UTF-16LE',
    'utf-32',
    'iso-2022-jp',
    'utf-7',
    'nobody-knows',
    '""',
  ]) {
    const json = `application/json; charset=${charset}`;
    assert.equal(kindOf(json), undefined, charset);
    assert.equal(kindOf('application/json', json), undefined, charset);
    for (const form of ['multipart/form-data', 'application/x-www-form-urlencoded']) {
      assert.equal(kindOf(`${form}; charset=${charset}`), form, charset);
    }
  }
  const named = parseContentType('text/plain; CHARSET="ISO-8859-15"')!;
  assert.deepEqual([charsetOf(named), extendsAscii(named)], ['iso-8859-15', true]);
});

test('several types are one where all of them are JSON', () => {
  assert.equal(kindOf('application/json', 'Application/JSON; charset=utf-8'), 'application/json');
  assert.equal(kindOf('application/json', 'image/png'), undefined);
  assert.equal(kindOf('image/png', 'application/json'), undefined);
  assert.equal(kindOf('image/png', 'image/png'), undefined);
});

test('without a type there is a body that is none, or no body', () => {
  assert.equal(typeOf([]), undefined);
  assert.equal(typeOf([], { 'transfer-encoding': 'chunked' } as never), undefined);
  assert.equal(typeOf([], { 'content-length': '0' }), 'none');
  assert.equal(typeOf([], {} as never), 'none');
});

test('a quote behind a backslash ends a value where no other one does', () => {
  const read = (text: string) => readParameters(text, 0)?.get('a');
  for (const [text, value] of [
    [String.raw`;a="b\"`, 'b\\'],
    [String.raw`;a="\"`, '\\'],
    [String.raw`;a="b\" ; c=d`, 'b\\'],
    [String.raw`;a="b\"c"`, 'b"c'],
    [String.raw`;a="b\"; c="`, 'b"; c='],
    [String.raw`;a="b\\"`, 'b\\'],
  ] as const) {
    assert.equal(read(text), value, text);
  }
  for (const text of [String.raw`;a="b\"c`, String.raw`;a="b\" c`, String.raw`;a="b\"c"d`]) {
    assert.equal(readParameters(text, 0), undefined, text);
  }
});
