import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import { type OutputFormat, TRANSPARENT_FORMATS } from '@matting/proto/contract/formats.ts';
import { at } from '@matting/test-support/at.ts';
import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import sharp from 'sharp';
import {
  asSharp,
  type Colour,
  decode,
  openZip,
  type Pixels,
  paint,
  paintSlope,
  readJxl,
  readRgba,
  toPicture,
} from '../../test/pictures.ts';
import { isSrgbProfile } from '../codecs/colour/icc-profile.ts';
import { createModelInput } from '../matte/model-input.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { finishPicture } from '../worker/finish.ts';

const NO_MARGIN = { top: { px: 0 }, right: { px: 0 }, bottom: { px: 0 }, left: { px: 0 } };
const SIDE = 120;
const WHITE = { kind: 'colour', rgba: 0xffffffff } as const;
const BOX = { left: 30, top: 20, width: 40, height: 70 };

/** A subject that differs in every pixel, in a box, on green. */
const scene: Colour = (x, y) => (isInBox(x, y) ? [60 + x, 40 + y, 200 - x, 255] : [0, 255, 0, 255]);

function isInBox(x: number, y: number): boolean {
  return x >= BOX.left && x < BOX.left + BOX.width && y >= BOX.top && y < BOX.top + BOX.height;
}

function alphaOf(inside: (x: number, y: number) => number): Buffer {
  return paint(SIDE, SIDE, 1, (x, y) => [inside(x, y)]).data;
}

async function finish(
  finishing: Finishing | undefined,
  options: {
    readonly format?: OutputFormat;
    readonly kind?: 'cutout' | 'mask';
    readonly alpha?: Buffer;
    readonly background?: Pixels;
    readonly colour?: Colour;
  } = {},
) {
  const {
    format = 'png',
    kind = 'cutout',
    alpha = alphaOf((x, y) => (isInBox(x, y) ? 255 : 0)),
  } = options;
  const picture = await toPicture(paint(SIDE, SIDE, 4, options.colour ?? scene));
  const background = options.background && (await toPicture(options.background));
  const matte = { alpha, width: SIDE, height: SIDE, role: 'subject' as const };
  const choices = {
    outputFormat: format,
    resultKind: kind,
    refinement: false,
    foregroundEstimation: false,
    finishing,
  };
  const finished = await finishPicture(picture, [matte], choices, { background });
  return { ...finished, pixels: await readRgba(finished.file, format) };
}

function pixelAt({ data, width }: Pixels, x: number, y: number): number[] {
  return [...data.subarray(4 * (y * width + x), 4 * (y * width + x) + 4)];
}

test("a finished picture's pixels are freed, in whatever way the result is made", async t => {
  for (const finishing of [undefined, { crop: NO_MARGIN }]) {
    const picture = await toPicture(paint(SIDE, SIDE, 4, scene));
    const alpha = alphaOf((x, y) => (isInBox(x, y) ? 255 : 0));
    const matte = { alpha, width: SIDE, height: SIDE, role: 'subject' as const };
    const steps = { refinement: false, foregroundEstimation: false };
    const choices = { outputFormat: 'png', resultKind: 'cutout', ...steps, finishing } as const;
    await finishPicture(picture, [matte], choices);
    t.is(picture.rgba.length, 0);
  }
});

test('a frame that the subject makes larger than it may be › is refused by the name of its field, and one that is bounded is made', async t => {
  const wide = {
    top: { percent: 100 },
    right: { px: 9000 },
    bottom: { px: 9000 },
    left: { px: 0 },
  };
  // ava would print the returned picture.
  await t.throwsAsync(async () => void (await finish({ crop: wide })), {
    code: 'INVALID_PARAMETER',
    message: /^crop_margin makes a frame of \d+ pixels/,
  });
  const { size } = await finish({ crop: wide, sizeMaxMegapixels: 0.05 });
  t.true(size.width * size.height <= 50_000);
});

