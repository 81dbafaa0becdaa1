import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { findProgram } from '@matting/test-support/foreign-program.ts';
import { until } from '@matting/test-support/processes.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test from 'ava';
import { LogOutput, RepeatedFailures } from '../log.ts';

const folder = await temporaryFolder({ teardown: test.after.always });

/** Every write fails with ENOSPC. */
const FULL = '/dev/full';
const MODULE = path.resolve(import.meta.dirname, '../log.ts');
const PINO = path.resolve(import.meta.dirname, '../../node_modules/pino/pino.js');

const flushed = (output: LogOutput) => new Promise<void>(resolve => output.flush(resolve));

for (const batchBytes of [0, 4096]) {
  test(`output › a fatal line on a full disk does not hold the program, batches of ${batchBytes}`, async t => {
    const program = `
      import pino from ${JSON.stringify(PINO)};
      import { LogOutput } from ${JSON.stringify(MODULE)};
      const log = pino({}, new LogOutput({ fd: 1, batchBytes: ${batchBytes}, base: {} }));
      for (let i = 0; i < 1000; i++) log.info('a line');
      log.fatal('the last one');
      log.flush(() => process.exit(7));`;
    const full = openSync(FULL, 'w');
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', full, 'inherit'],
    });
    closeSync(full);
    const ended = new Promise<number | null>(resolve => child.once('exit', resolve));
    const code = await Promise.race([ended, delay(30_000, 'it stands still', { ref: false })]);
    child.kill('SIGKILL');
    t.is(code, 7);
  });

  test(`output › every line comes out once and in order, batches of ${batchBytes}`, async t => {
    const file = path.join(folder, `all-${batchBytes}.log`);
    const fd = openSync(file, 'a');
    const output = new LogOutput({ fd, batchBytes, base: {} });
    const lines = Array.from({ length: 5000 }, (_, i) => `{"line":${i}}\n`);
    for (const [i, line] of lines.entries()) {
      output.write(line);
      if (i % 1000 === 0) await delay(1);
    }
    await flushed(output);
    t.is(readFileSync(file, 'utf8'), lines.join(''));
    closeSync(fd);
  });
}

test('output › what a full disk lost is told with the first lines that can be written', async t => {
  const fd = openSync(FULL, 'w');
  const output = new LogOutput({ fd, batchBytes: 1, base: { program: 'x' } });
  for (let i = 0; i < 3; i++) output.write('{"lost":true}\n');
  await flushed(output);
  output.write('{"lost":true}\n');
  await flushed(output);
  // The system reuses the lowest free number, so the output continues with a working file.
  closeSync(fd);
  const file = path.join(folder, 'room-again.log');
  t.is(openSync(file, 'a'), fd);
  output.write('{"kept":true}\n');
  await flushed(output);
  const [loss = '', kept, ...rest] = readFileSync(file, 'utf8').split('\n');
  t.deepEqual([kept, ...rest], ['{"kept":true}', '']);
  const { level, program, lines } = JSON.parse(loss);
  t.deepEqual({ level, program, lines }, { level: 40, program: 'x', lines: 4 });
  closeSync(fd);
});

test('output › a reader that stands still is waited for within a bound, and told what it missed', async t => {
  const fifo = path.join(folder, 'fifo');
  execFileSync('mkfifo', [fifo]);
  const fd = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  const output = new LogOutput({ fd, batchBytes: 1, bufferBytesMax: 1000, base: {} });
  const line = `${'x'.repeat(99)}\n`;
  const written = 5000;
  for (let i = 0; i < written; i++) {
    output.write(line);
    if (i % 10 === 0) await delay(0);
  }
  const flushing = flushed(output);
  let read = '';
  const chunk = Buffer.alloc(64 * 1024);
  let done = false;
  void flushing.then(() => {
    done = true;
  });
  for (let idle = 0; !done || idle < 2; idle++) {
    for (let bytes = 1; bytes > 0; ) {
      bytes = tryRead(fd, chunk);
      read += chunk.toString('latin1', 0, bytes);
    }
    await delay(20);
  }
  output.write('{"after":true}\n');
  await flushed(output);
  read += chunk.toString('latin1', 0, tryRead(fd, chunk));
  const lines = read.trimEnd().split('\n');
  const reported = lines
    .filter(text => text.startsWith('{"level"'))
    .map(text => JSON.parse(text).lines);
  const kept = lines.filter(text => text === line.trimEnd()).length;
  t.true(kept < written, 'the pipe never was full');
  t.is(kept + reported.reduce((sum, n) => sum + n, 0), written);
  t.is(lines.at(-1), '{"after":true}');
  closeSync(fd);
});

