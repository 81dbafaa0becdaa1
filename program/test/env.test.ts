import assert from 'node:assert/strict';
import test from 'ava';
import { ConfigError, EnvReader } from '#program/env.ts';
import { throwsWith } from '../../test/support/throws.ts';

test('collects every problem, and shows none of the values', t => {
  const env = {
    A: 'secret-one',
    B: '70000',
    C: 'maybe',
    D: 'purple',
    E: 'ftp://secret-host/',
    F: '1,,2',
    G: 'x'.repeat(9),
  };
  const read = new EnvReader(env);
  read.integer('A', { min: 1 });
  read.port('B', { default: 1 });
  read.boolean('C', { default: true });
  read.oneOf('D', ['red', 'green'], { default: 'red' });
  read.url('E', { schemes: ['http', 'https'] });
  read.list('F', 'ports', text => Number(text));
  read.string('G', { lengthMin: 10 });
  read.string('MISSING');
  throwsWith(
    t,
    () => read.requireValid(),
    (error: unknown) => {
      assert.ok(error instanceof ConfigError);
      t.deepEqual(error.problems, [
        { variable: 'A', expected: 'a whole number, at least 1' },
        { variable: 'B', expected: 'a port number, 0 to 65535' },
        { variable: 'C', expected: 'true or false' },
        { variable: 'D', expected: 'one of red, green' },
        { variable: 'E', expected: 'a URL of the form http://... or https://...' },
        { variable: 'F', expected: 'a comma-separated list of ports' },
        { variable: 'G', expected: 'at least 10 characters' },
        { variable: 'MISSING', expected: 'set: text' },
      ]);
      for (const value of Object.values(env)) t.false(error.message.includes(value));
      t.regex(error.message, /\n {2}MISSING must be set: text$/);
      return true;
    },
  );
});

for (const text of ['1e3', '0x10', ' 5', '5.0', '', '+5', '9'.repeat(16), 'NaN', 'Infinity']) {
  test(`does not read ${JSON.stringify(text)} as an integer`, t => {
    const read = new EnvReader({ N: text });
    read.integer('N');
    t.is(read.problems.length, 1);
  });
}

test('holds both ends of a range', t => {
  const read = new EnvReader({ LOW: '1', HIGH: '8', UNDER: '0', OVER: '9', PART: '1.5' });
  const range = { min: 1, max: 8 };
  t.is(read.integer('LOW', range), 1);
  t.is(read.integer('HIGH', range), 8);
  t.is(read.number('PART', range), 1.5);
  read.requireValid();
  read.integer('UNDER', range);
  read.integer('OVER', range);
  t.deepEqual(
    read.problems.map(({ variable }) => variable),
    ['UNDER', 'OVER'],
  );
});

test('bounds the items of a list', t => {
  const read = new EnvReader({ MANY: Array(65).fill('1').join(','), THREE: '1, 2 ,3' });
  t.deepEqual(
    read.list('THREE', 'numbers', text => Number(text)),
    [1, 2, 3],
  );
  read.list('MANY', 'numbers', text => Number(text));
  t.is(read.problems.length, 1);
});

test('takes the default of what is unset or empty', t => {
  const read = new EnvReader({ EMPTY: '' });
  t.is(read.string('EMPTY', { default: 'x' }), 'x');
  t.is(read.port('UNSET', { default: 8080 }), 8080);
  t.is(read.string('OPTIONAL', { default: undefined }), undefined);
  t.false(read.has('EMPTY'));
  read.requireValid();
});

test('joins rules over several variables to the same answer', t => {
  const read = new EnvReader({ HOST: '0.0.0.0' });
  read.problem('ADDRESS', 'set where HOST is every interface');
  t.throws(() => read.requireValid(), {
    message: /ADDRESS must be set where HOST is every interface/,
  });
});
