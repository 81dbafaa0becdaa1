import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import {
  TRAP_PEAK_BYTES,
  type TrapOptions,
  writeTrapModel,
} from '@matting/test-support/trap-model.ts';
import ava, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import type { PreparedModel } from '../../models/prepared-model.ts';
import { pidOf } from '../../test/pool-harness.ts';
import { boundsOf } from './engine-bounds.ts';
import type { EnginePool } from './engine-pool.ts';
import { openEnginePool } from './open-engine-pool.ts';

const test = ava.serial;

const GREY = 100;
const WHITE = 255;
const SIDE_PX = 32;
const MEGABYTES = 1e6;

interface LogLine {
  readonly msg: string;
  readonly model?: string;
  readonly cause?: string;
  readonly reason?: string;
}

async function openTrap(
  t: ExecutionContext,
  options: TrapOptions,
  fields: Partial<PreparedModel> = {},
  childEnv: Readonly<Record<string, string>> = {},
) {
  const lines: LogLine[] = [];
  const log = pino({ level: 'warn' }, { write: line => void lines.push(JSON.parse(line)) });
  const model = await writeTrapModel(await temporaryFolder(t), options, fields);
  const pool = openEnginePool({ model, engines: 1, threadsPerEngine: 1, childEnv, log });
  t.teardown(() => pool.close(0));
  await pool.ready();
  return { pool, pid: pidOf(pool), lines, model };
}

function run(pool: EnginePool, level: number, size = { width: SIDE_PX, height: SIDE_PX }) {
  const rgb = Buffer.alloc(3 * size.width * size.height, level);
  return pool.run({ rgb, size, priority: 'sync', signal: new AbortController().signal });
}

async function refusedAsPicture(
  t: ExecutionContext,
  running: Promise<unknown>,
  cause: RegExp,
): Promise<void> {
  await rejectsWith(t, running, (error: ContractError) => {
    return error.code === 'PROCESSING_FAILED' && !error.retryable && cause.test(`${error.cause}`);
  });
}

for (const [kind, cause] of [
  ['reshapes', /cannot be reshaped.* for this picture/],
  ['widens', /1x4x32x32: no matte for this picture/],
  ['rowless', /1x1x0x32: nothing for this picture/],
  ['enlarges', /1x1x6000x6000: over \d+ values for this picture/],
] as const) {
  test(`a picture for which a graph ${kind} is at fault itself: the engine goes on`, async t => {
    // Within the process's limit, so that the answer can be judged.
    const fields = { peakBytes: 8 * TRAP_PEAK_BYTES };
    const { pool, pid, lines } = await openTrap(t, { kind, enlargePx: 6000 }, fields);
    for (let attempt = 0; attempt < 3; attempt++) {
      await refusedAsPicture(t, run(pool, WHITE), cause);
      t.is((await run(pool, GREY)).alpha[0], GREY);
    }
    t.is(pidOf(pool), pid);
    t.like(pool.metrics().runs, { succeeded: 3, refused: 3, failed: 0, lost: 0 });
    t.true(Object.values(pool.metrics().deaths).every(deaths => deaths === 0));
    const warnings = lines.filter(({ msg }) => msg === 'no matte of an image');
    t.deepEqual(new Set(warnings.map(({ model }) => model)), new Set([`trap-${kind}`]));
  });
}

test('a picture too narrow for a graph of any size is at fault itself', async t => {
  const sides = { multipleOf: 32, max: 512 };
  const form = { inputType: 'float32', layout: 'nchw', inverted: false, sides } as const;
  const fields = { form: { ...form, fit: 'short-side' } } as const;
  const { pool, pid } = await openTrap(t, { kind: 'reflects', side: 256 }, fields);
  await refusedAsPicture(t, run(pool, GREY, { width: 512, height: 32 }), /Pad reflect/);
  t.is((await run(pool, GREY, { width: 512, height: 64 })).alpha[0], GREY);
  t.is(pidOf(pool), pid);
});

test('a graph that wants gigabytes for a picture does not get them, and serves the next one', async t => {
  const { pool, lines, model } = await openTrap(t, { kind: 'expands', expandBytes: 2e9 });
  await refusedAsPicture(t, run(pool, WHITE), /memory|alloc/i);
  t.is((await run(pool, GREY)).alpha[0], GREY);
  t.is((await run(pool, GREY)).alpha[0], GREY);
  t.true((pool.processes()[0]?.residentBytes ?? 0) < 2 * TRAP_PEAK_BYTES);
  t.true(lines.some(line => line.model === model.model));
  t.is(pool.metrics().runs.refused, 1);
});