test('without finishing › a result has the same bytes as with empty finishing fields', async t => {
  for (const format of TRANSPARENT_FORMATS) {
    const plain = await finish(undefined, { format });
    const asked = await finish({}, { format });
    t.deepEqual(asked.file, plain.file, format);
    t.is(plain.timings.finishMs, 0);
  }
});

test('without finishing › a result has the box of the subject', async t => {
  const { subject, size } = await finish(undefined);
  const share = (BOX.width * BOX.height) / SIDE ** 2;
  const where = { inputBox: BOX, resultBox: BOX, share };
  t.deepEqual(subject, { ...where, unsure: false, cutOff: false });
  const doubtful = alphaOf((x, y) => (isInBox(x, y) || y === 0 ? 170 : 0));
  t.like((await finish(undefined, { alpha: doubtful })).subject, { unsure: true, cutOff: true });
  t.deepEqual(size, { width: SIDE, height: SIDE });
  t.is((await finish(undefined, { alpha: alphaOf(() => 0) })).subject, undefined);
});

/** Checksums of results without finishing; for PNG of the pixels. */
const RECORDED = {
  'cutout png': 'f0c14bf9810bf70088070bbee3ebad9798588d657f99b71c1ac5fa410fcf4b97',
  'cutout webp': '0dc7e32fe3cc62a9d819b6225a5919dba34b8af4d2af6edd0a86050829ba21dc',
  'mask png': '4bfca47037e88d444a460ee7618a8aac88111fe017642926882f418dbf4144b6',
  'mask webp': 'c6fb6ddea21a4ff248ccd2ade55a43686fa2b3db21a335f4fb76aad739e0d6ca',
};

test('without finishing the result is as recorded', async t => {
  const pixels = paint(150, 110, 4, (x, y) => [
    (x * 7 + y * 3) & 255,
    (x * y) & 255,
    200 - x,
    x < 20 ? 10 * x : 255,
  ]);
  const { data: alpha } = paint(64, 64, 1, (x, y) => [
    Math.max(0, Math.min(255, Math.round((20 - Math.hypot(x - 32, y - 30)) * 30 + 128))),
  ]);
  for (const [name, digest] of Object.entries(RECORDED)) {
    const [resultKind, outputFormat] = name.split(' ') as ['cutout' | 'mask', 'png' | 'webp'];
    const matte = { alpha, width: 64, height: 64, role: 'subject' as const };
    const choices = { refinement: true, foregroundEstimation: true, outputFormat, resultKind };
    const { file } = await finishPicture(await toPicture(pixels), [matte], choices);
    const bytes = outputFormat === 'png' ? await sharp(file).raw().toBuffer() : file;
    t.is(createHash('sha256').update(bytes).digest('hex'), digest, name);
  }
});

test('a crop › copies pixels, and has nothing beyond the input', async t => {
  const crop = { ...NO_MARGIN, top: { px: 33 }, right: { px: 5 } };
  const { pixels, subject } = await finish({ crop });
  t.deepEqual([pixels.width, pixels.height], [45, 103]);
  for (let y = 0; y < pixels.height; y++) {
    for (let x = 0; x < pixels.width; x++) {
      const [fromX, fromY] = [x + BOX.left, y + BOX.top - 33];
      const expected = isInBox(fromX, fromY) ? [...scene(fromX, fromY)] : [0, 0, 0, 0];
      t.deepEqual(pixelAt(pixels, x, y), expected, `${x}, ${y}`);
    }
  }
  t.deepEqual(subject?.resultBox, { ...BOX, left: 0, top: 33 });
});

test('a crop › of a matte alone is the matte, grey', async t => {
  const alpha = alphaOf((x, y) => (isInBox(x, y) ? 100 + x : 0));
  const { pixels } = await finish({ crop: NO_MARGIN }, { kind: 'mask', alpha });
  t.deepEqual([pixels.width, pixels.height], [BOX.width, BOX.height]);
  for (let x = 0; x < BOX.width; x++) {
    const grey = 100 + x + BOX.left;
    t.deepEqual(pixelAt(pixels, x, 9), [grey, grey, grey, 255]);
  }
});