function tryRead(fd: number, chunk: Buffer): number {
  try {
    return readSync(fd, chunk);
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'EAGAIN');
    return 0;
  }
}

const ROOT = path.resolve(import.meta.dirname, '../..');
const CONFIG = readFileSync(path.join(ROOT, 'deploy/logrotate/matting'), 'utf8');
const LINES = 20_000;
const PACED_LINES = 20;

/** undefined: logrotate is missing, and the test copies and truncates itself. */
const logrotate = findProgram('logrotate');

function rotate(log: string): void {
  if (logrotate === undefined) {
    copyFileSync(log, `${log}.1`);
    truncateSync(log, 0);
    return;
  }
  const config = path.join(folder, 'logrotate.conf');
  assert.match(CONFIG, /^\/var\/log\/matting\/\*\.log \{$/m);
  writeFileSync(config, CONFIG.replace('/var/log/matting/*.log', log));
  // logrotate refuses a configuration that others may write.
  chmodSync(config, 0o600);
  execFileSync(logrotate, ['--force', '--state', path.join(folder, 'state'), config]);
}

for (const batchBytes of [0, 4096]) {
  test(`rotation › a log that is rotated goes on, no line torn, batches of ${batchBytes}`, async t => {
    const log = path.join(folder, `program-${batchBytes}.log`);
    const program = `
      import { createLog } from ${JSON.stringify(path.resolve(import.meta.dirname, '../log.ts'))};
      const log = createLog({ level: 'info', batchBytes: ${batchBytes}, base: { program: 'x' } });
      for (let i = 0; i < ${LINES}; i += 1) {
        log.info({ i }, 'a line');
        if (i % ${PACED_LINES} === 0) await new Promise(resolve => setImmediate(resolve));
      }
      log.flush(() => process.exit(0));`;
    const fd = openSync(log, 'a');
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', fd, 'inherit'],
    });
    closeSync(fd);
    const ended = once(child, 'exit');
    await until(() => readFileSync(log, 'utf8').length > 10_000, {
      timeoutMs: 60_000,
      what: 'lines to rotate',
    });
    rotate(log);
    t.deepEqual(await ended, [0, null]);
    const files = readdirSync(folder).filter(name => name.startsWith(path.basename(log)));
    t.is(files.length, 2, String(files));
    // The first file has whole earlier lines. Truncation loses some and repeats none.
    const numbers = files
      .sort((a, b) => b.length - a.length)
      .flatMap(name => readFileSync(path.join(folder, name), 'utf8').split('\n'))
      .filter(line => line !== '')
      .map(line => JSON.parse(line).i as number);
    t.deepEqual(
      numbers,
      [...new Set(numbers)].sort((a, b) => a - b),
    );
    t.is(numbers[0], 0);
    t.is(numbers.at(-1), LINES - 1);
  });
}

const failed = (code: string, message = code) => Object.assign(new Error(message), { code });

