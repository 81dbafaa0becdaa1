import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { INPUT_FORMATS, OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import { pictureMemoryBytes } from '@matting/proto/contract/picture-memory.ts';
import test from 'ava';
import { budgetFor, RESIDENT_BYTES_BUDGET, readCpuMs } from './budgets.ts';
import { LeaseQueue } from './pool/lease-queue.ts';
import { workerWaitMs } from './pool/picture-pool.ts';
import { FormatRates } from './pool/picture-rates.ts';
import { isWorthRunning } from './unsure-share.ts';

test('a budget grows with the picture', t => {
  const budget = { base: 100, perMegapixel: 10 };
  t.deepEqual(
    [0, 0.5, 100].map(megapixels => budgetFor(budget, megapixels)),
    [100, 105, 1100],
  );
});

test('the processor time of a process is read, that of one that is gone is not', t => {
  const { pid: gone } = spawnSync(process.execPath, ['--version']);
  t.is(readCpuMs(gone), undefined);
  const before = readCpuMs(process.pid);
  const { user, system } = process.cpuUsage();
  if (existsSync('/proc/self/stat')) {
    t.true(Math.abs((before ?? Number.NaN) - (user + system) / 1000) < 100);
  }
});

test('a rate follows the last pictures, and a tiny one hardly moves it', t => {
  const rate = new FormatRates().all;
  t.is(rate.msPerMegapixel, 0);
  for (let i = 0; i < 10; i++) rate.add(200, { width: 1000, height: 2000 });
  t.is(rate.msPerMegapixel, 100);
  rate.add(5, { width: 1, height: 1 });
  t.true(rate.msPerMegapixel < 102);
  for (let i = 0; i < 20; i++) rate.add(600, { width: 1000, height: 2000 });
  t.true(rate.msPerMegapixel > 290);
});

test('an entry that was taken out of the queue ignores its signal', async t => {
  const queue = new LeaseQueue<number>();
  const controller = new AbortController();
  const first = queue.wait('async', controller.signal);
  const second = queue.wait('async', controller.signal);
  queue.shift()?.resolve(1);
  controller.abort(new Error('too late for one'));
  t.is(await first, 1);
  await t.throwsAsync(second, { message: /too late/ });
  t.is(queue.shift(), undefined);
  const third = queue.wait('sync', new AbortController().signal);
  for (const { reject } of queue.drain()) reject(new Error('closing'));
  await t.throwsAsync(third, { message: /closing/ });
  t.is(queue.length, 0);
});

test('the wait for a picture worker › is none while one is free', t => {
  t.is(workerWaitMs(1, [], []), 0);
  t.is(workerWaitMs(2, [{ elapsedMs: 0, expectedMs: 900 }], []), 0);
});

test('the wait for a picture worker › is the remaining time of the first to end, and the queue before', t => {
  const held = [
    { elapsedMs: 100, expectedMs: 900 },
    { elapsedMs: 100, expectedMs: 400 },
  ];
  t.is(workerWaitMs(2, held, []), 300);
  t.is(workerWaitMs(2, held, [200]), 500);
  t.is(workerWaitMs(2, held, [200, 400]), 800);
});

test('the wait for a picture worker › never runs out while an image outlasts what was expected of it', t => {
  t.is(workerWaitMs(1, [{ elapsedMs: 1000, expectedMs: 400 }], []), 200);
  t.is(workerWaitMs(1, [{ elapsedMs: 390, expectedMs: 400 }], []), 78);
});

const RESULTS = OUTPUT_FORMATS.flatMap(format =>
  (['cutout', 'mask'] as const).map(kind => [format, kind] as const),
);

test('more pixels never cost less, and an unknown input costs the most', t => {
  for (const [outputFormat, resultKind] of RESULTS) {
    const unknown = (pixels: number) =>
      pictureMemoryBytes({ inputFormat: undefined, outputFormat, resultKind, pixels });
    for (const inputFormat of INPUT_FORMATS) {
      let before = 0;
      for (let pixels = 0; pixels <= 100e6; pixels += 0.5e6) {
        const bytes = pictureMemoryBytes({ inputFormat, outputFormat, resultKind, pixels });
        t.true(bytes >= before && bytes <= unknown(pixels));
        before = bytes;
      }
    }
  }
});

test('a picture’s memory bound is well above its need', t => {
  for (const [outputFormat, resultKind] of RESULTS) {
    for (const megapixels of [1, 12, 40, 41, 100]) {
      const pixels = megapixels * 1e6;
      const cost = { inputFormat: undefined, outputFormat, resultKind, pixels };
      const budget = budgetFor(RESIDENT_BYTES_BUDGET, megapixels);
      t.true(pictureMemoryBytes(cost) * 1.4 < budget, `${outputFormat} at ${megapixels} MP`);
    }
  }
});

test('finishing costs no less for a larger result or background, and never more than is let be', t => {
  const megapixels = [0, 0.1, 12, 40, 100];
  for (const [outputFormat, resultKind] of RESULTS) {
    for (const input of megapixels) {
      const before = { frame: 0, behind: 0 };
      for (const frame of megapixels) {
        for (const behind of [0, 1, 25]) {
          const finishing = {
            framePixels: frame * 1e6,
            background: { inputFormat: undefined, pixels: behind * 1e6 },
          };
          const cost = { inputFormat: undefined, outputFormat, resultKind, pixels: input * 1e6 };
          const bytes = pictureMemoryBytes({ ...cost, finishing });
          const budget = budgetFor(RESIDENT_BYTES_BUDGET, input + frame + behind);
          t.true(bytes * 1.3 < budget, `${outputFormat} of ${input}, ${frame}, ${behind} MP`);
          t.true(bytes >= before.behind);
          before.behind = bytes;
        }
        t.true(before.behind >= before.frame);
        before.frame = before.behind;
        before.behind = 0;
      }
    }
  }
});

const PIXELS = 70_000;

/** Spreads `unsure` half opaque pixels evenly over each hundred visible ones. */
function matteOf(shown: number, unsure: number): Uint8Array {
  return Uint8Array.from({ length: PIXELS }, (_, i) => {
    if (i >= shown) return 0;
    return (i * 37) % 100 < unsure ? 128 : 255;
  });
}

test('a further run › depends on how much of what is visible is unsure, an opinion on less of it', t => {
  const even = (value: number) => new Uint8Array(PIXELS).fill(value);
  for (const [name, matte, opinion, secondLook] of [
    ['no pixel', new Uint8Array(0), false, false],
    ['empty', even(0), false, false],
    ['nearly empty', even(5), false, false],
    ['sure', even(255), false, false],
    ['6 of 100 of a few', matteOf(2_000, 6), false, false],
    ['6 of 100 of all', matteOf(PIXELS, 6), false, false],
    ['11 of 100', matteOf(PIXELS, 11), true, false],
    ['14 of 100 of a few', matteOf(2_000, 14), true, true],
    ['14 of 100 of all', matteOf(PIXELS, 14), true, true],
    ['unsure everywhere', even(90), true, true],
  ] as const) {
    t.is(isWorthRunning('opinion', matte), opinion, name);
    t.is(isWorthRunning('secondLook', matte), secondLook, name);
    t.true(isWorthRunning('subject', matte), name);
  }
});

test('a further run › depends on what lies in a buffer now, not on what it held before', t => {
  const buffer = matteOf(PIXELS, 6);
  t.false(isWorthRunning('opinion', buffer));
  buffer.set(matteOf(PIXELS, 14));
  t.true(isWorthRunning('opinion', buffer));
  t.true(isWorthRunning('secondLook', buffer));
  buffer.set(matteOf(PIXELS, 6));
  t.false(isWorthRunning('opinion', buffer));
});
