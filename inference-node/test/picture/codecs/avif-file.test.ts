import test from 'ava';
import sharp from 'sharp';
import { readAvifColour } from '#contract/image-header/avif-colour.ts';
import { at as elementAt } from '../../../../test/support/at.ts';
import { readCodedItems, writeAvif } from '../../../src/picture/codecs/files/avif-file.ts';
import { asSharp, decode, paint } from '../pictures.ts';

const WIDTH = 80;
const STRIP_HEIGHT = 64;

/** A strip of the picture below: colours and alpha of one file. */
async function codeStrip(top: number, bitdepth: 8 | 10 | 12 = 8) {
  const strip = paint(WIDTH, STRIP_HEIGHT, 4, (x, y) => [
    (x * 3) & 255,
    top + y,
    120,
    (x ^ (top + y)) & 255,
  ]);
  const file = await asSharp(strip)
    .avif({ quality: 100, effort: 0, chromaSubsampling: '4:4:4', bitdepth })
    .toBuffer();
  const items = readCodedItems(file);
  return { colours: elementAt(items, 0), alpha: elementAt(items, 1) };
}

/** The same file with other code points for its colours. */
function claimCicp(file: Buffer, primaries: number, transfer: number): Buffer {
  const claimed = Buffer.from(file);
  for (let at = claimed.indexOf('nclx'); at !== -1; at = claimed.indexOf('nclx', at + 4)) {
    claimed.writeUInt16BE(primaries, at + 4);
    claimed.writeUInt16BE(transfer, at + 6);
  }
  return claimed;
}

test('files that the encoder did not write are refused', async t => {
  const { colours } = await codeStrip(0);
  t.throws(() => readCodedItems(Buffer.from('no AVIF')), { message: /no meta/ });
  const file = await asSharp(paint(16, 16, 3, () => [1, 2, 3]))
    .avif()
    .toBuffer();
  t.is(readCodedItems(file).length, 1);
  const cut = file.subarray(0, file.length - 9);
  t.throws(() => readCodedItems(cut), { message: /cannot be read|outside it/ });
  const strips = Array(257).fill({ colours, alpha: colours });
  t.throws(() => writeAvif({ width: 80, height: 16_448, strips, stripHeight: 64 }), {
    message: /grid/,
  });
});

test('strips make one picture, of which the last is cut to size', async t => {
  const tops = [0, STRIP_HEIGHT, 2 * STRIP_HEIGHT];
  const strips = await Promise.all(tops.map(top => codeStrip(top)));
  for (const count of [1, 2, 3]) {
    const height = (count - 1) * STRIP_HEIGHT + 50;
    const size = { width: WIDTH, height: count === 1 ? STRIP_HEIGHT : height };
    const used = strips.slice(0, count);
    const file = writeAvif({ ...size, strips: used, stripHeight: STRIP_HEIGHT });
    const picture = await decode(file);
    t.deepEqual([picture.width, picture.height], [size.width, size.height]);
    for (let i = 0; i < picture.rgba.length; i++) {
      const [x, y] = [i % WIDTH, Math.floor(i / WIDTH)];
      t.is(elementAt(picture.rgba, i) >>> 24, (x ^ y) & 255, `alpha at ${x},${y}`);
      t.true(Math.abs(((elementAt(picture.rgba, i) >>> 8) & 255) - y) <= 3, `green at ${x},${y}`);
    }
  }
});

test('the colours are as the code points say, in 8, 10 and 12 bits', async t => {
  for (const bitdepth of [8, 10, 12] as const) {
    const strips = [await codeStrip(100, bitdepth)];
    const parts = { width: WIDTH, height: STRIP_HEIGHT, strips, stripHeight: STRIP_HEIGHT };
    const file = writeAvif(parts);
    const plain = await readColour(file);
    for (const [primaries, transfer] of [
      [2, 2],
      [1, 1],
    ] as const) {
      t.deepEqual(await readColour(claimCicp(file, primaries, transfer)), plain);
    }
    const wide = claimCicp(file, 12, 13);
    t.deepEqual((await readAvifColour(wide)).cicp, { primaries: 12, transfer: 13 });
    const [, pqGreen] = await readColour(claimCicp(file, 9, 16));
    t.true(pqGreen > plain[1] + 30 && pqGreen < 255, `${pqGreen}`);
    const hlgGreen = (await readColour(claimCicp(file, 9, 18)))[1];
    t.true(hlgGreen > plain[1] && hlgGreen < pqGreen, `${hlgGreen}`);
  }
});

/** Where the picture is 120, 131, 120. */
async function readColour(file: Buffer) {
  const { rgba } = await decode(file);
  const pixel = elementAt(rgba, 31 * WIDTH + 40);
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255, pixel >>> 24] as const;
}

test('a profile is told from code points', async t => {
  const picture = asSharp(paint(16, 16, 3, () => [200, 40, 90]));
  const file = await picture.withIccProfile('p3').avif().toBuffer();
  t.true((await readAvifColour(file)).hasProfile);
  t.true((await sharp(file).metadata()).hasProfile);
  const png = await picture.png().toBuffer();
  t.false((await readAvifColour(png)).hasProfile);
});
