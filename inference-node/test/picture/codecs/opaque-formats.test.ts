import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'ava';
import sharp from 'sharp';
import { at } from '../../../../test/support/at.ts';
import { findProgram } from '../../../../test/support/foreign-program.ts';
import { encodePixels } from '../../../src/picture/codecs/encode.ts';
import type { RawPixels } from '../../../src/picture/codecs/raw-pixels.ts';
import { openZip, paint } from '../pictures.ts';

const python = findProgram('python3');

const SIZE = { width: 40, height: 24 };

/** A red subject with a soft right edge; black and transparent beside it. */
function subject(): RawPixels {
  const { data } = paint(SIZE.width, SIZE.height, 4, x => {
    if (x < 20) return [200, 40, 30, 255];
    return x < 24 ? [200, 40, 30, 250 - 60 * (x - 20)] : [0, 0, 0, 0];
  });
  return { data, ...SIZE, channels: 4 };
}

test('JPEG: three channels of full resolution, no resolution in print, no profile', async t => {
  const { data } = paint(SIZE.width, SIZE.height, 4, x => [(x % 2) * 255, 0, 200, 255]);
  const file = await encodePixels({ data, ...SIZE, channels: 4 }, 'jpeg');
  const metadata = await sharp(file).metadata();
  const { format, channels, chromaSubsampling, density, icc } = metadata;
  t.deepEqual(
    { format, channels, chromaSubsampling },
    {
      format: 'jpeg',
      channels: 3,
      chromaSubsampling: '4:4:4',
    },
  );
  t.is(icc, undefined);
  t.is(file.includes('JFIF'), false, `a density of ${density}`);
  const pixels = await sharp(file).raw().toBuffer();
  for (const [i, value] of pixels.entries()) {
    t.true(Math.abs(value - at(data, 4 * Math.floor(i / 3) + (i % 3))) < 16, `sample ${i}`);
  }
});

test('ZIP: alpha is exact, colours reach beyond the edge', async t => {
  const { colours, alpha } = openZip(await encodePixels(subject(), 'zip'));
  const metadata = await sharp(alpha).metadata();
  t.deepEqual([metadata.channels, metadata.depth, metadata.space], [1, 'uchar', 'b-w']);
  const plane = await sharp(alpha).toColourspace('b-w').raw().toBuffer();
  t.deepEqual(
    [...plane],
    [...subject().data].filter((_, i) => i % 4 === 3),
  );
  const seen = await sharp(colours).raw().toBuffer();
  for (let x = 0; x < SIZE.width; x++) {
    t.true(Math.abs(at(seen, 3 * x) - 200) < 12, `red at column ${x}: ${at(seen, 3 * x)}`);
  }
});

test('ZIP: the same picture has the same bytes, stored, and other programs open them', async t => {
  const archive = await encodePixels(subject(), 'zip');
  t.deepEqual(await encodePixels(subject(), 'zip'), archive);
  const { colours, alpha } = openZip(archive);
  t.true(archive.includes(colours) && archive.includes(alpha), 'stored, not deflated');
  if (python === undefined) {
    console.error('NOT TESTED: that other programs open a ZIP, since there is no python3 here');
    return;
  }
  const folder = mkdtempSync(path.join(tmpdir(), 'matting-zip-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  writeFileSync(path.join(folder, 'cutout.zip'), archive);
  const script =
    'import sys, zipfile; z = zipfile.ZipFile("cutout.zip"); sys.exit(z.testzip() or z.extractall())';
  execFileSync(python, ['-c', script], { cwd: folder });
  t.deepEqual(readFileSync(path.join(folder, 'color.jpg')), colours);
  t.deepEqual(readFileSync(path.join(folder, 'alpha.png')), alpha);
});

test('ZIP has no matte alone', async t => {
  const plane: RawPixels = { data: Buffer.alloc(4), width: 2, height: 2, channels: 1 };
  await t.throwsAsync(encodePixels(plane, 'zip'));
});
