/** Pictures of which the first run is unsure, through a node's pipeline and a picture worker. */
import { at } from '@matting/test-support/at.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import ava from 'ava';
import { pino } from 'pino';
import sharp from 'sharp';
import type { EngineRun } from './engine/pool/engine-pool.ts';
import { loadPlanOutlines } from './models/plan.ts';
import { openPicturePool } from './picture/pool/open-picture-pool.ts';
import { type ImageOrder, type ImageResult, Pipeline, type PlanRun } from './pipeline.ts';
import { FakeEnginePool, StageGates, TINY_MODEL } from './test/fake-pools.ts';

const test = ava.serial;
const log = pino({ level: 'silent' });
const pictures = await openPicturePool({ workers: 1, childEnv: STARTED_ENV, log });

const SIDE = 120;
/** Models see the picture this much smaller. */
const SCALE = 8;
type Kind = 'asItIs' | 'mirrored' | 'edges';
/** Alpha at a position of 0 to 1 each way, for a model with an input of that side. */
type AlphaAt = (x: number, y: number, side: number) => number;
type Shown = Readonly<Record<Kind, AlphaAt>>;

const isBody = (x: number, y: number) => Number(x > 0.3 && x < 0.7 && y > 0.2);

/** A grey body before a red left and a blue right half. The lowest rows are green. */
const photo = await sharp(
  Buffer.from(
    Array.from({ length: SIDE * SIDE }, (_, i) => {
      const [x, y] = [(i % SIDE) / SIDE, Math.floor(i / SIDE) / SIDE];
      if (isBody(x, y)) return [200, 200, 200];
      if (y > 0.97) return [0, 255, 0];
      return x < 0.5 ? [255, 0, 0] : [0, 0, 255];
    }).flat(),
  ),
  { raw: { width: SIDE, height: SIDE, channels: 3 } },
)
  .png()
  .toBuffer();

test.after.always(() => pictures.close(0));

/** Recognises by its colours how the picture was changed. */
class SeeingEngines extends FakeEnginePool {
  readonly seen: Kind[] = [];
  readonly #shown: Shown;

  constructor(shown: Shown) {
    super(new StageGates());
    this.#shown = shown;
  }

  override async run({ rgb, size }: EngineRun) {
    const { width, height } = size!;
    const isGreen = (row: number) => at(rgb, 3 * row * width + 1) > 200;
    const isMirrored = at(rgb, 2) > 200;
    const kind = isMirrored ? 'mirrored' : isGreen(height - 6) ? 'edges' : 'asItIs';
    this.seen.push(kind);
    const alpha = Buffer.alloc(width * height);
    for (let i = 0; i < alpha.length; i++) {
      const x = (i % width) / width;
      const y = (Math.floor(i / width) / height) * (kind === 'edges' ? 1.12 : 1);
      alpha[i] = this.#shown[kind](kind === 'mirrored' ? 1 - x : x, y, size!.width);
    }
    return { alpha, size: { width, height }, waitMs: 1, inferMs: 2 };
  }
}

/** Cuts out by a shipped plan whose models show that. */
async function cutOut(name: string, shown: Shown, extra: 'further' | 'none' = 'further') {
  const outline = (await loadPlanOutlines()).find(plan => plan.name === name);
  const engines = new SeeingEngines(shown);
  const runs = outline!.entries.map(({ role, inputSize, extraRuns }): PlanRun => {
    const side = inputSize! / SCALE;
    const model = { ...TINY_MODEL, inputWidth: side, inputHeight: side };
    return { model, role, engines, extraRuns: extra === 'further' ? extraRuns : undefined };
  });
  const order: ImageOrder = {
    plan: { name, runs },
    declared: undefined,
    ...({ outputFormat: 'png', resultKind: 'mask', priority: 'sync' } as const),
    ...{ refinement: false, foregroundEstimation: false },
  };
  const sent: ImageResult[] = [];
  const receive = async () => ({ image: photo });
  const send = async (result: ImageResult) => void sent.push(result);
  const exchange = { receive, stageBegan: () => undefined, send };
  await new Pipeline(pictures).process(order, exchange, new AbortController().signal);
  const { file, extraRuns, subject } = at(sent, 0);
  const alpha = await sharp(file).extractChannel(0).raw().toBuffer();
  return { alpha, file, extraRuns, subject, seen: engines.seen };
}

