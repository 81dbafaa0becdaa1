import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import sharp from 'sharp';
import { finishPicture } from '../worker/finish.ts';
import { cutPart, pastePart, spreadAlpha } from './picture-part.ts';

const SIZE = { width: 200, height: 160 };
const PART = { left: 50, top: 0, width: 128, height: 64 };

function picture() {
  const { width, height } = SIZE;
  const rgba = Uint32Array.from({ length: width * height }, (_none, i) => {
    const [x, y] = [i % width, Math.floor(i / width)];
    return ((255 << 24) | (x << 16) | (y << 8) | ((x * y) & 255)) >>> 0;
  });
  return { rgba, ...SIZE, translucent: false };
}

test('a part of a picture › is cut out of it and put back as it was', t => {
  const whole = picture();
  const cut = cutPart(whole, PART);
  t.deepEqual([cut.width, cut.height, cut.rgba.length], [128, 64, 128 * 64]);
  t.is(cut.rgba[128 * 10 + 3], whole.rgba[200 * 10 + 53]);
  const blank = { ...whole, rgba: new Uint32Array(whole.rgba.length) };
  pastePart(cut, blank, PART);
  const inPart = (i: number) => i % 200 >= 50 && i % 200 < 178 && i < 64 * 200;
  t.deepEqual(
    blank.rgba,
    whole.rgba.map((pixel, i) => (inPart(i) ? pixel : 0)),
  );
});

test('a part of a picture › shows nothing outside, and fades at its own sides alone', t => {
  const alpha = spreadAlpha(new Uint8Array(128 * 64).fill(255), PART, SIZE);
  const row = (y: number) => [...alpha.subarray(y * 200, (y + 1) * 200)];
  t.deepEqual(
    [...new Set(row(30))].toSorted((a, b) => a - b),
    [0, 64, 191, 255],
  );
  t.deepEqual(row(30).slice(48, 53), [0, 0, 64, 191, 255]);
  t.deepEqual(row(30).slice(175, 180), [255, 191, 64, 0, 0]);
  // The upper side is the picture's; the lower one is not.
  t.deepEqual(
    [0, 62, 63, 64].map(y => at(row(y), 100)),
    [255, 255, 128, 0],
  );
});

const CHOICES = {
  ...({ outputFormat: 'png', resultKind: 'cutout' } as const),
  ...{ refinement: true, foregroundEstimation: true },
};
const disc = Uint8Array.from({ length: 64 * 64 }, (_none, i) => {
  const distance = Math.hypot((i % 64) - 32, Math.floor(i / 64) - 32);
  return Math.max(0, Math.min(255, 128 + 40 * (20 - distance)));
});
const MATTES = [{ alpha: disc, width: 64, height: 64, role: 'subject' as const }];
const mattesOf = (part: typeof PART) => MATTES.map(matte => ({ ...matte, part }));

test('a part of a picture › that is all of it makes the same file', async t => {
  const { file } = await finishPicture(picture(), MATTES, CHOICES);
  const all = mattesOf({ left: 0, top: 0, ...SIZE });
  t.deepEqual((await finishPicture(picture(), all, CHOICES)).file, file);
});

/** Alpha in the middle and a corner of PART, then of LOW, and between the two. */
async function alphaOf(mattes: Parameters<typeof finishPicture>[1]) {
  const mask = { ...CHOICES, resultKind: 'mask' as const };
  const { file } = await finishPicture(picture(), mattes, mask);
  const plane = await sharp(file).extractChannel(0).raw().toBuffer();
  return [114, 54, 30, 8, 100].map((x, i) => plane[200 * [32, 1, 130, 102, 90][i]! + x]);
}
const LOW = { left: 5, top: 100, width: 50, height: 60 };

test('parts of a picture › show each its own, and nothing around', async t => {
  t.deepEqual(await alphaOf([...mattesOf(PART), ...mattesOf(LOW)]), [255, 0, 255, 0, 0]);
});

test('parts of a picture › replace what is seen of them in all of it', async t => {
  const shown = { alpha: new Uint8Array(64).fill(255), width: 8, height: 8 };
  const all = { ...shown, role: 'subject' as const };
  t.deepEqual(await alphaOf([all, ...mattesOf(PART)]), [255, 0, 255, 255, 255]);
  t.deepEqual(await alphaOf([all, ...mattesOf(LOW)]), [255, 255, 255, 0, 255]);
});

test('a part of a picture › holds the subject, and reports its box in the picture', async t => {
  const { subject, size } = await finishPicture(picture(), mattesOf(PART), CHOICES);
  t.deepEqual(size, SIZE);
  // The disc covers 45 of 64 columns and rows of its matte, in the middle.
  const { left, top, width, height } = subject?.inputBox ?? PART;
  t.true(Math.abs(left + width / 2 - 114) <= 2 && Math.abs(top + height / 2 - 32) <= 2);
  t.true(Math.abs(width - 90) <= 4 && Math.abs(height - 45) <= 4);
});
