import assert from 'node:assert/strict';
import test from 'ava';
import sharp from 'sharp';
import { type OutputFormat, TRANSPARENT_FORMATS } from '#contract/formats.ts';
import { at } from '../../../../test/support/at.ts';
import { Random } from '../../../../test/support/random.ts';
import { isSrgbProfile } from '../../../src/picture/codecs/colour/icc.ts';
import { hasJxlTools } from '../../../src/picture/jxl-limit.ts';
import { createModelInput } from '../../../src/picture/matte/model-input.ts';
import { type RgbaPicture, viewAsPixels } from '../../../src/picture/rgba-picture.ts';
import { finishPicture } from '../../../src/picture/worker/finish.ts';
import {
  asSharp,
  decode,
  type Pixels,
  paint,
  paintSlope,
  readJxl,
  readRgba,
  toPicture,
} from '../pictures.ts';

interface Wanted {
  /** Of a square: opaque where absent. */
  readonly alpha?: Buffer;
  readonly resultKind?: 'cutout' | 'mask';
}

/** The model's matte as it is. */
async function finish(pixels: Pixels, format: OutputFormat, wanted?: Wanted): Promise<Buffer> {
  return await finishDecoded(await toPicture(pixels), format, wanted);
}

async function finishDecoded(
  picture: RgbaPicture,
  outputFormat: OutputFormat,
  { alpha = Buffer.alloc(16, 255), resultKind = 'cutout' }: Wanted = {},
): Promise<Buffer> {
  const side = Math.sqrt(alpha.length);
  const matte = { alpha, width: side, height: side, role: 'subject' as const };
  const choices = { refinement: false, foregroundEstimation: false, resultKind, outputFormat };
  return (await finishPicture(picture, [matte], choices)).file;
}

/** Opaque in the middle, soft at its border, nothing outside. */
function disc(side: number): Buffer {
  const alpha = Buffer.alloc(side * side);
  for (let i = 0; i < alpha.length; i++) {
    const far = Math.hypot((i % side) - side / 2, Math.floor(i / side) - side / 2);
    alpha[i] = Math.max(0, Math.min(255, (side * 0.3 - far) * 60 + 128));
  }
  return alpha;
}

const MEDIA_TYPES = { png: 'png', webp: 'webp', avif: 'heif' } as const;

for (const format of TRANSPARENT_FORMATS) {
  test(`a result › ${format}: the colours are the picture's, the alpha is the matte's, opaque or not`, async t => {
    const slope = paintSlope(96, 64);
    const file = await finish(slope, format);
    if (format === 'jxl') t.is((await readJxl(file)).channels, 4);
    else t.true((await sharp(file).metadata()).hasAlpha);
    const result = await readRgba(file, format);
    t.deepEqual([result.width, result.height], [96, 64]);
    let difference = 0;
    for (let i = 0; i < 96 * 64; i++) {
      t.is(at(result.data, 4 * i + 3), 255);
      for (const c of [0, 1, 2]) {
        difference += Math.abs(at(result.data, 4 * i + c) - at(slope.data, 3 * i + c));
      }
    }
    const mean = difference / (96 * 64 * 3);
    t.true(mean <= (format === 'png' ? 0 : 3), `mean difference ${mean}`);
  });

  test(`a result › ${format}: nothing of the background is left where nothing is seen`, async t => {
    const isFar = (x: number, y: number) => Math.hypot(x - 48, y - 48) >= 40;
    // A blue subject; the green belongs to the background alone.
    const picture = paint(96, 96, 3, (x, y) => (isFar(x, y) ? [40, 250, 40] : [30, 30, 200]));
    const file = await finish(picture, format, { alpha: disc(96) });
    const { data } = await readRgba(file, format);
    let hidden = 0;
    let pixels = 0;
    for (let i = 0; i < data.length / 4; i++) {
      if (!isFar(i % 96, Math.floor(i / 96))) continue;
      t.is(data[4 * i + 3], 0);
      // An encoder may continue the subject's colour here: JPEG XL does.
      hidden += at(data, 4 * i + 1);
      pixels += 1;
      if (format === 'png') t.deepEqual([...data.subarray(4 * i, 4 * i + 3)], [0, 0, 0]);
    }
    t.true(pixels > 1000);
    t.true(hidden / pixels < 35, `${hidden / pixels} of green left a pixel`);
  });

  test(`a result › ${format}: a mask is the alpha alone, in one channel`, async t => {
    const alpha = disc(48);
    const options = { alpha, resultKind: 'mask' } as const;
    const file = await finish(paintSlope(48, 48), format, options);
    if (format === 'jxl') {
      const mask = await readJxl(file);
      t.is(mask.channels, 1);
      t.deepEqual(mask.data, alpha);
      return;
    }
    const metadata = await sharp(file).metadata();
    t.is(metadata.format, MEDIA_TYPES[format]);
    t.false(metadata.hasAlpha);
    if (format === 'png') t.deepEqual([metadata.channels, metadata.depth], [1, 'uchar']);
    const read = await sharp(file).toColourspace('b-w').raw().toBuffer();
    let worst = 0;
    for (const [i, value] of alpha.entries())
      worst = Math.max(worst, Math.abs(at(read, i) - value));
    t.true(worst <= 1, `off by ${worst}`);
  });

  test(`a result › ${format}: nothing of the input's metadata is in the result`, async t => {
    const canary = 'CANARY-5a3e1';
    const exif = { IFD0: { ImageDescription: canary, Copyright: canary }, IFD3: gps(canary) };
    const xmp = `<x:xmpmeta xmlns:x="adobe:ns:meta/"><a>${canary}</a></x:xmpmeta>`;
    const file = await asSharp(paintSlope(40, 40))
      .withExif(exif)
      .withXmp(xmp)
      .jpeg({ quality: 90 })
      .toBuffer();
    t.true(file.includes(canary));
    const picture = await decode(Buffer.concat([file, Buffer.from(`<html>${canary}</html>`)]));
    const result = await finishDecoded(picture, format);
    for (const word of [canary, 'Exif', 'EXIF', 'xmpmeta', 'GPS', 'iCCP', 'pHYs', 'JFIF']) {
      t.is(result.includes(word), false, word);
    }
    if (format === 'jxl') return;
    const { exif: exifOut, xmp: xmpOut, iptc, icc } = await sharp(result).metadata();
    t.deepEqual([exifOut, xmpOut, iptc], [undefined, undefined, undefined]);
    // How sRGB is said in this format.
    t.is(icc !== undefined && isSrgbProfile(icc), format === 'webp');
    t.is(result.includes('sRGB\0'), format === 'png');
    t.is(result.includes(Buffer.from('nclx\0\x01\0\x0d')), format === 'avif');
  });
}

