/** Values that are skipped, as the remove.bg interface does with fields that it does not have. */
import test from 'ava';
import { throwsWith } from '../../../../test/support/throws.ts';
import { type JsonFields, JsonFieldsParser } from '../../../src/http/body/json-fields.ts';
import { FIELDS_MAX } from '../../../src/http/body/malformed.ts';

const FIELDS: JsonFields<'size'> = {
  image: 'image',
  fieldOf: name => (name === 'size' || name === 'image' ? name : undefined),
  literalsOf: () => ['boolean', 'number'],
};

/** Its texts, in chunks of this size. */
function read(body: string, chunkBytes: number): Record<string, unknown> {
  const parser = new JsonFieldsParser<'size'>(FIELDS);
  const bytes = Buffer.from(body);
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    parser.push(bytes.subarray(at, at + chunkBytes));
  }
  return Object.fromEntries(parser.finish().texts);
}

for (const value of [
  '{}',
  '[]',
  '{"a":{"b":[1,{"c":null}]}}',
  '[[],{},"]",true]',
  '{"}":"]","\\"}":"\\\\"}',
  ' [ "中", "\\u005d" ] ',
  '"text"',
  'null',
  'false',
  '-1.5e3',
]) {
  test(`skips ${value}, wherever it is split`, t => {
    for (const chunkBytes of [1, 2, 3, 1000]) {
      const body = `{"x":${value},"size":"hd","y":${value}}`;
      t.deepEqual(read(body, chunkBytes), { size: 'hd' });
    }
  });
}

for (const value of [
  '{]',
  '[}',
  '[1,]',
  '{"a"}',
  '{"a":1',
  '[',
  '["]',
  '[nul]',
  '{}}',
  '[]]',
  '[\u0001]',
]) {
  test(`refuses ${JSON.stringify(value)}, which is skipped by nobody`, t => {
    for (const chunkBytes of [1, 3, 1000]) {
      const refused = { code: 'INVALID_REQUEST' };
      throwsWith(t, () => read(`{"x":${value},"size":"hd"}`, chunkBytes), refused);
    }
  });
}

test('skips up to 12 KiB of it, however deep', t => {
  const deep = (depth: number) => `{"x":${'['.repeat(depth)}${']'.repeat(depth)},"size":"hd"}`;
  t.deepEqual(read(deep(6144), 1000), { size: 'hd' });
  t.throws(() => read(deep(6145), 1000), { message: /over 12288 bytes/ });
});

test('a field of the interface is no object', t => {
  for (const field of ['size', 'image']) {
    t.throws(() => read(`{"${field}":{}}`, 1000), { message: /must be a/ });
  }
});

test('counts the fields that are skipped', t => {
  const object = (count: number) =>
    `{${Array.from({ length: count }, (_, index) => `"${index % 2}":{}`).join(',')}}`;
  t.deepEqual(read(object(FIELDS_MAX), 1000), {});
  t.throws(() => read(object(FIELDS_MAX + 1), 1000), { message: /more than 64 fields/ });
});
