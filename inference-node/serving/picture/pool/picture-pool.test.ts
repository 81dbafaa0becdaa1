import { OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import { at } from '@matting/test-support/at.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import pino from 'pino';
import sharp from 'sharp';
import {
  asSharp,
  claimPngSize,
  paint,
  paintSlope,
  readRgba,
  writeJxl,
} from '../../test/pictures.ts';
import { isAlive, stop, until } from '../../test/processes.ts';
import { boxInInput } from '../run-input.ts';
import { openPicturePool, type PicturePoolOptions } from './open-picture-pool.ts';
import type { DecodeRequest, PictureLease, PicturePool, PictureWorkerEnd } from './picture-pool.ts';

const test = ava.serial;

const NEVER = new AbortController().signal;
const MODEL_SIZE = { width: 16, height: 16 };
/** More than any picture of these tests takes. */
const ENOUGH = 2 ** 40;
const ALPHA = Buffer.alloc(16 * 16, 255);

const slopePng = await asSharp(paintSlope(40, 30)).png().toBuffer();
const slopeJxl = await writeJxl(paintSlope(40, 30));
/** 36 megapixels in 100 KB: the watch reads several times. */
// Interlacing takes four times as long.
const heavyPng = await sharp({
  create: { width: 6_000, height: 6_000, channels: 3, background: '#4a6' },
})
  .png({ compressionLevel: 1, progressive: true })
  .toBuffer();
const blue = paint(20, 30, 3, () => [0, 0, 255]);
const jpeg = await asSharp(blue).jpeg({ quality: 100 }).toBuffer();
const jpegBehind = { file: jpeg, declared: undefined };

async function openPool(
  t: ExecutionContext,
  options: Partial<PicturePoolOptions> = {},
): Promise<PicturePool> {
  const log = pino({ level: 'silent' });
  const pool = await openPicturePool({ workers: 1, childEnv: CACHE_ENV, log, ...options });
  t.teardown(() => pool.close(0));
  return pool;
}

/** Tests shrink one of them. */
const limits = {
  cpuMs: { base: ENOUGH, perMegapixel: 0 },
  wallMs: { base: ENOUGH, perMegapixel: 0 },
  residentBytes: { base: ENOUGH, perMegapixel: 0 },
};
/** Starting a worker takes longer than most tests. */
let pool: PicturePool;
let endsBefore: Readonly<Record<PictureWorkerEnd, number>>;

test.before(async () => {
  const log = pino({ level: 'silent' });
  pool = await openPicturePool({ workers: 1, childEnv: CACHE_ENV, log, limits });
});
test.beforeEach(() => {
  endsBefore = pool.ends();
});
test.after.always(() => pool?.close(0));

async function leaseOf(from: PicturePool) {
  const lease = await from.acquire('sync', NEVER);
  return { lease, pid: onlyPid(from) };
}

function decode(lease: PictureLease, file: Buffer = slopePng, signal = NEVER) {
  return lease.decode({ file, declared: undefined, modelInputs: [MODEL_SIZE] }, signal);
}

function finish(lease: PictureLease, outputFormat: (typeof OUTPUT_FORMATS)[number] = 'png') {
  const mattes = [{ alpha: ALPHA, size: MODEL_SIZE, role: 'subject' }] as const;
  const choices = { refinement: true, foregroundEstimation: true, outputFormat } as const;
  return lease.finish({ mattes, ...choices, resultKind: 'cutout' }, NEVER);
}

function onlyPid(pool: PicturePool): number {
  return at(pool.processes(), 0).pid;
}

const untilGone = (pid: number) => until(`process ${pid} is gone`, () => !isAlive(pid));

/** The pool works after a failure, with one more end of this kind. */
async function requireRecovery(t: ExecutionContext, end: PictureWorkerEnd): Promise<void> {
  const lease = await pool.acquire('sync', NEVER);
  await decode(lease);
  const { width, height } = await finish(lease);
  t.deepEqual([width, height], [40, 30]);
  lease.release();
  t.deepEqual(pool.ends(), { ...endsBefore, [end]: endsBefore[end] + 1 });
}

const LOST = { name: 'ContractError', code: 'PICTURE_WORKER_LOST', retryable: true };
const IMAGE_FAULT = { name: 'ContractError', code: 'PROCESSING_FAILED', retryable: false };

test('a worker killed over a decode loses its image, and is replaced', async t => {
  const { lease, pid } = await leaseOf(pool);
  // Stopped, it cannot answer before it is killed.
  await stop(pid);
  const decoding = decode(lease);
  process.kill(pid, 'SIGKILL');
  await rejectsWith(t, decoding, LOST);
  await rejectsWith(t, finish(lease), LOST);
  lease.release();
  await requireRecovery(t, 'image');
});

test('a worker killed over an image during inference loses it, and is replaced', async t => {
  const { lease, pid } = await leaseOf(pool);
  await decode(lease);
  process.kill(pid, 'SIGKILL');
  await untilGone(pid);
  await rejectsWith(t, finish(lease), LOST);
  lease.release();
  await requireRecovery(t, 'image');
});

test('waiting images are refused when every worker dies before it is ready, and the pool recovers', async t => {
  const childEnv: Record<string, string> = { ...CACHE_ENV };
  const own = await openPool(t, { childEnv, restartDelaysMs: [50] });
  // From now on each worker ends at its start.
  childEnv.NODE_OPTIONS = '--no-such-option';
  process.kill(onlyPid(own), 'SIGKILL');
  await until('the end of an idle worker', () => own.ends().idle > 0);
  await t.throwsAsync(own.acquire('sync', NEVER), { code: 'NODE_OVERLOADED' });
  delete childEnv.NODE_OPTIONS;
  const lease = await own.acquire('sync', NEVER);
  t.is((await decode(lease)).width, 40);
  lease.release();
});

test('a worker killed without an image is replaced', async t => {
  const pid = onlyPid(pool);
  process.kill(pid, 'SIGKILL');
  await until('the end of an idle worker', () => pool.ends().idle > endsBefore.idle);
  await untilGone(pid);
  await requireRecovery(t, 'idle');
});

test('an image over its processor time is the image’s fault', async t => {
  const { lease } = await leaseOf(pool);
  limits.cpuMs.base = 10;
  await rejectsWith(t, decode(lease, heavyPng), IMAGE_FAULT);
  lease.release();
  limits.cpuMs.base = ENOUGH;
  await requireRecovery(t, 'time_budget');
});

test('an image whose worker stalls is not at fault', async t => {
  const { lease, pid } = await leaseOf(pool);
  await stop(pid);
  limits.wallMs.base = 100;
  await rejectsWith(t, decode(lease), LOST);
  lease.release();
  limits.wallMs.base = ENOUGH;
  await requireRecovery(t, 'stalled');
});

test('an image over its memory is the image’s fault', async t => {
  const { residentBytes } = limits;
  const { lease } = await leaseOf(pool);
  residentBytes.base = 180 * 2 ** 20;
  await decode(lease);
  await finish(lease);
  lease.release();
  const next = await pool.acquire('sync', NEVER);
  // Stopped, its memory does not grow.
  await stop(onlyPid(pool));
  residentBytes.base = 2 ** 20;
  await rejectsWith(t, decode(next), IMAGE_FAULT);
  residentBytes.base = ENOUGH;
  next.release();
  await requireRecovery(t, 'memory_budget');
});

test('an image given up while it is processed ends at once, with its worker', async t => {
  const { lease, pid } = await leaseOf(pool);
  await stop(pid);
  const controller = new AbortController();
  const decoding = decode(lease, slopePng, controller.signal);
  const reason = new Error('the caller went away');
  controller.abort(reason);
  await rejectsWith(t, decoding, reason);
  lease.release();
  await untilGone(pid);
  await requireRecovery(t, 'abandoned');
});

test('a release in the middle of a call replaces the worker', async t => {
  const { lease, pid } = await leaseOf(pool);
  await stop(pid);
  const decoding = decode(lease);
  lease.release();
  await rejectsWith(t, decoding, LOST);
  await requireRecovery(t, 'abandoned');
});

test('an image given up between decode and finish leaves its worker as it was', async t => {
  const { lease, pid } = await leaseOf(pool);
  await decode(lease);
  lease.release();
  lease.release();
  const next = await pool.acquire('sync', NEVER);
  await t.throwsAsync(finish(next), { code: 'NODE_FAULT' });
  next.release();
  t.is(onlyPid(pool), pid);
  await t.throwsAsync(decode(next), { message: /after its release/ });
});

test('a bad image does not end its worker', async t => {
  const pid = onlyPid(pool);
  const cases = [
    [Buffer.from('no picture'), 'UNSUPPORTED_IMAGE_FORMAT'],
    [slopePng.subarray(0, slopePng.length / 2), 'PROCESSING_FAILED'],
    [slopeJxl.subarray(0, slopeJxl.length - 20), 'PROCESSING_FAILED'],
  ] as const;
  for (const [file, code] of cases) {
    const lease = await pool.acquire('sync', NEVER);
    await rejectsWith(t, decode(lease, file), { code, retryable: false });
    lease.release();
  }
  const lease = await pool.acquire('sync', NEVER);
  const declared = { width: 10, height: 10 };
  const modelInputs = [MODEL_SIZE];
  await t.throwsAsync(lease.decode({ file: slopePng, declared, modelInputs }, NEVER), {
    code: 'PROCESSING_FAILED',
    message: /declared/,
  });
  lease.release();
  t.is(onlyPid(pool), pid);
});

test('every format comes out, with the inputs of several models', async t => {
  const own = await openPool(t);
  t.deepEqual(own.capabilities.outputFormats, OUTPUT_FORMATS);
  t.true(own.capabilities.jxlPixelsMax >= 12_000_000);
  t.false(own.capabilities.inputFormats.includes('heic'));
  for (const file of [slopePng, slopeJxl]) {
    for (const format of OUTPUT_FORMATS) {
      const lease = await own.acquire('async', NEVER);
      const modelInputs = [MODEL_SIZE, { width: 7, height: 9 }];
      const decoded = await lease.decode({ file, declared: undefined, modelInputs }, NEVER);
      t.deepEqual([decoded.width, decoded.height], [40, 30]);
      t.deepEqual(
        decoded.modelInputs.map(({ length }) => length),
        [16 * 16 * 3, 7 * 9 * 3],
      );
      const finished = await finish(lease, format);
      const result = await readRgba(finished.file, format);
      t.deepEqual([result.width, result.height], [40, 30]);
      t.true(decoded.decodeMs > 0 && finished.encodeMs > 0 && finished.refineMs > 0);
      lease.release();
    }
  }
  const snapshot = own.snapshot();
  const { decodeMsPerMegapixel, encodeMsPerMegapixel, busy, waiting } = snapshot;
  t.true(decodeMsPerMegapixel > 0 && encodeMsPerMegapixel > 0);
  t.deepEqual([...snapshot.decodeRates.keys()], ['png', 'jxl'], 'each format by itself');
  t.deepEqual([...snapshot.encodeRates.keys()], [...OUTPUT_FORMATS]);
  const rates = [...snapshot.decodeRates.values(), ...snapshot.encodeRates.values()];
  t.true(rates.every(rate => rate > 0));
  t.deepEqual([busy, waiting], [0, 0]);
});

test('a worker that has grown too large is replaced after its image', async t => {
  const own = await openPool(t, { limits: { idleResidentBytesMax: 1 } });
  const { lease, pid } = await leaseOf(own);
  await decode(lease);
  await finish(lease);
  lease.release();
  const next = await own.acquire('sync', NEVER);
  t.not(onlyPid(own), pid);
  t.is(own.ends().recycled, 1);
  next.release();
});

test('sync goes before async, and an image that is given up leaves the queue', async t => {
  const held = await pool.acquire('sync', NEVER);
  const order: string[] = [];
  const take = async (name: string, priority: 'sync' | 'async', signal = NEVER) => {
    const lease = await pool.acquire(priority, signal);
    order.push(name);
    lease.release();
    t.true(lease.waitMs > 0);
  };
  const gone = new AbortController();
  const taken = [
    take('async 1', 'async'),
    take('async 2', 'async'),
    take('sync 1', 'sync'),
    take('sync 2', 'sync'),
  ];
  const leaving = take('gone', 'sync', gone.signal);
  t.deepEqual([pool.snapshot().busy, pool.snapshot().waiting], [1, 5]);
  gone.abort(new Error('no longer'));
  await t.throwsAsync(leaving, { message: /no longer/ });
  t.is(pool.snapshot().waiting, 4);
  held.release();
  await Promise.all(taken);
  t.deepEqual(order, ['sync 1', 'sync 2', 'async 1', 'async 2']);
  await t.throwsAsync(pool.acquire('sync', gone.signal), { message: /no longer/ });
});

test('closing refuses, lets an image finish in its grace, and leaves no process', async t => {
  const own = await openPool(t, { workers: 2 });
  const pids = own.processes().map(({ pid }) => pid);
  const lease = await own.acquire('sync', NEVER);
  const other = await own.acquire('sync', NEVER);
  const waiting = t.throwsAsync(own.acquire('sync', NEVER), { code: 'NODE_UNAVAILABLE' });
  const closed = own.close(60_000);
  await waiting;
  await t.throwsAsync(own.acquire('sync', NEVER), { code: 'NODE_UNAVAILABLE' });
  await decode(lease);
  await finish(lease);
  lease.release();
  other.release();
  await closed;
  t.deepEqual(own.processes(), []);
  for (const pid of pids) await untilGone(pid);
});

test('closing without grace ends the image inside', async t => {
  const own = await openPool(t);
  const { lease, pid } = await leaseOf(own);
  await stop(pid);
  const decoding = t.throwsAsync(decode(lease), { code: 'NODE_UNAVAILABLE' });
  const slow = own.close(60_000);
  await own.close(0);
  await Promise.all([slow, decoding]);
  await untilGone(pid);
});

test('workers that cannot start are an error after three of them, with nothing left behind', async t => {
  const lines: string[] = [];
  const log = pino({ level: 'debug' }, { write: line => void lines.push(line) });
  const childEnv = { NODE_OPTIONS: '--no-such-option' };
  const opening = openPicturePool({ workers: 2, childEnv, log, restartDelaysMs: [10] });
  await t.throwsAsync(opening, { message: /a picture worker did not start \(exit code 9\)/ });
  t.is(lines.filter(line => line.includes('picture worker died')).length, 3);
});

test('a worker that dies while the pool opens is replaced, and the pool opens', async t => {
  const childEnv: Record<string, string> = { NODE_OPTIONS: '--no-such-option' };
  const log = pino({ level: 'error' }, { write: () => delete childEnv.NODE_OPTIONS });
  const own = await openPool(t, { childEnv, log, restartDelaysMs: [10] });
  t.is(own.ends().start, 1);
  t.is(own.processes().length, 1);
});

/** A further model's size, requested after decoding. */
const FURTHER = { width: 7, height: 9 };
const AS_IT_IS = { part: undefined };
const IN_FRAME = { input: { kind: 'framed' }, part: undefined } as const;

test('a further model sees what it would have seen with the first', async t => {
  const { lease } = await leaseOf(pool);
  const sizes = [MODEL_SIZE, FURTHER];
  const request = { file: slopePng, declared: undefined, modelInputs: sizes };
  const { modelInputs } = await lease.decode(request, NEVER);
  for (const [index, size] of sizes.entries()) {
    const { rgb, resampleMs } = await lease.resample(size, AS_IT_IS, NEVER);
    t.deepEqual(rgb, modelInputs[index]);
    t.true(resampleMs > 0);
  }
  lease.release();
});

test('a framed look sees the picture in the middle of its input', async t => {
  const { lease } = await leaseOf(pool);
  await lease.decode({ file: slopePng, declared: undefined, modelInputs: [] }, NEVER);
  const { left, top, width, height } = boxInInput(FURTHER, IN_FRAME.input);
  const { rgb: own } = await lease.resample({ width, height }, AS_IT_IS, NEVER);
  const { rgb } = await lease.resample(FURTHER, IN_FRAME, NEVER);
  t.is(rgb.length, 3 * FURTHER.width * FURTHER.height);
  for (let y = 0; y < height; y++) {
    const from = 3 * ((top + y) * FURTHER.width + left);
    const row = own.subarray(3 * y * width, 3 * (y + 1) * width);
    t.deepEqual(rgb.subarray(from, from + 3 * width), row);
  }
  lease.release();
});

test('a worker chooses among looks at what it sees, and keeps none of them', async t => {
  const { lease } = await leaseOf(pool);
  await decode(lease);
  const alpha = Buffer.alloc(256, 255);
  // Everything surely shown is shown again.
  const faint = Buffer.alloc(256, 120).fill(255, 0, 128);
  const matteOf = (alpha: Buffer, role: 'subject' | 'secondLook') =>
    ({ alpha, size: MODEL_SIZE, role }) as const;
  const before = [matteOf(faint, 'subject'), matteOf(faint, 'secondLook')];
  const further = [1, 2, 3].map(() => matteOf(alpha, 'secondLook'));
  t.deepEqual(await lease.choose([...before, ...further], 3, true, NEVER), {
    mattes: [2, 0, 1].map((at, order) => ({ at, role: order === 0 ? 'subject' : 'secondLook' })),
    settled: true,
  });
  t.true(alpha.every(value => value === 255));
  lease.release();
});

test('a look at a part sees that part alone, and the result has nothing else', async t => {
  const { lease } = await leaseOf(pool);
  const { width, height } = await decode(lease);
  const all = (await lease.resample({ width, height }, AS_IT_IS, NEVER)).rgb;
  const part = { left: 10, top: 5, width: 16, height: 16 };
  const { rgb } = await lease.resample(MODEL_SIZE, { part }, NEVER);
  for (let y = 0; y < 16; y++) {
    const from = 3 * ((5 + y) * width + 10);
    t.deepEqual(rgb.subarray(48 * y, 48 * (y + 1)), all.subarray(from, from + 48));
  }
  const alpha = Buffer.alloc(256, 255);
  const mattes = [{ alpha, size: MODEL_SIZE, role: 'subject', part }] as const;
  const choices = { refinement: true, foregroundEstimation: true, outputFormat: 'png' } as const;
  const { subject } = await lease.finish({ mattes, ...choices, resultKind: 'mask' }, NEVER);
  t.deepEqual(subject?.inputBox, part);
  lease.release();
});

test('a given matte makes the result that the models made, and nothing else is taken for one', async t => {
  const { lease } = await leaseOf(pool);
  const alpha = Buffer.from(Array.from({ length: 256 }, (_none, i) => (i % 16) * 17));
  const choices = { refinement: true, foregroundEstimation: true, outputFormat: 'png' } as const;
  const order = { ...choices, resultKind: 'cutout', matte: true, thumbnail: true } as const;
  const part = { left: 10, top: 5, width: 20, height: 16 };
  const beside = { left: 0, top: 12, width: 9, height: 10 };
  for (const parts of [[undefined], [part], [part, beside]]) {
    const matte = { alpha, size: MODEL_SIZE, role: 'subject' } as const;
    const mattes = parts.map(part => ({ ...matte, part }));
    await decode(lease);
    const first = await lease.finish({ mattes, ...order }, NEVER);
    t.true((first.matte?.length ?? 0) > 16);
    await decode(lease);
    const again = await lease.finish({ mattes: [], givenMatte: first.matte, ...order }, NEVER);
    t.deepEqual([again.file, again.matte], [first.file, first.matte]);
    t.true((again.thumbnail?.length ?? 0) > 0);
    await decode(lease, await asSharp(paintSlope(20, 20)).png().toBuffer());
    const elsewhere = lease.finish({ mattes: [], givenMatte: first.matte, ...order }, NEVER);
    if (parts[0] === undefined) await elsewhere;
    else await rejectsWith(t, elsewhere, { ...IMAGE_FAULT, message: /matte/ });
  }
  for (const givenMatte of [Buffer.alloc(4), Buffer.alloc(64), heavyPng]) {
    await decode(lease);
    const finishing = lease.finish({ mattes: [], givenMatte, ...order }, NEVER);
    await rejectsWith(t, finishing, { ...IMAGE_FAULT, message: /matte/ });
  }
  lease.release();
});

test('hints outside of the part that a matte shows are heard', async t => {
  const { lease } = await leaseOf(pool);
  await decode(lease);
  const part = { left: 0, top: 0, width: 8, height: 8 };
  const mattes = [{ alpha: ALPHA, size: MODEL_SIZE, role: 'subject', part }] as const;
  const choices = { refinement: true, foregroundEstimation: true, outputFormat: 'png' } as const;
  const hints = { keep: [{ box: [30, 20, 40, 30] as const }] };
  const order = { mattes, hints, ...choices, resultKind: 'mask' } as const;
  const { subject } = await lease.finish(order, NEVER);
  t.deepEqual([subject?.inputBox.left, subject?.inputBox.width], [0, 40]);
  lease.release();
});

test('a look at the crop that a hint wants adds what it shows, and the matte is merged once', async t => {
  const { lease } = await leaseOf(pool);
  const { width, height } = await decode(lease);
  const matte = { alpha: Buffer.alloc(256), size: MODEL_SIZE, role: 'subject' } as const;
  const choices = { refinement: true, foregroundEstimation: true, outputFormat: 'png' } as const;
  const hints = { keep: [{ box: [8, 6, 28, 26] as const }] };
  const order = { hints, ...choices, resultKind: 'mask' } as const;
  const { crop } = await lease.merge({ mattes: [matte], ...order }, NEVER);
  t.true(crop !== undefined && crop.left < 8 && crop.width < width, JSON.stringify(crop));
  const { rgb } = await lease.resample(MODEL_SIZE, { part: crop }, NEVER);
  t.is(rgb.length, 3 * 256);
  const alpha = Buffer.alloc(256);
  for (let y = 3; y < 13; y++) alpha.fill(255, 16 * y + 3, 16 * y + 13);
  t.is((await lease.takeCrop({ alpha, size: MODEL_SIZE }, NEVER)).crop, undefined);
  const { subject } = await lease.finish({ mattes: [], ...order }, NEVER);
  const { left, top, width: wide } = subject!.inputBox;
  t.true(left >= 8 && top >= 6 && left + wide <= 28 && wide > 10, JSON.stringify(subject));
  await decode(lease);
  // The box is much wider than the object: another crop follows, and the first is the best.
  const empty = { alpha: Buffer.alloc(256), size: MODEL_SIZE, role: 'subject' } as const;
  const loose = { ...order, hints: { keep: [{ box: [10, 8, 30, 24] as const }] } };
  t.truthy((await lease.merge({ mattes: [empty], ...loose }, NEVER)).crop);
  const small = Buffer.alloc(256);
  for (let y = 6; y < 10; y++) small.fill(255, 16 * y + 6, 16 * y + 10);
  t.truthy((await lease.takeCrop({ alpha: small, size: MODEL_SIZE }, NEVER)).crop);
  const nothing = { alpha: Buffer.alloc(256), size: MODEL_SIZE };
  t.is((await lease.takeCrop(nothing, NEVER)).crop, undefined);
  const best = (await lease.finish({ mattes: [], ...loose }, NEVER)).subject;
  t.true(best !== undefined && best.inputBox.width > 3 && best.inputBox.width < 14);
  await decode(lease);
  const plain = await lease.finish({ mattes: [matte], ...order, hints: undefined }, NEVER);
  t.deepEqual([plain.subject, height], [undefined, 30], 'nothing of the image before is left');
  await decode(lease);
  await t.throwsAsync(lease.takeCrop({ alpha, size: MODEL_SIZE }, NEVER), { code: 'NODE_FAULT' });
  lease.release();
});

test('a picture of hints is decoded before the image, under the same guards', async t => {
  const { lease } = await leaseOf(pool);
  const file = await asSharp(paint(4, 3, 3, x => (x < 2 ? [0, 0, 0] : [128, 128, 128])))
    .png()
    .toBuffer();
  const declared = undefined;
  await lease.decode(
    { file: slopePng, declared, modelInputs: [], hints: { file, declared } },
    NEVER,
  );
  const mattes = [{ alpha: ALPHA, size: MODEL_SIZE, role: 'subject' }] as const;
  const choices = { refinement: true, foregroundEstimation: true, outputFormat: 'png' } as const;
  const order = { mattes, hints: { picture: true }, ...choices, resultKind: 'mask' } as const;
  const { subject } = await lease.finish(order, NEVER);
  t.true((subject?.inputBox.left ?? 0) >= 18);
  const transparent = await asSharp(paint(4, 3, 4, () => [0, 0, 0, 255]))
    .png()
    .toBuffer();
  const bomb = claimPngSize(file, 9_000, 9_000);
  for (const [wrong, code] of [
    [transparent, 'INVALID_PARAMETER'],
    [jpeg, 'INVALID_PARAMETER'],
    [Buffer.from('no picture'), 'INVALID_PARAMETER'],
    [bomb, 'IMAGE_RESOLUTION_TOO_LARGE'],
  ] as const) {
    const hints = { file: wrong, declared };
    const decoding = lease.decode({ file: slopePng, declared, modelInputs: [], hints }, NEVER);
    await rejectsWith(t, decoding, { name: 'ContractError', code, message: /^hints_file/ });
  }
  lease.release();
});

test('a model that refines sees the picture, and what of the mattes is unsure', async t => {
  const { lease } = await leaseOf(pool);
  await lease.decode({ file: slopePng, declared: undefined, modelInputs: [] }, NEVER);
  const { rgb } = await lease.resample(FURTHER, AS_IT_IS, NEVER);
  const unsure = async (alphaAt: (x: number) => number) => {
    const alpha = Buffer.from(Array.from({ length: 256 }, (_, i) => alphaAt(i % 16)));
    const mattes = [{ alpha, size: MODEL_SIZE, role: 'subject' }] as const;
    return (await lease.resampleUnsure(FURTHER, mattes, undefined, NEVER))?.rgb;
  };
  const pixels = await unsure(x => (x < 8 ? 255 : 0));
  t.deepEqual(
    pixels?.filter((_, i) => i % 4 < 3),
    rgb,
  );
  const trimap = [...(pixels ?? [])].filter((_, i) => i % 4 === 3);
  t.deepEqual(trimap.slice(0, 7), [255, 255, 255, 128, 0, 0, 0]);
  t.is(await unsure(() => 0), undefined);
  lease.release();
});

async function cutOut(file: Buffer, background: DecodeRequest['background']) {
  const lease = await pool.acquire('sync', NEVER);
  try {
    const request = { file, declared: undefined, modelInputs: [MODEL_SIZE], background };
    await lease.decode(request, NEVER);
    const alpha = Buffer.from(Array.from({ length: 256 }, (_, i) => (i % 16 < 8 ? 255 : 0)));
    const finishing = { background: { kind: 'picture' }, outputWidth: 80 } as const;
    const choices = { refinement: false, foregroundEstimation: false, finishing };
    const mattes = [{ alpha, size: MODEL_SIZE, role: 'subject' }] as const;
    const result = { outputFormat: 'png', resultKind: 'cutout' } as const;
    return await lease.finish({ mattes, ...result, ...choices }, NEVER);
  } finally {
    lease.release();
  }
}

test('a background picture › lies behind the subject, oriented', async t => {
  // Blue above and red below once it is turned; stored on its side.
  const stored = paint(30, 20, 3, x => (x < 15 ? [0, 0, 255] : [255, 0, 0]));
  const turned = await asSharp(stored).withMetadata({ orientation: 6 }).jpeg().toBuffer();
  const background = { file: turned, declared: undefined };
  const finished = await cutOut(slopePng, background);
  const { file, width, height, input, finishMs } = finished;
  t.deepEqual([width, height, input], [80, 60, { width: 40, height: 30 }]);
  t.true(finishMs > 0);
  const { data } = await sharp(file).raw().toBuffer({ resolveWithObject: true });
  const [red = 0, , blueAbove = 0, alpha] = data.subarray(4 * (5 * 80 + 70));
  t.true(red < 60 && blueAbove > 200 && alpha === 255, `${red} ${blueAbove} ${alpha}`);
  const [redBelow = 0] = data.subarray(4 * (55 * 80 + 70));
  t.true(redBelow > 200, `${redBelow}`);
  t.deepEqual(finished.subject?.inputBox.left, 0);
});

const cut = jpeg.subarray(0, jpeg.length / 2);
const huge = claimPngSize(slopePng, 6_500, 4_000);
const small = { width: 10, height: 10 };
const bad = [
  [
    'of text',
    Buffer.from('text'),
    undefined,
    'INVALID_PARAMETER',
    /^background: This is plain text/,
  ],
  ['that is cut off', cut, undefined, 'INVALID_PARAMETER', /^background: .*damaged/],
  ['larger than declared', jpeg, small, 'INVALID_PARAMETER', /^background: .*declared/],
  [
    'of 26 megapixels',
    huge,
    undefined,
    'IMAGE_RESOLUTION_TOO_LARGE',
    /^background: .*25 megapixels/,
  ],
] as const;
for (const [name, file, declared, code, message] of bad) {
  test(`a background picture › ${name} is ${code}, by its name, and the worker lives on`, async t => {
    const [before] = pool.processes();
    await t.throwsAsync(cutOut(slopePng, { file, declared }), { code, message });
    t.is((await cutOut(slopePng, jpegBehind)).width, 80);
    t.is(pool.processes()[0]?.pid, before?.pid);
  });
}

test('a background picture › is not blamed for the image', async t => {
  await t.throwsAsync(cutOut(Buffer.from('no image'), jpegBehind), {
    code: 'UNSUPPORTED_IMAGE_FORMAT',
    message: /^This is plain text/,
  });
});

test('a background picture › that takes too much is blamed, not the image', async t => {
  // Nothing of the budget is left once the background is opened. An AVIF of that size is decoded
  // for half a second, so that the watch reads meanwhile.
  const { residentBytes } = limits;
  residentBytes.base = 9 * 2 ** 30;
  residentBytes.perMegapixel = -(2 ** 30);
  t.teardown(() => Object.assign(residentBytes, { base: ENOUGH, perMegapixel: 0 }));
  const large = await sharp({
    create: { width: 4_000, height: 3_000, channels: 3, background: '#123' },
  })
    .avif({ effort: 0 })
    .toBuffer();
  const lease = await pool.acquire('sync', NEVER);
  const background = { file: large, declared: undefined };
  const request = { file: slopePng, declared: undefined, modelInputs: [], background };
  await t.throwsAsync(lease.decode(request, NEVER), {
    code: 'INVALID_PARAMETER',
    message: 'background: The image takes too much memory to process.',
  });
  lease.release();
});