const whole: AlphaAt = (x, y) => 255 * isBody(x, y);
const faded: AlphaAt = (x, y) => (y > 0.8 ? 140 : 255) * isBody(x, y);
const thin: AlphaAt = (x, y) => (y > 0.8 ? 60 : 255) * isBody(x, y);
const dense: AlphaAt = (x, y) => (y > 0.8 ? 215 : 255) * isBody(x, y);
/** Two sizes show the lower part differently. */
const fadedApart: AlphaAt = (x, y, side) => (side * SCALE === 768 ? dense : faded)(x, y, side);
const leastOfBody = (alpha: Uint8Array) => {
  const rows = [0.3, 0.6, 0.85, 0.92].map(y => Math.round(y * SIDE) * SIDE);
  return Math.min(...rows.map(row => at(alpha, row + SIDE / 2)));
};

for (const plan of ['standard', 'best']) {
  test(`${plan} › makes a body solid that its own looks lost and further ones show`, async t => {
    const shown = { asItIs: fadedApart, mirrored: whole, edges: whole };
    const before = await cutOut(plan, shown, 'none');
    t.true(leastOfBody(before.alpha) < 200);
    const { alpha, extraRuns } = await cutOut(plan, shown);
    t.deepEqual(extraRuns, ['mirrored', 'mirrored', 'edges']);
    t.true(leastOfBody(alpha) >= 250);
  });

  test(`${plan} › takes no further run at a picture that it is sure of`, async t => {
    const { seen, extraRuns } = await cutOut(plan, {
      asItIs: whole,
      mirrored: faded,
      edges: faded,
    });
    t.deepEqual(extraRuns, []);
    t.deepEqual(new Set(seen), new Set(['asItIs']));
  });

  test(`${plan} › leaves a veil that one further look alone takes for solid`, async t => {
    const shown = { asItIs: fadedApart, mirrored: thin, edges: whole };
    const { file, extraRuns } = await cutOut(plan, shown);
    t.true(extraRuns.includes('edges'));
    t.deepEqual(file, (await cutOut(plan, shown, 'none')).file);
  });

  test(`${plan} › takes one further run at a veil that it confirms`, async t => {
    const mirrored: AlphaAt = (x, y) => (y > 0.8 ? 180 : 255) * isBody(x, y);
    const shown = { asItIs: fadedApart, mirrored, edges: whole };
    const { file, extraRuns } = await cutOut(plan, shown);
    t.deepEqual(extraRuns, ['mirrored']);
    t.deepEqual(file, (await cutOut(plan, shown, 'none')).file);
  });

  test(`${plan} › takes no further run at a veil that its own looks show alike`, async t => {
    const shown = { asItIs: faded, mirrored: whole, edges: whole };
    const { file, extraRuns, alpha } = await cutOut(plan, shown);
    t.deepEqual(extraRuns, []);
    t.true(leastOfBody(alpha) < 160);
    t.deepEqual(file, (await cutOut(plan, shown, 'none')).file);
  });
}

test('fast › looks at an unsure picture at a larger size, and at no other', async t => {
  const sure = await cutOut('fast', { asItIs: whole, mirrored: whole, edges: whole });
  t.deepEqual([sure.extraRuns, sure.seen], [[], ['asItIs']]);
  const unsure = await cutOut('fast', { asItIs: faded, mirrored: whole, edges: whole });
  t.deepEqual([unsure.extraRuns, unsure.seen], [['larger'], ['asItIs', 'asItIs']]);
});

/** Too little for the result alone to give a warning. */
const dim: AlphaAt = (x, y, side) =>
  (y > 0.86 ? (side * SCALE === 768 ? 30 : 140) : 255) * isBody(x, y);
/** Models of one size show half of the body. */
const halvedAt =
  (half: number): AlphaAt =>
  (x, y, side) =>
    side * SCALE !== half ? dim(x, y, side) : y > 0.5 ? 0 : whole(x, y, side);

for (const plan of ['fast', 'standard', 'best']) {
  test(`${plan} › warns of an unsure picture in which its looks saw different subjects`, async t => {
    const agreed = await cutOut(plan, { asItIs: dim, mirrored: dim, edges: dim });
    t.true(agreed.extraRuns.length > 0);
    t.false(agreed.subject!.unsure);
    const asItIs = halvedAt(plan === 'fast' ? 1024 : 768);
    t.true((await cutOut(plan, { asItIs, mirrored: asItIs, edges: asItIs })).subject!.unsure);
  });
}
