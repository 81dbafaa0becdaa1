import { THUMBNAIL_BYTES_MAX, THUMBNAIL_SIDE_PX_MAX } from '@matting/proto/contract/limits.ts';
import { at } from '@matting/test-support/at.ts';
import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import sharp from 'sharp';
import { paint, paintSlope } from '../../test/pictures.ts';
import type { RawPixels } from '../rgba-picture.ts';
import { encodeThumbnail } from './thumbnail.ts';

const SIDE = THUMBNAIL_SIDE_PX_MAX;

async function readThumbnail(pixels: RawPixels) {
  const file = await encodeThumbnail(pixels);
  if (file === undefined) throw new Error('there is no thumbnail');
  const { format } = await sharp(file).metadata();
  const raw = await sharp(file).ensureAlpha().raw().toBuffer({ resolveWithObject: true });
  const { width, height } = raw.info;
  const pixelAt = (x: number, y: number) => [...raw.data.subarray(4 * (y * width + x))].slice(0, 4);
  return { bytes: file.length, format, width, height, pixelAt };
}

function halves(width: number, height: number): RawPixels {
  const { data } = paint(width, height, 4, x =>
    2 * x < width ? [200, 40, 40, 255] : [0, 0, 255, 0],
  );
  return { data, width, height, channels: 4 };
}

function noise(width: number, height: number, channels: 1 | 4): RawPixels {
  const random = new Random(7);
  const data = Buffer.from(
    Array.from({ length: width * height * channels }, () => random.below(256)),
  );
  return { data, width, height, channels };
}

test('a thumbnail › has the proportions of its picture, whatever they are, and is never larger', async t => {
  const shapes = [
    [3000, 2000, SIDE, 107],
    [2000, 3000, 107, SIDE],
    [SIDE + 1, 20, SIDE, 20],
    [1, 10_000, 1, SIDE],
    [10_000, 1, SIDE, 1],
    [10_000, 40, SIDE, 1],
    [1, 1, 1, 1],
    [31, 17, 31, 17],
  ] as const;
  for (const [width, height, ...expected] of shapes) {
    for (const channels of [1, 4] as const) {
      const data = Buffer.alloc(width * height * channels, 200);
      const made = await readThumbnail({ data, width, height, channels });
      const name = `${width} x ${height}, ${channels}`;
      t.deepEqual([made.format, made.width, made.height], ['webp', ...expected], name);
      t.true(made.bytes <= THUMBNAIL_BYTES_MAX, name);
    }
  }
});

test('a thumbnail › of a cut-out has its alpha, and no colour from under it', async t => {
  for (const [width, height] of [
    [120, 90],
    [1999, 1500],
  ] as const) {
    const { pixelAt, ...made } = await readThumbnail(halves(width, height));
    const middle = Math.floor(made.height / 2);
    const left = Math.floor(made.width / 2) - 4;
    const right = Math.floor(made.width / 2) + 4;
    t.is(at(pixelAt(right, middle), 3), 0);
    t.is(at(pixelAt(left, middle), 3), 255);
    const [red = 0, , blue = 255] = pixelAt(left, middle);
    t.true(red > 180 && blue < 70, `${pixelAt(left, middle).join()}`);
  }
});

test('a thumbnail › of a mask is its grey, opaque', async t => {
  const { data } = paint(800, 400, 1, x => [x < 400 ? 255 : 0]);
  const { pixelAt } = await readThumbnail({ data, width: 800, height: 400, channels: 1 });
  t.deepEqual(pixelAt(20, 40), [255, 255, 255, 255]);
  t.deepEqual(pixelAt(140, 40), [0, 0, 0, 255]);
});

test('a thumbnail › has no more bytes than allowed, of noise too, or there is none', async t => {
  const { bytes } = await readThumbnail(noise(1000, 800, 4));
  t.true(bytes <= THUMBNAIL_BYTES_MAX, `${bytes} bytes`);
  t.is(await encodeThumbnail(noise(SIDE, SIDE, 4)), undefined);
});

test('a thumbnail › leaves the pixels as they are', async t => {
  const { data } = paintSlope(1000, 700);
  const rgba = await sharp(data, { raw: { width: 1000, height: 700, channels: 3 } })
    .ensureAlpha()
    .raw()
    .toBuffer();
  const before = Buffer.from(rgba);
  await encodeThumbnail({ data: rgba, width: 1000, height: 700, channels: 4 });
  t.true(rgba.equals(before));
});
