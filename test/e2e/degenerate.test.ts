/**
 * Pictures that no model was made for, through the whole service with the plan it has by default:
 * each is cut out like any other, and what the models make of nothing is not stretched to
 * something.
 */
import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import {
  asSharp,
  type Colour,
  type Pixels,
  paint,
  readRgba,
} from '../../inference-node/test/picture/pictures.ts';
import { at } from '../support/at.ts';
import { type RunningService, startService } from '../support/running-service.ts';

const test = ava.serial;

const WIDTH = 320;
const HEIGHT = 240;
/** Levels of 255: what the models leave of a picture without a subject is some 10 levels. */
const FAINT_ALPHA_MAX = 40;

let service: RunningService;

test.before(async () => {
  service = await startService({ MATTING_MODEL: '' });
});
test.after.always(() => service?.close());

let state = 5;
/** The same numbers in every run. */
function noise(): number {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state >>> 24;
}

function paintRgb(at: Colour): Pixels {
  return paint(WIDTH, HEIGHT, 3, at);
}

const slope: Colour = (x, y) => [40 + (170 * x) / WIDTH, 40 + (170 * y) / HEIGHT, 90];
const isOnDisc = (x: number, y: number) => Math.hypot(x - WIDTH / 2, y - HEIGHT / 2) < 75;

/** A cut-out of the picture's own size, with alpha. */
async function cutOut(
  t: ExecutionContext,
  pixels: Pixels,
): Promise<{ rgba: Buffer; alphas: Uint8Array }> {
  const png = await asSharp(pixels).png().toBuffer();
  const { status, body } = await service.post({ image_base64: png.toString('base64') });
  t.is(status, 200, JSON.stringify(body));
  const { width, height } = pixels;
  const result = body.result ?? assert.fail('no result');
  t.deepEqual([result.format, result.width, result.height], ['png', width, height]);
  const file = Buffer.from(await (await fetch(result.url)).arrayBuffer());
  t.is(file.length, result.sizeBytes);
  const { data, ...read } = await readRgba(file, 'png');
  t.deepEqual([read.width, read.height, data.length], [width, height, width * height * 4]);
  return { rgba: data, alphas: data.filter((_, i) => i % 4 === 3) };
}

/** PNG keeps what it is given: black wherever nothing is seen. */
function requireNothingHidden(t: ExecutionContext, rgba: Buffer): void {
  for (let i = 0; i < rgba.length; i += 4) {
    if (rgba[i + 3] === 0) t.deepEqual([...rgba.subarray(i, i + 3)], [0, 0, 0]);
  }
}

const WITHOUT_SUBJECT: Readonly<Record<string, Pixels>> = {
  'a gradient': paintRgb(slope),
  'one colour': paintRgb(() => [40, 90, 160]),
  'all black': paintRgb(() => [0, 0, 0]),
  'all white': paintRgb(() => [255, 255, 255]),
  noise: paintRgb(() => [noise(), noise(), noise()]),
};

for (const [name, pixels] of Object.entries(WITHOUT_SUBJECT)) {
  test(`${name}, without a subject, comes out transparent or nearly so`, async t => {
    const { rgba, alphas } = await cutOut(t, pixels);
    const most = Math.max(...alphas);
    t.true(most <= FAINT_ALPHA_MAX, `alpha up to ${most}`);
    requireNothingHidden(t, rgba);
  });
}

test('a subject on one colour is whole, and the background is gone', async t => {
  const picture = paintRgb((x, y) => (isOnDisc(x, y) ? [200, 60, 40] : [230, 230, 230]));
  const { rgba, alphas } = await cutOut(t, picture);
  t.true(at(alphas, WIDTH * (HEIGHT / 2) + WIDTH / 2) > 240, 'the middle of the disc');
  const inside = alphas.filter((_, i) => isOnDisc(i % WIDTH, Math.floor(i / WIDTH)));
  const outside = alphas.filter((_, i) => !isOnDisc(i % WIDTH, Math.floor(i / WIDTH)));
  const mean = (values: Uint8Array) => values.reduce((sum, v) => sum + v, 0) / values.length;
  t.true(mean(inside) > 230, `the disc has ${mean(inside)}`);
  t.true(mean(outside) < 10, `the background has ${mean(outside)}`);
  requireNothingHidden(t, rgba);
});

test('a transparent picture stays transparent, and its hidden colours are not kept', async t => {
  const { rgba } = await cutOut(
    t,
    paint(WIDTH, HEIGHT, 4, () => [200, 10, 10, 0]),
  );
  t.true(rgba.every(value => value === 0));
});

/** Stripes like fur up to every border: there is no background to tell it from. */
const ALL_SUBJECT = paintRgb((x, y) => {
  const shade = 90 + 40 * Math.sin(x / 3 + 4 * Math.sin(y / 17)) + (noise() >> 3);
  return [shade + 30, shade, shade - 30];
});
/** Lines of dark marks on white, as text is. */
const PAGE = paintRgb((x, y) => {
  const isInk = x > 20 && x < 300 && y % 12 < 7 && (x * 7 + y * 13) % 5 < 2;
  return isInk ? [20, 20, 20] : [250, 250, 250];
});

test('a subject that fills the picture and a page of text are pictures like any other', async t => {
  for (const picture of [ALL_SUBJECT, PAGE]) {
    const { rgba } = await cutOut(t, picture);
    requireNothingHidden(t, rgba);
  }
});