test('a region › keeps only the subject inside of it', async t => {
  const [left, top, right, bottom] = [{ px: 0 }, { px: 0 }, { px: 50 }, { percent: 50 }];
  const { pixels, subject } = await finish({ region: { left, top, right, bottom } });
  const inputBox = { left: 30, top: 20, width: 20, height: 40 };
  t.deepEqual(subject?.inputBox, inputBox);
  t.is(pixelAt(pixels, 50, 30)[3], 0);
  t.deepEqual(pixelAt(pixels, 49, 59), [...scene(49, 59)]);
});

test('a background › of a colour is mixed with soft edges, and opaque', async t => {
  const alpha = alphaOf((x, y) => (isInBox(x, y) ? 128 : 0));
  const background = { kind: 'colour', rgba: 0xff000aff } as const;
  const { pixels } = await finish({ background }, { alpha });
  t.deepEqual(pixelAt(pixels, 0, 0), [255, 0, 10, 255]);
  const [red = 0, green = 0, blue = 0] = scene(40, 30);
  const mix = (own: number, behind: number) => Math.round((own * 128 + behind * 127) / 255);
  t.deepEqual(pixelAt(pixels, 40, 30), [mix(red, 255), mix(green, 0), mix(blue, 10), 255]);
});

test('a background › that lets light through stays so, with straight alpha', async t => {
  const background = { kind: 'colour', rgba: 0x64c83280 } as const;
  const { pixels } = await finish({ background });
  t.deepEqual(pixelAt(pixels, 0, 0), [100, 200, 50, 128]);
  t.deepEqual(pixelAt(pixels, 40, 30), [...scene(40, 30)]);
  const none = await finish({ background: { kind: 'colour', rgba: 0x64c83200 } });
  t.deepEqual(pixelAt(none.pixels, 0, 0), [0, 0, 0, 0]);
});

test('a background › of a picture covers the frame, from its middle', async t => {
  // Wider than the frame: a third is cut off on each side.
  const background = paint(360, 120, 3, x => [x < 120 || x >= 240 ? 255 : x - 100, 9, 9]);
  const { pixels } = await finish({ background: { kind: 'picture' } }, { background });
  t.deepEqual(pixelAt(pixels, 0, 100), [20, 9, 9, 255]);
  t.deepEqual(pixelAt(pixels, 119, 0), [139, 9, 9, 255]);
  t.deepEqual(pixelAt(pixels, 40, 30), [...scene(40, 30)]);
});

test('a background › of a transparent picture stays transparent, and is laid on white for JPEG', async t => {
  const background = paint(60, 60, 4, () => [0, 0, 255, 51]);
  const asked = { background: { kind: 'picture' } } as const;
  const png = await finish(asked, { background });
  t.deepEqual(pixelAt(png.pixels, 0, 0), [0, 0, 255, 51]);
  const jpeg = await finish(asked, { background, format: 'jpeg' });
  const [red = 0, , blue = 0] = pixelAt(jpeg.pixels, 0, 0);
  t.true(Math.abs(red - 204) <= 3 && blue >= 250, `${red} ${blue}`);
});

for (const format of [...TRANSPARENT_FORMATS, 'jpeg', 'zip'] as const) {
  test(`a background › lies behind the subject as ${format}`, async t => {
    const crop = { top: { px: 10 }, right: { px: 10 }, bottom: { px: 10 }, left: { px: 10 } };
    const { file, pixels } = await finish({ background: WHITE, crop }, { format });
    const near = (x: number, y: number, expected: readonly number[]) => {
      for (const [i, value] of pixelAt(pixels, x, y).slice(0, 3).entries()) {
        t.true(Math.abs(value - at(expected, i)) <= 12, `${format} at ${x}, ${y}: ${value}`);
      }
    };
    near(2, 2, [255, 255, 255]);
    near(30, 45, [...scene(30 + BOX.left - 10, 45 + BOX.top - 10)]);
    if (format !== 'zip') return;
    const { data } = await readRgba(openZip(file).alpha, 'png');
    t.true(
      data.every((value, i) => i % 4 !== 0 || value === 255),
      'nothing is transparent',
    );
  });
}

