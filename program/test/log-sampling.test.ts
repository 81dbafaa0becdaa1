import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { LogSampler, parseLogSampling } from '../log-sampling.ts';

test('two whole numbers are a sampling, and nothing else is', t => {
  t.deepEqual(parseLogSampling('100/50'), { first: 100, thereafter: 50 });
  t.deepEqual(parseLogSampling('1/1000000'), { first: 1, thereafter: 1_000_000 });
  for (const text of ['100', '0/1', '1/0', '-1/2', '1/2/3', '1.5/2', '1/1000001', 'all']) {
    t.is(parseLogSampling(text), undefined, text);
  }
});

test('of each message a second has its first lines, then some', t => {
  let nowMs = 0;
  const sampler = new LogSampler({ first: 3, thereafter: 4 }, () => nowMs);
  const keptOf = (message: string, lines: number) =>
    Array.from({ length: lines }, () => sampler.keeps(message)).filter(Boolean).length;
  t.is(keptOf('often', 15), 3 + 3);
  t.is(keptOf('rare', 3), 3);
  nowMs = 999;
  t.is(keptOf('often', 3), 0);
  nowMs = 1000;
  t.is(keptOf('often', 3), 3);
  t.deepEqual(sampler.takeLeftOut(), [{ of: 'often', lines: 12 }]);
  t.deepEqual(sampler.takeLeftOut(), []);
});

test('messages that are put together take no memory without end', t => {
  const sampler = new LogSampler({ first: 1, thereafter: 1_000_000 }, () => 0);
  const keptTwice = Array.from({ length: 2000 }, (_, index) => {
    const message = `message ${index}`;
    return sampler.keeps(message) && sampler.keeps(message);
  }).filter(Boolean).length;
  t.is(keptTwice, 2000 - 512);
});

test('a log leaves out what repeats, below errors, and says so at its end', async t => {
  const program = `
    import { createLog } from ${JSON.stringify(path.resolve(import.meta.dirname, '../log.ts'))};
    const sampling = { first: 2, thereafter: 1000000 };
    const log = createLog({ level: 'info', batchBytes: 4096, base: { program: 'x' }, sampling });
    for (let i = 0; i < 10; i += 1) {
      log.child({ reqId: String(i) }).info({ i }, 'often');
      for (const message of ['too', 'three', 'four']) log.info(message);
      log.debug('never');
      log.error({ i }, 'wrong');
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
  t.deepEqual([countOf('often'), countOf('wrong'), countOf('alone')], [2, 10, 1]);
  const said = lines
    .slice(-4)
    .map(({ level, msg, of, lines: leftOut }) => [level, msg, of, leftOut]);
  t.deepEqual(
    said,
    ['often', 'too', 'three', 'four'].map(of => [40, 'log lines were left out', of, 8]),
  );
});
