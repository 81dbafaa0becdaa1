/** deploy/logrotate/matting on the log of a program that goes on writing, by logrotate itself. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  copyFileSync,
  openSync,
  readdirSync,
  readFileSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { findProgram } from '../../test/support/foreign-program.ts';
import { until } from '../../test/support/running-service.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const CONFIG = readFileSync(path.join(ROOT, 'deploy/logrotate/matting'), 'utf8');
const LINES = 20_000;
const PACED_LINES = 20;

const folder = await temporaryFolder({ teardown: test.after.always });

/** Undefined where logrotate is not installed: then its copy and its cut are made here. */
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
  // It takes no configuration that others may write.
  chmodSync(config, 0o600);
  execFileSync(logrotate, ['--force', '--state', path.join(folder, 'state'), config]);
}

for (const batchBytes of [0, 4096]) {
  test(`a log that is rotated goes on, no line torn, batches of ${batchBytes}`, async t => {
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
    // The first file has the earlier lines, each whole; the cut loses some, and repeats none.
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