/** One colour with edges of every softness on black, which must not show. */
const red: Colour = (x, y) => (isInBox(x, y) ? [230, 30, 20, 255] : [0, 0, 0, 255]);
const soft = alphaOf((x, y) => {
  if (!isInBox(x, y)) return 0;
  return Math.min(255, 40 * (x - BOX.left + 1), 25 * (y - BOX.top + 1));
});

for (const outputWidth of [13, 60, 119, 240, 501]) {
  test(`scaling › to ${outputWidth} px changes no colour at any edge`, async t => {
    const { pixels } = await finish({ outputWidth }, { colour: red, alpha: soft });
    let seen = 0;
    for (let i = 0; i < pixels.data.length; i += 4) {
      const [r = 0, g = 0, b = 0, alpha = 0] = pixels.data.subarray(i, i + 4);
      if (alpha === 0) {
        t.is(`${r} ${g} ${b}`, '0 0 0');
        continue;
      }
      seen += 1;
      t.is(`${r} ${g} ${b}`, '230 30 20', `alpha ${alpha}`);
    }
    t.true(seen > 20);
  });
}

test('scaling › leaves nothing beside a hard edge, and no strip at a border', async t => {
  const { pixels, size } = await finish({ crop: NO_MARGIN, outputWidth: 111 }, { colour: red });
  t.deepEqual(size, { width: 111, height: 194 });
  for (let i = 3; i < pixels.data.length; i += 4) t.is(pixels.data[i], 255);
  const whole = await finish({ outputWidth: 77 }, { colour: red });
  const row = Array.from({ length: 77 }, (_, x) => at(pixelAt(whole.pixels, x, 30), 3));
  const edges = row.filter(alpha => alpha > 2 && alpha < 253);
  t.true(edges.length <= 2, `edges of at most a pixel: ${row}`);
});

test('scaling › is the same before or after it is laid on a colour', async t => {
  const background = { kind: 'colour', rgba: 0x2040c0ff } as const;
  // At a hard edge the two differ by the overshoot; alpha cannot overshoot.
  const slope = (x: number, y: number) => 90 - 2 * Math.hypot(x - 60, y - 60);
  const alpha = alphaOf((x, y) => 255 / (1 + Math.exp(-slope(x, y) / 9)));
  const even: Colour = () => [230, 30, 20, 255];
  const scaled = await finish({ outputWidth: 53, background }, { colour: even, alpha });
  const laid = await finish({ background }, { colour: even, alpha });
  const picture = await finish(
    { outputWidth: 53 },
    { colour: (x, y) => pixelAt(laid.pixels, x, y), alpha: alphaOf(() => 255) },
  );
  for (const [i, value] of scaled.pixels.data.entries()) {
    t.true(Math.abs(value - at(picture.pixels.data, i)) <= 2, `byte ${i}`);
  }
});

test('scaling › of a mask is of its alpha', async t => {
  const mask = await finish({ outputWidth: 53 }, { kind: 'mask', alpha: soft });
  const cutout = await finish({ outputWidth: 53 }, { alpha: soft });
  for (let i = 0; i < mask.pixels.data.length; i += 4) {
    t.is(mask.pixels.data[i], cutout.pixels.data[i + 3]);
  }
});

interface Wanted {
  /** Absent: opaque. */
  readonly alpha?: Buffer;
  readonly resultKind?: 'cutout' | 'mask';
}

