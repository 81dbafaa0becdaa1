import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigError, EnvReader } from '#program/env.ts';

describe('EnvReader', () => {
  it('collects every problem, and shows none of the values', () => {
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
    assert.throws(
      () => read.requireValid(),
      (error: unknown) => {
        assert.ok(error instanceof ConfigError);
        assert.deepEqual(error.problems, [
          { variable: 'A', expected: 'a whole number, at least 1' },
          { variable: 'B', expected: 'a port number, 0 to 65535' },
          { variable: 'C', expected: 'true or false' },
          { variable: 'D', expected: 'one of red, green' },
          { variable: 'E', expected: 'a URL of the form http://... or https://...' },
          { variable: 'F', expected: 'a comma-separated list of ports' },
          { variable: 'G', expected: 'at least 10 characters' },
          { variable: 'MISSING', expected: 'set: text' },
        ]);
        for (const value of Object.values(env)) assert.ok(!error.message.includes(value));
        assert.match(error.message, /\n {2}MISSING must be set: text$/);
        return true;
      },
    );
  });

  for (const text of ['1e3', '0x10', ' 5', '5.0', '', '+5', '9'.repeat(16), 'NaN', 'Infinity']) {
    it(`does not read ${JSON.stringify(text)} as an integer`, () => {
      const read = new EnvReader({ N: text });
      read.integer('N');
      assert.equal(read.problems.length, 1);
    });
  }

  it('holds both ends of a range', () => {
    const read = new EnvReader({ LOW: '1', HIGH: '8', UNDER: '0', OVER: '9', PART: '1.5' });
    const range = { min: 1, max: 8 };
    assert.equal(read.integer('LOW', range), 1);
    assert.equal(read.integer('HIGH', range), 8);
    assert.equal(read.number('PART', range), 1.5);
    read.requireValid();
    read.integer('UNDER', range);
    read.integer('OVER', range);
    assert.deepEqual(
      read.problems.map(({ variable }) => variable),
      ['UNDER', 'OVER'],
    );
  });

  it('bounds the items of a list', () => {
    const read = new EnvReader({ MANY: Array(65).fill('1').join(','), THREE: '1, 2 ,3' });
    assert.deepEqual(
      read.list('THREE', 'numbers', text => Number(text)),
      [1, 2, 3],
    );
    read.list('MANY', 'numbers', text => Number(text));
    assert.equal(read.problems.length, 1);
  });

  it('takes the default of what is unset or empty', () => {
    const read = new EnvReader({ EMPTY: '' });
    assert.equal(read.string('EMPTY', { default: 'x' }), 'x');
    assert.equal(read.port('UNSET', { default: 8080 }), 8080);
    assert.equal(read.string('OPTIONAL', { default: undefined }), undefined);
    assert.equal(read.has('EMPTY'), false);
    read.requireValid();
  });

  it('joins rules over several variables to the same answer', () => {
    const read = new EnvReader({ HOST: '0.0.0.0' });
    read.problem('ADDRESS', 'set where HOST is every interface');
    assert.throws(() => read.requireValid(), /ADDRESS must be set where HOST is every interface/);
  });
});
