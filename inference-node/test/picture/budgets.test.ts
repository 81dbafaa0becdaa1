import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { budgetFor, readCpuMs } from '../../src/picture/budgets.ts';
import { LeaseQueue } from '../../src/picture/pool/lease-queue.ts';
import { MegapixelRate } from '../../src/picture/pool/megapixel-rate.ts';

test('a budget grows with the picture', () => {
  const budget = { base: 100, perMegapixel: 10 };
  assert.deepEqual(
    [0, 0.5, 100].map(megapixels => budgetFor(budget, megapixels)),
    [100, 105, 1100],
  );
});

test('the processor time of a process is read, that of one that is gone is not', t => {
  const { pid: gone } = spawnSync(process.execPath, ['--version']);
  assert.equal(readCpuMs(gone), undefined);
  const before = readCpuMs(process.pid);
  if (before === undefined) return t.skip('no /proc here');
  const { user, system } = process.cpuUsage();
  assert.ok(Math.abs(before - (user + system) / 1000) < 100);
});

test('a rate follows the last pictures, and a tiny one hardly moves it', () => {
  const rate = new MegapixelRate();
  assert.equal(rate.msPerMegapixel, 0);
  for (let i = 0; i < 10; i++) rate.add(200, { width: 1000, height: 2000 });
  assert.equal(rate.msPerMegapixel, 100);
  rate.add(5, { width: 1, height: 1 });
  assert.ok(rate.msPerMegapixel < 102);
  for (let i = 0; i < 20; i++) rate.add(600, { width: 1000, height: 2000 });
  assert.ok(rate.msPerMegapixel > 290);
});

test('an entry that was taken out of the queue ignores its signal', async () => {
  const queue = new LeaseQueue<number>();
  const controller = new AbortController();
  const first = queue.wait('async', controller.signal);
  const second = queue.wait('async', controller.signal);
  queue.shift()?.resolve(1);
  controller.abort(new Error('too late for one'));
  assert.equal(await first, 1);
  await assert.rejects(second, /too late/);
  assert.equal(queue.shift(), undefined);
  const third = queue.wait('sync', new AbortController().signal);
  for (const { reject } of queue.drain()) reject(new Error('closing'));
  await assert.rejects(third, /closing/);
  assert.equal(queue.length, 0);
});