async function matted(pixels: Pixels, format: OutputFormat, wanted?: Wanted): Promise<Buffer> {
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

/** Opaque in the middle, soft at its border, empty outside. */
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
    const file = await matted(slope, format);
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
    // A blue subject; only the background is green.
    const picture = paint(96, 96, 3, (x, y) => (isFar(x, y) ? [40, 250, 40] : [30, 30, 200]));
    const file = await matted(picture, format, { alpha: disc(96) });
    const { data } = await readRgba(file, format);
    let hidden = 0;
    let pixels = 0;
    for (let i = 0; i < data.length / 4; i++) {
      if (!isFar(i % 96, Math.floor(i / 96))) continue;
      t.is(data[4 * i + 3], 0);
      // JPEG XL may continue the subject's colour here.
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
    const file = await matted(paintSlope(48, 48), format, options);
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
    t.is(icc !== undefined && isSrgbProfile(icc), format === 'webp');
    t.is(result.includes('sRGB\0'), format === 'png');
    t.is(result.includes(Buffer.from('nclx\0\x01\0\x0d')), format === 'avif');
  });
}

function gps(canary: string) {
  return { GPSLatitudeRef: 'N', GPSLatitude: '51/1 30/1 0/1', GPSProcessingMethod: canary };
}

test('a result › is refined and recoloured where each is asked for, a mask refined alone', async t => {
  const picture = await toPicture(
    paint(96, 96, 3, (x, y) => (Math.hypot(x - 50, y - 48) < 30 ? [200, 40, 30] : [30, 160, 60])),
  );
  const matte = { alpha: disc(48), width: 48, height: 48, role: 'subject' as const };
  const made = async (
    resultKind: 'cutout' | 'mask',
    refinement: boolean,
    foregroundEstimation: boolean,
  ) => {
    const own = { ...picture, rgba: picture.rgba.slice() };
    const choices = { refinement, foregroundEstimation, resultKind, outputFormat: 'png' } as const;
    return (await finishPicture(own, [matte], choices)).file.toString('hex');
  };
  const files = [];
  for (const kind of ['cutout', 'mask'] as const) {
    for (const refined of [true, false]) {
      files.push(await made(kind, refined, true), await made(kind, refined, false));
    }
  }
  t.is(new Set(files.slice(0, 4)).size, 4, 'of a cut-out each choice is seen');
  const [refined, sameRefined, plain, samePlain] = files.slice(4);
  t.deepEqual([sameRefined, samePlain], [refined, plain]);
  t.not(refined, plain);
});

test("a result › the source's transparency is multiplied into the result's", async t => {
  const source = paint(64, 64, 4, x => [120, 130, 140, x < 32 ? 0 : 128]);
  const alpha = Buffer.alloc(64 * 64, 128);
  const { data } = await readRgba(await matted(source, 'png', { alpha }), 'png');
  t.deepEqual([...data.subarray(0, 4)], [0, 0, 0, 0]);
  t.deepEqual([...data.subarray(4 * 40, 4 * 41)], [120, 130, 140, 64]);
  const mask = await matted(source, 'png', { alpha, resultKind: 'mask' });
  const grey = await sharp(mask).toColourspace('b-w').raw().toBuffer();
  t.deepEqual([grey[0], grey[40]], [0, 64]);
});

test('a result › every format keeps alpha exactly, but WebP, which is at most 1 off', async t => {
  const alpha = disc(80);
  const read = async (format: OutputFormat) => {
    const file = await matted(paintSlope(80, 80), format, { alpha });
    const { data } = await readRgba(file, format);
    return Math.max(...alpha.map((value, i) => Math.abs(value - at(data, 4 * i + 3))));
  };
  for (const format of TRANSPARENT_FORMATS)
    t.is(await read(format), format === 'webp' ? 1 : 0, format);
});

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
      // Each format with the least sure matte; one with all.
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

/** Alpha is not stretched to a range: an unsure matte stays unsure. */
function requireAlpha(rgba: Buffer, said: string, isTransparent: boolean, label: string): void {
  const alphas = rgba.filter((_, i) => i % 4 === 3);
  const [least, most] = [Math.min(...alphas), Math.max(...alphas)];
  if (isTransparent || said === 'no subject') assert.deepEqual([least, most], [0, 0], label);
  else if (said === 'all subject') assert.deepEqual([least, most], [255, 255], label);
  else assert.ok(most <= 20, `${label}: ${least} to ${most}`);
}

