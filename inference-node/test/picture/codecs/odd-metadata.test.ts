/** What is not the picture is no reason to refuse it. */

import { deflateSync } from 'node:zlib';
import test, { type ExecutionContext } from 'ava';
import type { Sharp } from 'sharp';
import { box } from '../../../../proto/contract/test/image-header-samples.ts';
import type { DecodedFile } from '../../../src/picture/codecs/decode.ts';
import { withoutMetadata } from '../../../src/picture/codecs/files/jxl-file.ts';
import { hasJxlTools } from '../../../src/picture/jxl-limit.ts';
import { decodeBackground } from '../../../src/picture/worker/background.ts';
import {
  asSharp,
  createPngChunk,
  decode,
  insertPngChunks,
  paint,
  paintSlope,
  writeJxl,
} from '../pictures.ts';
import { DEPTH_ALPHA_JXL } from './extra-channels.ts';
import { codestreamOf } from './jxl-files.ts';

const slope = asSharp(paintSlope(60, 40));
/** Longer than what is damaged of each. */
const stored = paint(60, 40, 4, (x, y) => [4 * x, 6 * y, 128, 255 - x]);
const codestream = codestreamOf(await writeJxl(stored));
const jxl = await decode(codestream);
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
function spoil(t: ExecutionContext, file: Buffer, at: number, bytes: number): Buffer {
  t.true(at > 0);
  const spoilt = Buffer.from(file);
  for (let i = 0; i < bytes; i++) spoilt[at + i] = (i * 73 + 129) & 255;
  return spoilt;
}

async function requireSame(t: ExecutionContext, odd: Buffer, expected: DecodedFile): Promise<void> {
  t.deepEqual(await decode(odd), expected);
  const asIs = { declared: undefined, onOpened: () => undefined };
  t.deepEqual(await decodeBackground(odd, asIs), expected);
}

for (const [format, write] of Object.entries(FORMATS)) {
  test(`${format} with Exif that is none`, async t => {
    const plain = await decode(await write(slope.clone()).toBuffer());
    const file = await write(slope.clone().withExif({ IFD0: { Copyright: NOTE } })).toBuffer();
    const at = Math.max(...TIFF_BEGINS.map(begin => file.indexOf(begin)));
    for (const bytes of [4, 12, 120]) await requireSame(t, spoil(t, file, at, bytes), plain);
    // The directory's place is beyond the end.
    await requireSame(t, spoil(t, file, at + 4, 4), plain);
  });

  test(`${format} with a profile that is none, as if it had none`, async t => {
    const file = await write(slope.clone().withIccProfile('p3', { attach: true })).toBuffer();
    const at = file.indexOf(PROFILE_SIGNATURE);
    const untagged = await write(slope.clone().withIccProfile('p3', { attach: false })).toBuffer();
    await requireSame(t, spoil(t, file, at - 32, 60), await decode(untagged));
  });
}

test('PNG with chunks beside the picture that hold nothing of use', async t => {
  const plain = await slope.clone().png().toBuffer();
  const junk = spoil(t, Buffer.alloc(80, 1), 1, 79);
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
    await requireSame(t, insertPngChunks(plain, createPngChunk(type, body)), await decode(plain));
  }
});

/** Of another length than it says. */
function boxOf(type: string, content: Buffer, size: number): Buffer {
  const made = box(type, content);
  made.writeUInt32BE(size);
  return made;
}

/** With its length in 64 bits. */
function largeBox(type: string, content: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64BE(BigInt(16 + content.length));
  return boxOf(type, Buffer.concat([length, content]), 1);
}

const HEAD = Buffer.concat([
  box('JXL ', Buffer.from('0d0a870a', 'hex')),
  box('ftyp', Buffer.from('jxl \0\0\0\0jxl ')),
]);
const whole = box('jxlc', codestream);
const part = (number: number, content: Buffer) =>
  box('jxlp', Buffer.concat([Buffer.from([number >>> 24, 0, 0, number & 255]), content]));
