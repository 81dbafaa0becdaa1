/** What is not the picture is no reason to refuse it: JPEG XL's boxes are in jxl-metadata.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateSync } from 'node:zlib';
import type { Sharp } from 'sharp';
import { decodeFile } from '../../../src/picture/codecs/decode.ts';
import { decodeBackground } from '../../../src/picture/worker/background.ts';
import { asSharp, createPngChunk, insertPngChunks, paintSlope } from '../pictures.ts';

const asIs = { declared: undefined, onOpened: () => undefined };
const slope = asSharp(paintSlope(60, 40));
/** Longer than what is damaged of each. */
const NOTE = 'N'.repeat(200);
const TIFF_BEGINS = [Buffer.from('II*\0'), Buffer.from('MM\0*')];
/** The signature of a profile, 36 bytes behind its begin. */
const PROFILE_SIGNATURE = Buffer.from('acsp');

type Write = (picture: Sharp) => Sharp;
const FORMATS: Readonly<Record<string, Write>> = {
  jpeg: picture => picture.jpeg({ quality: 95 }),
  webp: picture => picture.webp({ lossless: true }),
  avif: picture => picture.avif({ quality: 95, effort: 0 }),
};

/** Bytes of junk over those from `at` on. */
function spoil(file: Buffer, at: number, bytes: number): Buffer {
  assert.ok(at > 0);
  const spoilt = Buffer.from(file);
  for (let i = 0; i < bytes; i++) spoilt[at + i] = (i * 73 + 129) & 255;
  return spoilt;
}

async function requireSame(odd: Buffer, plain: Buffer): Promise<void> {
  const expected = await decodeFile(plain, asIs);
  assert.deepEqual(await decodeFile(odd, asIs), expected);
  assert.deepEqual(await decodeBackground(odd, asIs), expected);
}

for (const [format, write] of Object.entries(FORMATS)) {
  const plain = await write(slope.clone()).toBuffer();

  test(`${format} with Exif that is none`, async () => {
    const file = await write(slope.clone().withExif({ IFD0: { Copyright: NOTE } })).toBuffer();
    const at = Math.max(...TIFF_BEGINS.map(begin => file.indexOf(begin)));
    for (const bytes of [4, 12, 120]) await requireSame(spoil(file, at, bytes), plain);
    // The directory's place is beyond the end.
    await requireSame(spoil(file, at + 4, 4), plain);
  });

  test(`${format} with a profile that is none, as if it had none`, async () => {
    const file = await write(slope.clone().withIccProfile('p3', { attach: true })).toBuffer();
    const at = file.indexOf(PROFILE_SIGNATURE);
    const untagged = await write(slope.clone().withIccProfile('p3', { attach: false })).toBuffer();
    await requireSame(spoil(file, at - 32, 60), untagged);
  });
}

test('PNG with chunks beside the picture that hold nothing of use', async () => {
  const plain = await slope.clone().png().toBuffer();
  const junk = spoil(Buffer.alloc(80, 1), 1, 79);
  const ODD = {
    eXIf: junk,
    iCCP: Buffer.concat([Buffer.from('name\0\0'), deflateSync(junk)]),
    iTXt: junk,
    zTXt: Buffer.concat([Buffer.from('Raw profile type exif\0\0'), junk]),
    tIME: junk.subarray(0, 7),
    gAMA: Buffer.alloc(4),
    cICP: Buffer.alloc(4, 255),
    abCd: junk,
  };
  for (const [type, body] of Object.entries(ODD)) {
    await requireSame(insertPngChunks(plain, createPngChunk(type, body)), plain);
  }
});