test('an answer of 12000x12000 is not made at all', async t => {
  const { pool, lines } = await openTrap(t, { kind: 'enlarges', enlargePx: 12_000 });
  await refusedAsPicture(t, run(pool, WHITE), /memory|alloc/i);
  t.is((await run(pool, GREY)).alpha[0], GREY);
  t.is(lines.find(({ msg }) => msg === 'no matte of an image')?.model, 'trap-enlarges');
});

test('an engine that keeps more than is counted for it is restarted, and its picture is served', async t => {
  const expandBytes = 280 * MEGABYTES;
  const fields = { peakBytes: 1.5 * TRAP_PEAK_BYTES };
  const { pool, pid, lines } = await openTrap(t, { kind: 'expands', expandBytes }, fields);
  t.is((await run(pool, GREY)).alpha[0], GREY);
  t.is(pidOf(pool), pid);
  t.is((await run(pool, WHITE)).alpha[0], WHITE);
  t.is(pool.metrics().deaths.memory, 1);
  t.is((await run(pool, GREY)).alpha[0], GREY);
  t.not(pidOf(pool), pid);
  const lost = lines.find(({ msg }) => msg === 'engine lost');
  t.like(lost, { model: 'trap-expands', cause: 'memory' });
  t.regex(lost?.reason ?? '', /kept \d+ MB after a run, over \d+ MB: 189 MB are counted/);
  t.like(pool.metrics().runs, { succeeded: 3, refused: 0, lost: 0 });
  t.is(pool.snapshot().state, 'ready');
});

test('pictures of which an engine dies for want of memory are at fault, however many they are', async t => {
  const hook = path.join(import.meta.dirname, '../../test/out-of-memory-hook.ts');
  const childEnv = { NODE_OPTIONS: `--import=${hook}` };
  const { pool, lines } = await openTrap(t, { kind: 'reshapes' }, {}, childEnv);
  // More different images than engines may die of.
  for (let level = 0; level < 4; level++) {
    await refusedAsPicture(t, run(pool, level), /the process ended: signal SIGABRT/);
  }
  t.is(pool.snapshot().state, 'ready');
  t.like(pool.metrics().runs, { succeeded: 0, refused: 4, lost: 0 });
  t.like(pool.metrics().deaths, { memory: 4, run: 0 });
  t.true(lines.some(({ model, cause }) => model === 'trap-reshapes' && cause === 'memory'));
});

test('engines of added models go first where memory is out, those of shipped models do not', async t => {
  const score = (pid: number) => readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8').trim();
  const added = await openTrap(t, { kind: 'reshapes' });
  const { form: _, ...shipped } = await writeTrapModel(await temporaryFolder(t), {
    kind: 'reshapes',
  });
  const own = openEnginePool({
    ...{ model: shipped, engines: 1, threadsPerEngine: 1, childEnv: {} },
    log: pino({ level: 'silent' }),
  });
  t.teardown(() => own.close(0));
  await own.ready();
  t.deepEqual([score(added.pid), score(pidOf(own))], ['800', score(process.pid)]);
});

test('the bounds of an engine: of a shipped model none, of an added one what was measured', async t => {
  const model = await writeTrapModel(await temporaryFolder(t), { kind: 'reshapes' });
  const { form: _, ...shipped } = model;
  t.deepEqual(boundsOf(shipped, 2), { answerBytesMax: SIDE_PX ** 2 });
  const bounds = boundsOf(model, 2);
  const more = boundsOf({ ...model, peakBytes: 2 * TRAP_PEAK_BYTES }, 2);
  t.is((more.dataBytesMax ?? 0) - (bounds.dataBytesMax ?? 0), 2 * TRAP_PEAK_BYTES);
  t.is(boundsOf({ ...model, provider: 'cuda' }, 2).dataBytesMax, undefined);
  const { peakBytes: __, ...unmeasured } = model;
  t.true((boundsOf(unmeasured, 2).dataBytesMax ?? 0) > 4 * 1024 ** 3);
});
