import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { ConfigError } from '../config-error.ts';
import { EnvReader } from '../env.ts';
import { LEFT_VARIABLES, MATTING_VARIABLES, warnOfVariables } from '../env-names.ts';
import { makeDirectory, whyUnreadable } from '../files.ts';
import { isLoopback, networkOf } from '../ports/addresses.ts';
import { SignalGate } from '../signal-gate.ts';

const root = await temporaryFolder({ teardown: test.after.always });

const about = 'What it does.';

test('env › collects every problem, and shows none of the values', t => {
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
  read.integer('A', { about, min: 1 });
  read.port('B', { about, default: 1 });
  read.boolean('C', { about, default: true });
  read.oneOf('D', ['red', 'green'], { about, default: 'red' });
  read.url('E', { about, schemes: ['http', 'https'] });
  read.list('F', 'ports', text => Number(text), { about });
  read.string('G', { about, lengthMin: 10 });
  read.string('MISSING', { about });
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
  test(`env › does not read ${JSON.stringify(text)} as an integer`, t => {
    const read = new EnvReader({ N: text });
    read.integer('N', { about });
    t.is(read.problems.length, 1);
  });
}

test('env › holds both ends of a range', t => {
  const read = new EnvReader({ LOW: '1', HIGH: '8', UNDER: '0', OVER: '9', PART: '1.5' });
  const range = { about, min: 1, max: 8 };
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

test('env › bounds the items of a list', t => {
  const read = new EnvReader({ MANY: Array(65).fill('1').join(','), THREE: '1, 2 ,3' });
  t.deepEqual(
    read.list('THREE', 'numbers', text => Number(text), { about }),
    [1, 2, 3],
  );
  read.list('MANY', 'numbers', text => Number(text), { about });
  t.is(read.problems.length, 1);
});

test('env › takes the default of what is unset or empty', t => {
  const read = new EnvReader({ EMPTY: '' });
  t.is(read.string('EMPTY', { about, default: 'x' }), 'x');
  t.is(read.port('UNSET', { about, default: 8080 }), 8080);
  t.is(read.string('OPTIONAL', { about, default: undefined }), undefined);
  t.false(read.has('EMPTY'));
  read.requireValid();
});

test('env › declares what it reads, under its section and with the problems of the whole', t => {
  const read = new EnvReader({ PORT: 'eighty' });
  read.section('Addresses').port('PORT', { about, default: 8080 });
  read.string('NAME', { about, required: 'always', default: undefined });
  t.deepEqual(read.declarations, [
    {
      ...{ variable: 'PORT', expected: 'a port number, 0 to 65535', section: 'Addresses' },
      ...{ about, default: 8080 },
    },
    {
      ...{ variable: 'NAME', expected: 'text', section: '', required: 'always' },
      ...{ about, default: undefined },
    },
  ]);
  t.deepEqual(
    read.problems.map(({ variable }) => variable),
    ['PORT'],
  );
});

test('names of variables › a name that nothing reads is told, with the one that was meant', t => {
  const env = {
    MATTING_PROFIL: 'small',
    MATTING_SYNC_WAIT: '5',
    MATTING_FLUX_CAPACITOR: 'on',
    MATTING_PORT: '8080',
    MATTING_TEST_SEED: '7',
    MATTINGS: 'not ours',
    PATH: '/bin',
  };
  const names =
    'MATTING_FLUX_CAPACITOR, MATTING_PROFIL (MATTING_PROFILE?), MATTING_SYNC_WAIT (MATTING_SYNC_WAIT_MS?)';
  t.deepEqual(warnOfVariables(env), [`variables that nothing reads: ${names}`]);
});

test('names of variables › one of an earlier release is refused by name, with what to do instead', t => {
  const variable = 'MATTING_DIRECT_STORAGE';
  const error = t.throws(() => new EnvReader({ [variable]: 'a-value' }).requireValid());
  t.regex(error.message, /MATTING_DIRECT_STORAGE must be taken out: files of nodes go through/);
  t.notRegex(error.message, /a-value/);
  t.deepEqual(warnOfVariables({ [variable]: 'true' }), []);
  t.notThrows(() => new EnvReader({ [variable]: '' }).requireValid());
  const page = readFileSync(new URL('../../docs/operate.md', import.meta.url), 'utf8');
  for (const left of Object.keys(LEFT_VARIABLES)) {
    t.true(!MATTING_VARIABLES.includes(left) && page.includes(`\`${left}\``), left);
  }
});

test('names of variables › the line has names and never a value', t => {
  const lines = warnOfVariables({ MATTING_NODE_TOKN: 'token-of-sixteen' });
  t.deepEqual(lines, ['variables that nothing reads: MATTING_NODE_TOKN (MATTING_NODE_TOKEN?)']);
  t.deepEqual(warnOfVariables({ MATTING_NODE_TOKEN: 'token-of-sixteen' }), []);
});

test('names of variables › a secret of an example is told, and never shown', t => {
  const line = 'MATTING_OPERATOR_KEY contains a placeholder: take openssl rand -hex 32';
  t.deepEqual(warnOfVariables({ MATTING_OPERATOR_KEY: 'A-LONG-RANDOM-TOKEN' }), [line]);
  const file = { MATTING_TLS_KEY_FILE: '/example/key.pem' };
  t.deepEqual(warnOfVariables(file), []);
});

test('names of variables › what only this machine reaches', t => {
  for (const host of ['127.0.0.1', '127.8.9.1', '::1', 'localhost']) t.true(isLoopback(host));
  for (const host of ['0.0.0.0', '::', '10.0.0.1', 'db.internal', '']) t.false(isLoopback(host));
});

test('a network › one network, however its addresses are written', t => {
  t.is(networkOf('192.0.2.7'), '192.0.2.7');
  t.is(networkOf('::ffff:192.0.2.7'), '192.0.2.7');
  const written = ['2001:db8:0:1::5', '2001:0DB8:0000:0001:ffff::', '2001:db8:0:1:0:0:192.0.2.7'];
  t.deepEqual(new Set(written.map(networkOf)), new Set(['2001:db8:0:1']));
  t.is(networkOf('::1'), '0:0:0:0');
  t.is(networkOf('fe80::1%eth0'), 'fe80:0:0:0');
  t.not(networkOf('2001:db8:0:2::5'), '2001:db8:0:1');
});

test('a network › what is no address stays what it is', t => {
  for (const text of ['', 'unknown', '203.0.113.9:4711']) t.is(networkOf(text), text);
});

test('a directory › a file in the way is ENOTDIR', t => {
  const file = path.join(root, 'file');
  writeFileSync(file, '');
  t.throws(() => makeDirectory(file), { code: 'ENOTDIR' });
  t.throws(() => makeDirectory(path.join(file, 'a', 'b')), { code: 'ENOTDIR' });
});

test.runIf(existsSync('/proc/self'))(
  'a directory › a parent that can have no children ends, where recursive mkdir loops',
  t => {
    t.throws(() => makeDirectory('/proc/matting/data'), { code: 'ENOENT' });
  },
);

test('a directory › makes all that is missing with the rights asked for, and is content with what is there', t => {
  const deep = path.join(root, 'a', 'b', 'c');
  makeDirectory(deep, 0o700);
  makeDirectory(deep, 0o755);
  t.is(statSync(path.join(root, 'a')).mode & 0o777, 0o700);
  t.is(statSync(deep).mode & 0o777, 0o700);
});

test('signals › a signal that comes again within a second is one, a later one hurries', t => {
  const gate = new SignalGate();
  const read = [5000, 5010, 5999, 7000].map(nowMs => gate.read(nowMs));
  t.deepEqual(read, ['drain', 'repeat', 'repeat', 'hurry']);
});

test('files › a reason names the user that needs the right', t => {
  const denied = Object.assign(new Error('secret place'), { code: 'EACCES' });
  const user = process.getuid?.() === 0 ? 'root' : '.+';
  t.regex(whyUnreadable(denied), new RegExp(`^EACCES: the user ${user} needs the right to read`));
  t.is(whyUnreadable(new Error('secret place')), 'unknown error');
});