const LAST = 0x80000000;
const halves = [codestream.subarray(0, 100), codestream.subarray(100)] as const;

/** Orientation 6: what is stored would be on its side. */
const TIFF = Buffer.from('4d4d002a00000008000101120003000000010006000000000000', 'hex');
const OFFSET = Buffer.alloc(4);
const noXml = Buffer.from('<x:xmpmeta \xff\0\xfe', 'latin1');

const ODD_JXL: Readonly<Record<string, readonly Buffer[]>> = {
  'Exif without its offset, between parts as pillow-jxl-plugin has it': [
    part(0, halves[0]),
    box('Exif', TIFF),
    part(LAST + 1, halves[1]),
  ],
  'Exif without its offset, before': [box('Exif', TIFF), whole],
  'Exif that says an orientation': [box('Exif', Buffer.concat([OFFSET, TIFF])), whole],
  'Exif whose offset is beyond it': [box('Exif', Buffer.alloc(8, 255)), whole],
  'Exif of nothing': [box('Exif', Buffer.alloc(0)), whole],
  'Exif in 64 bits': [largeBox('Exif', TIFF), largeBox('jxlc', codestream)],
  'Exif to the end of the file': [whole, boxOf('Exif', TIFF, 0)],
  'Exif that is cut short': [whole, boxOf('Exif', TIFF, 5000)],
  'XMP that is no XML': [box('xml ', noXml), whole],
  'jumb that is none': [box('jumb', noXml), whole],
  'compressed Exif that is none': [box('brob', Buffer.from('Exifgarbage')), whole],
  'compressed XMP that is none': [box('brob', Buffer.from('xml garbage')), whole],
  'compressed jumb that is none': [box('brob', Buffer.from('jumbgarbage')), whole],
  'compressed of no type': [box('brob', Buffer.alloc(0)), whole],
  'parts of a JPEG that are none': [box('jbrd', noXml), whole],
  'a box of no known type': [box('abcd', noXml), whole],
  'bytes behind its boxes': [whole, noXml],
};

for (const [name, boxes] of Object.entries(ODD_JXL)) {
  test(`JPEG XL, ${name}: the same picture, and the same background`, async t => {
    const file = Buffer.concat([HEAD, ...boxes]);
    await requireSame(t, file, jxl);
  });
}

test.skipIf(!hasJxlTools())('what djxl reads has no such boxes either', async t => {
  const odd = Buffer.concat([HEAD, ...(ODD_JXL['compressed Exif that is none'] ?? []).slice(0, 1)]);
  const file = Buffer.concat([odd, box('jxlc', codestreamOf(DEPTH_ALPHA_JXL))]);
  t.deepEqual(await decode(file), await decode(DEPTH_ALPHA_JXL));
});

test('a JPEG XL that is cut short or out of order is still refused', async t => {
  const exif = box('Exif', TIFF);
  for (const boxes of [
    [exif, whole.subarray(0, -20)],
    [exif, box('jxlc', codestream.subarray(0, -20))],
    [part(0, halves[0]), exif],
    [part(1, halves[1]), exif, part(LAST, halves[0])],
  ]) {
    const file = Buffer.concat([HEAD, ...boxes]);
    await t.throwsAsync(decode(file), { code: 'PROCESSING_FAILED' });
  }
});

test('nothing is copied where nothing is to go, nor behind more boxes than a picture has', t => {
  for (const file of [codestream, Buffer.concat([HEAD, whole])]) {
    t.is(withoutMetadata(file), file);
  }
  const many = Buffer.concat([HEAD, ...Array.from({ length: 9000 }, () => box('free', OFFSET))]);
  const left = withoutMetadata(many);
  t.is(left.length, HEAD.length + (9000 + 2 - 8192) * (8 + OFFSET.length));
});
