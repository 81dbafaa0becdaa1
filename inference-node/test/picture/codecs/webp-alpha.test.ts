import test from 'ava';
import sharp from 'sharp';
import { at as elementAt } from '../../../../test/support/at.ts';
import { Random } from '../../../../test/support/random.ts';
import { encodeWebp } from '../../../src/picture/codecs/encode-webp.ts';
import { tagWebp } from '../../../src/picture/codecs/srgb-tag.ts';
import { encodeAlphaPlane, fillEdges } from '../../../src/picture/codecs/webp-alpha.ts';
import { viewAsPixels } from '../../../src/picture/rgba-picture.ts';
import { asSharp, paint } from '../pictures.ts';

type Alpha = (x: number, y: number) => number;

const random = new Random(7);
const noise = () => random.below(256);

const PLANES: Readonly<Record<string, Alpha>> = {
  opaque: () => 255,
  'nothing at all': () => 0,
  'one value': () => 77,
  'two values': x => (x < 40 ? 0 : 255),
  'a soft disc': (x, y) => Math.max(0, Math.min(255, (60 - Math.hypot(x - 80, y - 50)) * 9)),
  'a slope': (x, y) => (x + y) & 255,
  checks: (x, y) => ((x ^ y) & 1) * 255,
  noise: () => noise(),
  'noise in few places': x => (x % 31 === 0 ? noise() : 0),
  // Frequencies that double from value to value: the deepest code there is.
  'very uneven values': (x, y) => Math.min(19, Math.clz32(((y * 331 + x) * 2654435761) >>> 0)),
};

test('a plane of any kind and size comes back exactly', async t => {
  for (const [name, at] of Object.entries(PLANES)) {
    for (const [width, height] of [
      [160, 100],
      [1, 1],
      [1, 300],
      [5000, 3],
    ] as const) {
      const picture = paint(width, height, 4, (x, y) => [90, 120, 150, at(x, y)]);
      const colours = await asSharp(picture).removeAlpha().webp({ quality: 90 }).toBuffer();
      const plane = encodeAlphaPlane(viewAsPixels(picture.data), width);
      const file = tagWebp(colours, width, height, plane);
      const metadata = await sharp(file).metadata();
      t.deepEqual([metadata.width, metadata.height, metadata.hasAlpha], [width, height, true]);
      const read = await sharp(file, { failOn: 'warning' }).extractChannel(3).raw().toBuffer();
      const expected = Buffer.from(picture.data.filter((_, i) => i % 4 === 3));
      t.true(read.equals(expected), `${name} of ${width}x${height}`);
    }
  }
});

test('a matte takes little room', async t => {
  const disc = paint(2000, 1500, 4, (x, y) => [
    0,
    0,
    0,
    Math.max(0, Math.min(255, (600 - Math.hypot(x - 1000, y - 750)) * 20)),
  ]);
  const plane = encodeAlphaPlane(viewAsPixels(disc.data), 2000);
  t.true(plane.length < 60_000, `${plane.length} bytes`);
});

test('what is transparent beside an edge takes the colour of the edge, all else stays black', t => {
  const picture = paint(24, 8, 4, x => (x < 3 ? [200, 100, 50, 255] : [0, 0, 0, 0]));
  const pixels = viewAsPixels(picture.data);
  fillEdges(pixels, 24, 8);
  for (const [i, pixel] of pixels.entries()) {
    const x = i % 24;
    t.is(pixel >>> 0, x < 3 ? 0xff3264c8 : x < 8 ? 0x003264c8 : 0, `pixel ${i}`);
  }
});

test('a large cut-out has its alpha exactly and its colours at the edge', async t => {
  const [width, height] = [600, 410];
  const data = Buffer.alloc(width * height * 4);
  const pixels = viewAsPixels(data);
  for (let i = 0; i < pixels.length; i++) {
    const alpha = Math.max(0, Math.min(255, ((i % width) - 301) * 4));
    if (alpha > 0) pixels[i] = ((alpha << 24) | 0x3264c8) >>> 0;
  }
  const expected = Uint8Array.from(pixels, pixel => pixel >>> 24);
  const file = await encodeWebp({ data, width, height, channels: 4 }, 200_000);
  const read = await sharp(file).raw().toBuffer();
  let worst = 0;
  for (let i = 0; i < expected.length; i++) {
    if (read[4 * i + 3] !== expected[i]) t.fail(`alpha of pixel ${i}`);
    if (elementAt(expected, i) > 0) worst = Math.max(worst, Math.abs(elementAt(read, 4 * i) - 200));
  }
  t.true(worst <= 12, `red off by ${worst}`);
});
