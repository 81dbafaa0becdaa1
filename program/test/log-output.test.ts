import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import test from 'ava';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { LogOutput } from '../log-output.ts';

/** Every write to it fails with ENOSPC. */
const FULL = '/dev/full';
const MODULE = path.resolve(import.meta.dirname, '../log-output.ts');
const PINO = path.resolve(import.meta.dirname, '../../node_modules/pino/pino.js');

const folder = await temporaryFolder({ teardown: test.after.always });

const flushed = (output: LogOutput) => new Promise<void>(resolve => output.flush(resolve));

for (const batchBytes of [0, 4096]) {
  test(`a fatal line on a full disk does not hold the program, batches of ${batchBytes}`, async t => {
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

  test(`every line comes out once and in order, batches of ${batchBytes}`, async t => {
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

test('what a full disk lost is told with the first lines that can be written', async t => {
  const fd = openSync(FULL, 'w');
  const output = new LogOutput({ fd, batchBytes: 1, base: { program: 'x' } });
  for (let i = 0; i < 3; i++) output.write('{"lost":true}\n');
  await flushed(output);
  output.write('{"lost":true}\n');
  await flushed(output);
  // The system gives out the lowest number that is free: the same place, with room again.
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

test('a reader that stands still is waited for within a bound, and told what it missed', async t => {
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
  const told = lines
    .filter(text => text.startsWith('{"level"'))
    .map(text => JSON.parse(text).lines);
  const kept = lines.filter(text => text === line.trimEnd()).length;
  t.true(kept < written, 'the pipe never was full');
  t.is(kept + told.reduce((sum, n) => sum + n, 0), written);
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
