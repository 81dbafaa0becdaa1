/** JPEG XL whose boxes beside its picture are odd: the picture is read all the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeFile } from '../../../src/picture/codecs/decode.ts';
import { withoutMetadata } from '../../../src/picture/codecs/files/jxl-file.ts';
import { hasJxlTools } from '../../../src/picture/jxl-limit.ts';
import { decodeBackground } from '../../../src/picture/worker/background.ts';
import { paint, writeJxl } from '../pictures.ts';
import { DEPTH_ALPHA_JXL } from './extra-channels.ts';
import { codestreamOf } from './jxl-files.ts';

const asIs = { declared: undefined, onOpened: () => undefined };
const picture = paint(60, 40, 4, (x, y) => [4 * x, 6 * y, 128, 255 - x]);
const codestream = codestreamOf(await writeJxl(picture));
const plain = await decodeFile(codestream, asIs);

function box(type: string, content: Buffer, size = 8 + content.length): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(size);
  head.write(type, 4, 'latin1');
  return Buffer.concat([head, content]);
}

/** With its length in 64 bits. */
function largeBox(type: string, content: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64BE(BigInt(16 + content.length));
  return box(type, Buffer.concat([length, content]), 1);
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
const junk = Buffer.from('<x:xmpmeta \xff\0\xfe', 'latin1');

const ODD: Readonly<Record<string, readonly Buffer[]>> = {
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
  'Exif to the end of the file': [whole, box('Exif', TIFF, 0)],
  'Exif that is cut short': [whole, box('Exif', TIFF, 5000)],
  'XMP that is no XML': [box('xml ', junk), whole],
  'jumb that is none': [box('jumb', junk), whole],
  'compressed Exif that is none': [box('brob', Buffer.from('Exifgarbage')), whole],
  'compressed XMP that is none': [box('brob', Buffer.from('xml garbage')), whole],
  'compressed jumb that is none': [box('brob', Buffer.from('jumbgarbage')), whole],
  'compressed of no type': [box('brob', Buffer.alloc(0)), whole],
  'parts of a JPEG that are none': [box('jbrd', junk), whole],
  'a box of no known type': [box('abcd', junk), whole],
  'bytes behind its boxes': [whole, junk],
};

for (const [name, boxes] of Object.entries(ODD)) {
  test(`${name}: the same picture, and the same background`, async () => {
    const file = Buffer.concat([HEAD, ...boxes]);
    assert.deepEqual(await decodeFile(file, asIs), plain);
    assert.deepEqual(await decodeBackground(file, asIs), plain);
  });
}

const skip = hasJxlTools() ? false : 'NOT TESTED: libjxl-tools (djxl, cjxl) are not installed';

test('what djxl reads has no such boxes either', { skip }, async () => {
  const odd = Buffer.concat([HEAD, ...(ODD['compressed Exif that is none'] ?? []).slice(0, 1)]);
  const file = Buffer.concat([odd, box('jxlc', codestreamOf(DEPTH_ALPHA_JXL))]);
  assert.deepEqual(await decodeFile(file, asIs), await decodeFile(DEPTH_ALPHA_JXL, asIs));
});

test('a picture that is cut short or out of order is still refused', async () => {
  const exif = box('Exif', TIFF);
  for (const boxes of [
    [exif, whole.subarray(0, -20)],
    [exif, box('jxlc', codestream.subarray(0, -20))],
    [part(0, halves[0]), exif],
    [part(1, halves[1]), exif, part(LAST, halves[0])],
  ]) {
    const file = Buffer.concat([HEAD, ...boxes]);
    await assert.rejects(decodeFile(file, asIs), { code: 'PROCESSING_FAILED' });
  }
});

test('nothing is copied where nothing is to go, nor behind more boxes than a picture has', () => {
  for (const file of [codestream, Buffer.concat([HEAD, whole])]) {
    assert.equal(withoutMetadata(file), file);
  }
  const many = Buffer.concat([HEAD, ...Array.from({ length: 9000 }, () => box('free', OFFSET))]);
  const left = withoutMetadata(many);
  assert.equal(left.length, HEAD.length + (9000 + 2 - 8192) * (8 + OFFSET.length));
});
