/** One reader of Content-Type for every interface: what it takes, and that a long one costs little. */
import type { IncomingMessage } from 'node:http';
import test from 'ava';
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

test('a type in any case, with blanks and parameters', t => {
  for (const text of ['a/B', 'A/b ;', 'a/b; C=d', 'a/b;c="d"', 'a/b \t; c = d ;']) {
    t.is(parseContentType(text)?.type, 'a/b', text);
  }
  t.deepEqual(
    [...parseContentType('a/b;C="d\\"e"; f=g')!.parameters!],
    [
      ['c', 'd"e'],
      ['f', 'g'],
    ],
  );
  for (const text of ['', 'a', 'a/', '/b', 'a/b c', 'a/b,c/d', 'ä/b']) {
    t.is(parseContentType(text), undefined, text);
  }
  for (const text of ['a/b; c', 'a/b; c=', 'a/b; c=d c=e', 'a/b; c=d; C=e', 'a/b; c="d']) {
    t.is(parseContentType(text)!.parameters, undefined, text);
  }
});

test('a charset counts for JSON alone, where it makes others of the bytes of ASCII', t => {
  for (const charset of [
    'utf-8',
    'UTF8',
    'ISO-8859-1',
    'us-ascii',
    '"windows-1252"',
    'GBK',
    'Shift_JIS',
  ]) {
    t.is(kindOf(`application/json; charset=${charset}`), 'application/json', charset);
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
    t.is(kindOf(json), undefined, charset);
    t.is(kindOf('application/json', json), undefined, charset);
    for (const form of ['multipart/form-data', 'application/x-www-form-urlencoded']) {
      t.is(kindOf(`${form}; charset=${charset}`), form, charset);
    }
  }
  const named = parseContentType('text/plain; CHARSET="ISO-8859-15"')!;
  t.deepEqual([charsetOf(named), extendsAscii(named)], ['iso-8859-15', true]);
});

test('several types are one where all of them are JSON', t => {
  t.is(kindOf('application/json', 'Application/JSON; charset=utf-8'), 'application/json');
  t.is(kindOf('application/json', 'image/png'), undefined);
  t.is(kindOf('image/png', 'application/json'), undefined);
  t.is(kindOf('image/png', 'image/png'), undefined);
});

test('without a type there is a body that is none, or no body', t => {
  t.is(typeOf([]), undefined);
  t.is(typeOf([], { 'transfer-encoding': 'chunked' } as never), undefined);
  t.is(typeOf([], { 'content-length': '0' }), 'none');
  t.is(typeOf([], {} as never), 'none');
});

test('a quote behind a backslash ends a value where no other one does', t => {
  const read = (text: string) => readParameters(text, 0)?.get('a');
  for (const [text, value] of [
    [String.raw`;a="b\"`, 'b\\'],
    [String.raw`;a="\"`, '\\'],
    [String.raw`;a="b\" ; c=d`, 'b\\'],
    [String.raw`;a="b\"c"`, 'b"c'],
    [String.raw`;a="b\"; c="`, 'b"; c='],
    [String.raw`;a="b\\"`, 'b\\'],
  ] as const) {
    t.is(read(text), value, text);
  }
  for (const text of [String.raw`;a="b\"c`, String.raw`;a="b\" c`, String.raw`;a="b\"c"d`]) {
    t.is(readParameters(text, 0), undefined, text);
  }
});