const SHADOW = { opacity: 50, blur: 6, offsetX: 0, offsetY: 5 };
const blob = (x: number, y: number) =>
  Math.max(0, Math.min(255, 64 * (40 - Math.hypot(x - 50, y - 50))));

test('a shadow › leaves the opaque pixels as they are, whatever is behind and however it is scaled', async t => {
  const framings: readonly Finishing[] = [
    {},
    { crop: NO_MARGIN, scalePercent: 70 },
    { outputWidth: 300 },
    { background: { kind: 'colour', rgba: 0xff00ffff } },
    { background: { kind: 'colour', rgba: 0x00ff0080 }, outputHeight: 77 },
  ];
  for (const framing of framings) {
    const alpha = alphaOf(blob);
    const plain = await finish(framing, { alpha });
    const cast = await finish({ ...framing, shadow: SHADOW }, { alpha });
    t.deepEqual(cast.size, plain.size);
    t.deepEqual(cast.subject, plain.subject);
    const { background: _, ...layout } = framing;
    const cutOut = await finish(layout, { alpha });
    let [opaque, darker] = [0, 0];
    for (let i = 0; i < plain.pixels.data.length; i += 4) {
      const one = plain.pixels.data.subarray(i, i + 4);
      const other = cast.pixels.data.subarray(i, i + 4);
      if (cutOut.pixels.data[i + 3] === 255) {
        opaque += 1;
        assert.deepEqual(other, one, `pixel ${i / 4}`);
      }
      assert.ok(at(other, 3) >= at(one, 3), 'it hides nothing that was there');
      if (!other.equals(one)) darker += 1;
    }
    t.true(opaque > 1000 && darker > 500, `${opaque} opaque, ${darker} in the shadow`);
  }
});

test('a shadow › is black, lies where its offset says, and fades out inside of the frame', async t => {
  const shadow = { opacity: 100, blur: 0, offsetX: 20, offsetY: 10 };
  const { pixels } = await finish({ shadow });
  // 20 and 10 % of the longer side, 70.
  const [left, top] = [BOX.left + 14, BOX.top + 7];
  t.deepEqual(pixelAt(pixels, left + BOX.width - 3, top + BOX.height - 3), [0, 0, 0, 255]);
  t.deepEqual(pixelAt(pixels, left + BOX.width + 3, top + BOX.height - 3), [0, 0, 0, 0]);
  t.deepEqual(pixelAt(pixels, left + BOX.width - 3, top - 3), [0, 0, 0, 0], 'above it');
  const { pixels: blurred } = await finish({ shadow: { ...shadow, blur: 10 } });
  const middle = top + BOX.height / 2;
  const row = Array.from({ length: 30 }, (_, x) =>
    at(pixelAt(blurred, BOX.left + BOX.width + x, middle), 3),
  );
  t.deepEqual(
    row,
    row.toSorted((a, b) => b - a),
    'it falls outwards',
  );
  t.true(at(row, 0) > 240 && at(row, 29) === 0);
  t.true(new Set(row).size > 12, 'in steps, not at once');
});

test('a shadow › of twice the picture is the same shadow', async t => {
  const shadow = { opacity: 80, blur: 8, offsetX: 4, offsetY: 4 };
  const { pixels } = await finish({ shadow });
  const { pixels: twice } = await finish({ shadow, outputWidth: 2 * SIDE });
  let [worst, where] = [0, ''];
  for (let y = 2; y < SIDE - 2; y++) {
    for (let x = 2; x < SIDE - 2; x++) {
      const isNear = [-2, 2].some(dx => [-2, 2].some(dy => isInBox(x + dx, y + dy)));
      if (isNear) continue;
      const four = [0, 1, 2, 3].map(i => at(pixelAt(twice, 2 * x + (i & 1), 2 * y + (i >> 1)), 3));
      const mean = four.reduce((sum, alpha) => sum + alpha, 0) / 4;
      const off = Math.abs(at(pixelAt(pixels, x, y), 3) - mean);
      if (off > worst) [worst, where] = [off, `at ${x} ${y}`];
    }
  }
  t.true(worst < 8, `${worst} of 255 ${where}`);
});