test('failures › the first of each message and cause is written, the others are counted each minute', t => {
  let nowMs = 0;
  const repeats = new RepeatedFailures(() => nowMs);
  const keptOf = (message: string, err: Error, lines: number) =>
    Array.from({ length: lines }, () => repeats.keeps(message, err)).filter(Boolean).length;
  const refused = failed('ECONNREFUSED');
  t.is(keptOf('the database failed', refused, 200), 1);
  t.is(keptOf('the database failed', failed('ETIMEDOUT'), 3), 1);
  t.is(keptOf('not readable', new Error('unavailable', { cause: refused }), 5), 1);
  t.is(keptOf('not readable', new Error('unavailable', { cause: refused }), 5), 0);
  nowMs = 60_000;
  const reported = [
    { of: 'the database failed', cause: 'ECONNREFUSED', lines: 199 },
    { of: 'the database failed', cause: 'ETIMEDOUT', lines: 2 },
    { of: 'not readable', cause: 'ECONNREFUSED', lines: 9 },
  ];
  t.deepEqual(repeats.takeLeftOut(), reported);
  t.is(keptOf('the database failed', refused, 100), 0, 'it goes on');
  nowMs = 120_000;
  t.deepEqual(repeats.takeLeftOut(), [{ ...reported[0], lines: 100 }]);
  nowMs = 180_000;
  t.deepEqual(repeats.takeLeftOut(), []);
  t.is(keptOf('the database failed', refused, 5), 1, 'it was over, and comes back');
  t.deepEqual(repeats.takeLeftOut(), [{ ...reported[0], lines: 4 }]);
});

test('failures › one that comes just before the minute ends is not told in full again', t => {
  let nowMs = 59_999;
  const repeats = new RepeatedFailures(() => nowMs);
  t.true(repeats.keeps('the database failed', failed('ECONNREFUSED')));
  nowMs = 60_000;
  t.deepEqual(repeats.takeLeftOut(), []);
  t.false(repeats.keeps('the database failed', failed('ECONNREFUSED')));
});

test('failures › an error that is its own cause, and one with a long message, have an end', t => {
  const repeats = new RepeatedFailures(() => 0);
  const endless = new Error('endless');
  endless.cause = new Error('other', { cause: endless });
  t.true(repeats.keeps('failed', endless));
  t.false(repeats.keeps('failed', endless));
  const long = new Error('x'.repeat(1_000_000));
  t.true(repeats.keeps('failed', long));
  t.false(repeats.keeps('failed', long));
  t.deepEqual(
    repeats.takeLeftOut().map(({ cause = '' }) => cause.length),
    ['endless'.length, 200],
  );
});

test('failures › what has no code is known by its words, and takes no memory without end', t => {
  let nowMs = 0;
  const repeats = new RepeatedFailures(() => nowMs);
  t.true(repeats.keeps('failed', new Error('one')));
  t.true(repeats.keeps('failed', new Error('another')));
  t.false(repeats.keeps('failed', new Error('one')));
  for (let i = 0; i < 2000; i += 1) repeats.keeps('failed', new Error(`picture ${i}`));
  t.true(repeats.keeps('failed', new Error('picture 1999')), 'all is written beyond the bound');
  nowMs = 60_000;
  repeats.takeLeftOut();
  nowMs = 120_000;
  repeats.takeLeftOut();
  t.true(repeats.keeps('failed', new Error('one')));
  t.false(repeats.keeps('failed', new Error('one')), 'there is room again');
});

test('failures › a log leaves out those that repeat, below errors, and says so at its end', async t => {
  const program = `
    import { createLog } from ${JSON.stringify(path.resolve(import.meta.dirname, '../log.ts'))};
    const log = createLog({ level: 'info', batchBytes: 4096, base: { program: 'x' } });
    for (let i = 0; i < 10; i += 1) {
      log.child({ reqId: String(i) }).info({ i }, 'often');
      log.warn({ err: 'no error' }, 'text');
      log.debug('never');
      log.error({ i, err: new Error('wrong') }, 'wrong');
      log.warn({ i, err: Object.assign(new Error('away'), { code: 'ECONNREFUSED' }) }, 'failed');
    }
    log.warn('alone');
    log.flush(() => process.exit(0));`;
  const args = ['--input-type=module', '-e', program];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line));
  const countOf = (msg: string) => lines.filter(line => line.msg === msg).length;
  const counts = ['often', 'text', 'wrong', 'alone', 'failed'].map(countOf);
  t.deepEqual(counts, [10, 10, 10, 1, 1]);
  const { msg, of, cause, lines: leftOut } = lines.at(-1);
  t.deepEqual([msg, of, cause, leftOut], ['log lines were left out', 'failed', 'ECONNREFUSED', 9]);
});
