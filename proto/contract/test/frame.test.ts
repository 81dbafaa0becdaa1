/** How large a frame is; inference-node/test/picture/finishing/layout.test.ts holds it to what is made. */
import assert from 'node:assert/strict';
import test from 'ava';
import {
  framePixelsUnseen,
  frameRange,
  frameRefusal,
  requireFrame,
} from '#contract/finishing/frame.ts';
import type { CropMargins, Finishing, Size } from '#contract/finishing.ts';
import { FRAME_PIXELS_MAX } from '#contract/limits.ts';

const px = (length: number): CropMargins => {
  const side = { px: length };
  return { top: side, right: side, bottom: side, left: side };
};
const WHITE = { kind: 'colour', rgba: 0xffffffff } as const;

/** Named by the field, of a picture as its header shows it; undefined: it is taken. */
function refusedField(finishing: Finishing, size: Size): string | undefined {
  const { least } = frameRange(finishing, size, { turned: true });
  const refusal = frameRefusal(finishing, size, least);
  if (refusal === undefined) return undefined;
  assert.deepEqual([refusal.code, refusal.retryable], ['INVALID_PARAMETER', false]);
  assert.throws(() => requireFrame(finishing, size, least), refusal);
  return refusal.fieldErrors[0]?.field;
}

const tiny = { width: 24, height: 18 };
const camera = { width: 10_000, height: 6000 };
const refused: readonly [string, Finishing, Size, string][] = [
  ['one side of a square', { outputHeight: 10_000 }, { width: 1, height: 1 }, 'output_height'],
  ['the other side', { outputWidth: 8000 }, { width: 5, height: 5 }, 'output_width'],
  ['a side that a turned picture makes as large', { outputWidth: 10_000 }, tiny, 'output_width'],
  ['margins in px', { crop: px(10_000) }, tiny, 'crop_margin'],
  ['margins and a scale', { crop: px(400), scalePercent: 10 }, tiny, 'crop_margin'],
  ['a side and a crop', { crop: px(5000), outputHeight: 9000 }, tiny, 'output_height'],
  [
    'more than the picture has',
    { outputWidth: 9900 },
    { width: 7100, height: 7200 },
    'output_width',
  ],
];
for (const [name, finishing, size, field] of refused) {
  test(`a frame larger than the picture and than 50 megapixels › is refused by the name of its field: ${name}`, t =>
    t.is(refusedField(finishing, size), field));
}

const taken: readonly [string, Finishing, Size][] = [
  ['a plain picture with a background', { background: WHITE }, camera],
  ['no more than it has', { outputWidth: 9900 }, camera],
  ['a crop of it', { crop: px(0) }, camera],
  ['what is scaled down', { crop: px(10_000), sizeMaxMegapixels: 50 }, tiny],
  ['one side with a bound', { outputHeight: 10_000, sizeMaxMegapixels: 4 }, tiny],
  ['margins that a limit of a side makes a strip', { crop: { ...px(0), top: { px: 1e4 } } }, tiny],
  ['a scale that follows from the subject', { crop: px(0), scalePercent: 10 }, camera],
  ['both sides', { outputWidth: 10_000, outputHeight: 5000 }, tiny],
  ['a side that a turned picture keeps small', { outputHeight: 8000 }, { width: 9, height: 6 }],
];
for (const [name, finishing, size] of taken) {
  test(`a frame larger than the picture and than 50 megapixels › is not: ${name}`, t =>
    t.is(refusedField(finishing, size), undefined));
}

test('a frame larger than the picture and than 50 megapixels › is found where the picture lies as it is: its header left both open', t => {
  const size = { width: 9, height: 6 };
  const { least } = frameRange({ outputHeight: 8000 }, size, { turned: false });
  t.is(frameRefusal({ outputHeight: 8000 }, size, least)?.code, 'INVALID_PARAMETER');
  const scale = { crop: px(0), scalePercent: 10 };
  const made = frameRefusal(scale, size, FRAME_PIXELS_MAX + 1);
  t.is(made?.fieldErrors[0]?.field, 'scale');
  t.regex(made?.message ?? '', /^scale makes a frame of 50000001 pixels; at most 50000000/);
});

const cases: readonly [Finishing, number][] = [
  [{}, 0],
  [{ background: WHITE, sizeMaxMegapixels: 4 }, 0],
  [{ crop: px(0), position: 'original' }, 0],
  [{ scalePercent: 10 }, 0],
  [{ crop: px(0), scalePercent: 99 }, 50e6],
  [{ crop: px(1) }, 50e6],
  [{ crop: px(1), sizeMaxMegapixels: 2 }, 2e6],
  [{ outputWidth: 1000, outputHeight: 800 }, 0.8e6],
  [{ outputWidth: 1000 }, 10e6],
  [{ outputHeight: 10_000 }, 50e6],
];
for (const [finishing, pixels] of cases) {
  test(`the most that fields make of a picture that is not there › is ${pixels} by ${JSON.stringify(finishing)}`, t =>
    t.is(framePixelsUnseen(finishing), pixels));
}