test('a shadow › has no bands: a wide and faint one has no long runs of one alpha', async t => {
  const shadow = { opacity: 12, blur: 20, offsetX: 0, offsetY: 0 };
  const { pixels } = await finish({ shadow, outputWidth: 1200 });
  const y = 550;
  let [run, longest, last] = [0, 0, -1];
  for (let x = 720; x < 900; x++) {
    const alpha = at(pixelAt(pixels, x, y), 3);
    if (alpha === 0) break;
    run = alpha === last ? run + 1 : 1;
    [longest, last] = [Math.max(longest, run), alpha];
  }
  t.true(longest <= 12, `${longest} pixels of one alpha`);
});

test('a shadow › needs a subject', async t => {
  const alpha = alphaOf(() => 0);
  const plain = await finish({}, { alpha });
  t.deepEqual((await finish({ shadow: SHADOW }, { alpha })).file, plain.file);
});

test("a picture's own ground › is behind crop and frame, and white beyond it, with every pixel as it was", async t => {
  const original = { background: { kind: 'original' } } as const;
  const { pixels: whole } = await finish(original);
  t.deepEqual(pixelAt(whole, 2, 2), [0, 255, 0, 255]);
  t.deepEqual(pixelAt(whole, 40, 30), [100, 70, 160, 255]);
  // 30 of the 40 pixels lie in the picture on the left.
  const crop = { ...NO_MARGIN, left: { px: 40 }, right: { px: 5 } };
  const { pixels, size, subject } = await finish({ ...original, crop });
  t.deepEqual(size, { width: 85, height: 70 });
  t.like(subject, { resultBox: { left: 40, top: 0, width: 40, height: 70 } });
  t.deepEqual(pixelAt(pixels, 9, 5), [255, 255, 255, 255], 'beyond the picture');
  t.deepEqual(pixelAt(pixels, 10, 5), [0, 255, 0, 255]);
  t.deepEqual(pixelAt(pixels, 82, 5), [0, 255, 0, 255]);
  t.deepEqual(pixelAt(pixels, 40, 0), [90, 60, 170, 255]);
  const square = { crop: NO_MARGIN, aspectRatio: { width: 1, height: 1 } };
  const { pixels: padded } = await finish({ ...original, ...square });
  t.deepEqual([padded.width, padded.height], [70, 70]);
  t.deepEqual(pixelAt(padded, 2, 2), [0, 255, 0, 255]);
  const { pixels: scaled } = await finish({ ...original, ...square, outputWidth: 140 });
  t.deepEqual(pixelAt(scaled, 4, 4), [0, 255, 0, 255]);
});

test("a picture's own ground › is white where the picture is transparent, and a JPEG can hold it", async t => {
  const colour: Colour = (x, y) => (x < 10 ? [9, 9, 9, 0] : scene(x, y));
  const original = { background: { kind: 'original' } } as const;
  const { pixels } = await finish(original, { colour });
  t.deepEqual(pixelAt(pixels, 3, 3), [255, 255, 255, 255]);
  t.deepEqual(pixelAt(pixels, 20, 3), [0, 255, 0, 255]);
  const { file } = await finish(original, { colour, format: 'jpeg' });
  t.is((await sharp(file).metadata()).format, 'jpeg');
});

test('a quality › makes smaller files, and the own one the same bytes', async t => {
  const white = { background: WHITE };
  for (const format of ['jpeg', 'webp', 'avif'] as const) {
    const bytes = async (quality?: number) => {
      const { file } = await finish({ ...white, ...(quality && { quality }) }, { format });
      return file;
    };
    const own = await bytes();
    t.true((await bytes(30)).length < own.length, format);
    t.true((await bytes(100)).length > own.length, format);
    if (format !== 'avif') t.deepEqual(await bytes(90), own);
  }
});