function gps(canary: string) {
  return { GPSLatitudeRef: 'N', GPSLatitude: '51/1 30/1 0/1', GPSProcessingMethod: canary };
}

test("a result › the source's transparency is multiplied into the result's", async t => {
  const source = paint(64, 64, 4, x => [120, 130, 140, x < 32 ? 0 : 128]);
  const alpha = Buffer.alloc(64 * 64, 128);
  const { data } = await readRgba(await finish(source, 'png', { alpha }), 'png');
  t.deepEqual([...data.subarray(0, 4)], [0, 0, 0, 0]);
  t.deepEqual([...data.subarray(4 * 40, 4 * 41)], [120, 130, 140, 64]);
  const mask = await finish(source, 'png', { alpha, resultKind: 'mask' });
  const grey = await sharp(mask).toColourspace('b-w').raw().toBuffer();
  t.deepEqual([grey[0], grey[40]], [0, 64]);
});

test('a result › every format keeps alpha exactly', async t => {
  const alpha = disc(80);
  const read = async (format: OutputFormat) => {
    const file = await finish(paintSlope(80, 80), format, { alpha });
    const { data } = await readRgba(file, format);
    return Math.max(...alpha.map((value, i) => Math.abs(value - at(data, 4 * i + 3))));
  };
  for (const format of TRANSPARENT_FORMATS) t.is(await read(format), 0, format);
});

// With libjxl-tools this machine can write all.
test.skipIf(hasJxlTools())(
  'a result › more JPEG XL than this machine can write is refused, not tried',
  async t => {
    const size = { width: 8_000, height: 6_000 };
    const picture = { ...size, rgba: viewAsPixels(Buffer.alloc(4)), translucent: false };
    await t.throwsAsync(finishDecoded(picture, 'jxl'), { code: 'NODE_INCAPABLE' });
  },
);

const ODD_MODEL = { width: 64, height: 64 };

const random = new Random(3);
const noise = () => random.below(256);

const PICTURES: Readonly<Record<string, Pixels>> = {
  'one pixel': paint(1, 1, 3, () => [250, 120, 3]),
  'two by 3000': paint(2, 3000, 3, (x, y) => [x * 200, y & 255, 90]),
  '3000 by two': paint(3000, 2, 3, (x, y) => [x & 255, y * 200, 90]),
  'one colour': paint(300, 200, 3, () => [40, 90, 160]),
  black: paint(90, 70, 3, () => [0, 0, 0]),
  white: paint(90, 70, 3, () => [255, 255, 255]),
  noise: paint(200, 150, 3, () => [noise(), noise(), noise()]),
  'all transparent': paint(80, 60, 4, () => [200, 10, 10, 0]),
};

/** What a model may say of such pictures. */
const MATTES: Readonly<Record<string, Buffer>> = {
  'no subject': Buffer.alloc(64 * 64, 0),
  'all subject': Buffer.alloc(64 * 64, 255),
  unsure: Buffer.from(Array.from({ length: 64 * 64 }, () => noise() >>> 4)),
};

for (const [name, pixels] of Object.entries(PICTURES)) {
  test(`odd pictures › ${name}: a model's picture and a whole cut-out, whatever the model says`, async t => {
    const input = createModelInput(await toPicture(pixels), ODD_MODEL);
    t.is(input.length, 64 * 64 * 3);
    for (const [said, alpha] of Object.entries(MATTES)) {
      // Each format with the matte that says least of the picture; one with all.
      for (const format of said === 'unsure' ? TRANSPARENT_FORMATS : (['png'] as const)) {
        const finished = await finishPicture(
          await toPicture(pixels),
          [{ alpha, ...ODD_MODEL, role: 'subject' }],
          {
            outputFormat: format,
            resultKind: 'cutout',
            refinement: true,
            foregroundEstimation: true,
          },
        );
        const result = await readRgba(finished.file, format);
        t.deepEqual([result.width, result.height], [pixels.width, pixels.height]);
        requireAlpha(result.data, said, name === 'all transparent', `${said}, ${format}`);
      }
    }
  });
}

/** Alpha is what the model said, not stretched to a range: a matte of doubts stays one. */
function requireAlpha(rgba: Buffer, said: string, isTransparent: boolean, label: string): void {
  const alphas = rgba.filter((_, i) => i % 4 === 3);
  const [least, most] = [Math.min(...alphas), Math.max(...alphas)];
  if (isTransparent || said === 'no subject') assert.deepEqual([least, most], [0, 0], label);
  else if (said === 'all subject') assert.deepEqual([least, most], [255, 255], label);
  else assert.ok(most <= 20, `${label}: ${least} to ${most}`);
}
