import assert from 'node:assert/strict';
import { Random } from '@matting/test-support/random.ts';
import test, { type ExecutionContext } from 'ava';
import { WINDOW_BYTES } from '../image-header/byte-window.ts';
import { readAvifColour } from '../image-header/heif-file.ts';
import { hasAssociatedAlpha } from '../image-header/jxl.ts';
import { describeUnread, type ImageHeader, readImageHeader } from '../image-header.ts';
import {
  BitWriter,
  box,
  encodedSamples,
  frameHeader,
  ftyp,
  fullBox,
  heifOf,
  JXL_SIGNATURE,
  jxlContainerOf,
  jxlOf,
  pngChunk,
  pngOf,
  putJxlSide,
  SOI,
  segment,
  u16,
  u32,
} from './image-header-samples.ts';

const WINDOW_READS_MAX = 4096;

function headerOf(file: Buffer): Promise<ImageHeader | undefined> {
  return readImageHeader((offset, length) => file.subarray(offset, offset + length), file.length);
}

async function assertUnsized(
  t: ExecutionContext,
  file: Buffer,
  format: ImageHeader['format'],
): Promise<void> {
  const header = await headerOf(file);
  t.is(header?.format, format);
  t.is(header?.width, undefined);
  t.is(header?.height, undefined);
}

async function assertSize(
  t: ExecutionContext,
  file: Buffer,
  width: number,
  height: number,
): Promise<void> {
  const header = await headerOf(file);
  t.deepEqual([header?.width, header?.height], [width, height]);
}

const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>');
const coded = (type: string, size: readonly [number, number] = [9, 9]) => ({ id: 1, type, size });
const cases: [name: string, file: Buffer, seen?: string][] = [
  ['nothing', Buffer.alloc(0)],
  ['one byte', Buffer.from([0xff])],
  ['text', Buffer.from('not a picture at all')],
  ['SVG', svg],
  ['PDF', Buffer.from('%PDF-1.7\n%aaaaaaaaaaaaaaa')],
  ['GIF', Buffer.from('GIF89a\x01\x00\x01\x00\x00\x00\x00;', 'latin1')],
  ['TIFF', Buffer.from('II*\x00\x08\x00\x00\x00\x00\x00\x00\x00', 'latin1')],
  ['big-endian TIFF', Buffer.from('MM\x00*\x00\x00\x00\x08\x00\x00\x00\x00', 'latin1')],
  ['BMP', Buffer.from(`BM${'\x00'.repeat(40)}`, 'latin1')],
  ['PSD', Buffer.from(`8BPS\x00\x01${'\x00'.repeat(40)}`, 'latin1')],
  ['RIFF that is sound', Buffer.from('RIFF\x24\x00\x00\x00WAVEfmt ', 'latin1')],
  ['MP4', Buffer.concat([ftyp('isom', 'mp42'), box('moov')]), 'an MP4 video'],
  ['a brand of no characters', ftyp('\0"\n\xff'), 'an ISO media file of the brand "????"'],
  ['mif1 without items', ftyp('mif1', 'miaf'), 'an ISO media file of the brand "mif1"'],
  ...['jpeg', 'avc1', 'vvc1', 'j2k1'].map((type): [string, Buffer, string] => [
    `HEIF of ${type}`,
    heifOf(['heic', 'mif1', 'avif'], [coded(type)], 1),
    `HEIF whose picture is coded as "${type}"`,
  ]),
];
for (const [name, file, seen] of cases) {
  test(`an unsupported file › ${name}`, async t => {
    const read = (offset: number, length: number) => file.subarray(offset, offset + length);
    t.is(await readImageHeader(read, file.length), undefined);
    if (seen === undefined) return;
    t.true((await describeUnread(read, file.length)).startsWith(`This is ${seen}. Send`));
  });
}

test('files of real encoders › gives format, size and animation of each', async t => {
  for (const { name, file, format, width, height, animated } of await encodedSamples()) {
    t.deepEqual(await headerOf(file), { format, width, height, animated }, name);
  }
});

test('files of real encoders › does not throw and does not change the format when the file is cut anywhere', async t => {
  for (const { name, file, format } of await encodedSamples()) {
    for (let length = 12; length < Math.min(file.length, 400); length += 1) {
      const header = await headerOf(file.subarray(0, length));
      t.is(header?.format, format, `${name} cut at ${length}`);
    }
  }
});

test('JPEG › has no size without a frame header', async t => {
  await assertUnsized(t, Buffer.concat([SOI, segment(0xe0, Buffer.alloc(4))]), 'jpeg');
  const scanFirst = [SOI, segment(0xda, Buffer.alloc(4)), frameHeader(0xc0, 7, 9)];
  await assertUnsized(t, Buffer.concat(scanFirst), 'jpeg');
  await assertUnsized(t, Buffer.from([0xff, 0xd8, 0xff, 0xd9, 0, 0]), 'jpeg');
});

test('JPEG › has no size when a side is 0 (left to DNL) or a length is impossible', async t => {
  await assertUnsized(t, Buffer.concat([SOI, frameHeader(0xc0, 7, 0)]), 'jpeg');
  const short = Buffer.from([0xff, 0xe1, 0, 1]);
  await assertUnsized(t, Buffer.concat([SOI, short, frameHeader(0xc0, 7, 9)]), 'jpeg');
});

test('JPEG › reads every frame header that decoders read, and takes no table for one', async t => {
  const tables = [0xc4, 0xc8, 0xcc].map(marker => segment(marker, Buffer.alloc(9)));
  for (const marker of [0xc0, 0xc1, 0xc2, 0xc9, 0xca]) {
    await assertSize(t, Buffer.concat([SOI, ...tables, frameHeader(marker, 7, 9)]), 7, 9);
  }
  for (const marker of [0xc3, 0xc5, 0xc6, 0xc7, 0xcb, 0xcd, 0xce, 0xcf]) {
    t.is(await headerOf(Buffer.concat([SOI, ...tables, frameHeader(marker, 7, 9)])), undefined);
  }
});

test('JPEG › does not take the thumbnail in an APP segment for the picture', async t => {
  const thumbnail = Buffer.concat([SOI, frameHeader(0xc0, 160, 120)]);
  const app = segment(0xe1, Buffer.concat([Buffer.from('Exif\0\0'), thumbnail]));
  await assertSize(t, Buffer.concat([SOI, app, frameHeader(0xc2, 7, 9)]), 7, 9);
});

test('JPEG › skips several MB of APP segments', async t => {
  const apps = Array.from({ length: 130 }, () => segment(0xe2, Buffer.alloc(65_533)));
  const file = Buffer.concat([SOI, ...apps, frameHeader(0xc0, 7, 9)]);
  t.true(file.length > 8_000_000);
  await assertSize(t, file, 7, 9);
});

test('JPEG › skips fill bytes, stray bytes and markers without content, as libjpeg does', async t => {
  const stray = Buffer.from([0xff, 0xff, 0xff, 0x01, 0xff, 0xd0, 1, 2, 3, 0xff, 0, 0xff]);
  await assertSize(t, Buffer.concat([SOI, stray, frameHeader(0xc0, 7, 9)]), 7, 9);
});

test('PNG › has no size when IHDR is missing, of another length, or says 0', async t => {
  const signature = pngOf(7, 9).subarray(0, 8);
  await assertUnsized(t, signature, 'png');
  await assertUnsized(t, Buffer.concat([signature, pngChunk('tEXt', Buffer.alloc(13))]), 'png');
  await assertUnsized(t, Buffer.concat([signature, pngChunk('IHDR', Buffer.alloc(14))]), 'png');
  await assertUnsized(t, pngOf(0, 9), 'png');
  await assertUnsized(t, pngOf(7, 0x8000_0000), 'png');
});

test('PNG › is animated by an acTL of several frames before IDAT only', async t => {
  const actl = (frames: number): Buffer => pngChunk('acTL', Buffer.concat([u32(frames), u32(0)]));
  const text = pngChunk('tEXt', Buffer.alloc(70_000));
  t.true((await headerOf(pngOf(7, 9, actl(2))))?.animated);
  t.true((await headerOf(pngOf(7, 9, text, actl(30))))?.animated);
  t.false((await headerOf(pngOf(7, 9, actl(1))))?.animated);
  const late = Buffer.concat([pngOf(7, 9), actl(2)]);
  t.false((await headerOf(late))?.animated);
});

const riff = (chunk: string, data: number[]): Buffer =>
  Buffer.concat([
    Buffer.from('RIFF\x64\x00\x00\x00WEBP', 'latin1'),
    Buffer.from(chunk, 'latin1'),
    Buffer.from([10, 0, 0, 0, ...data]),
    Buffer.alloc(10),
  ]);

test('WebP › has no size when the first chunk is unknown or its start code is wrong', async t => {
  await assertUnsized(t, riff('ALPH', [1, 2, 3, 4, 5]), 'webp');
  await assertUnsized(t, riff('VP8 ', [0, 0, 0, 1, 2, 3, 7, 0, 9, 0]), 'webp');
  await assertUnsized(t, riff('VP8 ', [1, 0, 0, 0x9d, 0x01, 0x2a, 7, 0, 9, 0]), 'webp');
  await assertUnsized(t, riff('VP8L', [0x2e, 6, 0, 2, 0]), 'webp');
});

test('WebP › leaves the scale bits out of a lossy size', async t => {
  await assertSize(t, riff('VP8 ', [0, 0, 0, 0x9d, 0x01, 0x2a, 7, 0x40, 9, 0x80]), 7, 9);
});

test('WebP › is no animation with one frame that is the canvas', async t => {
  const u24 = (value: number) => [value & 255, (value >>> 8) & 255, value >>> 16];
  const chunk = (type: string, data: number[]) => {
    const head = Buffer.from(`${type}\0\0\0\0`, 'latin1');
    head.writeUInt32LE(data.length, 4);
    return Buffer.concat([head, Buffer.from(data), Buffer.alloc(data.length & 1)]);
  };
  const frame = (x: number, width: number) =>
    chunk('ANMF', [...u24(x), ...u24(0), ...u24(width - 1), ...u24(8), 0, 0, 0, 0, 1, 2, 3]);
  const animation = (...frames: Buffer[]) =>
    Buffer.concat([
      Buffer.from('RIFF\x64\x00\x00\x00WEBP', 'latin1'),
      chunk('VP8X', [2, 0, 0, 0, ...u24(6), ...u24(8)]),
      chunk('ANIM', [0, 0, 0, 0, 0, 0]),
      ...frames,
    ]);
  const animated = async (...frames: Buffer[]) => (await headerOf(animation(...frames)))?.animated;
  t.false(await animated(frame(0, 7)));
  t.true(await animated(frame(0, 6)));
  t.true(await animated(frame(1, 7)));
  t.true(await animated(frame(0, 7), frame(0, 7)));
  t.true(await animated());
});

test('WebP › reads the canvas of the extended form', async t => {
  await assertSize(t, riff('VP8X', [0, 0, 0, 0, 0xff, 0xff, 0, 0x10, 0x27, 0]), 65_536, 10_001);
});

const one = { id: 1, type: 'av01', size: [7, 9] } as const;

test('AVIF › has no size when the properties are missing or say 0', async t => {
  await assertUnsized(t, ftyp('avif', 'mif1'), 'avif');
  await assertUnsized(t, heifOf(['avif'], [{ ...one, size: [0, 9] }], 1), 'avif');
  const noIprp = fullBox('meta', 0, fullBox('pitm', 0, u16(1)));
  await assertUnsized(t, Buffer.concat([ftyp('avif'), noIprp]), 'avif');
});

test('AVIF › takes the size of the primary item, not of its tiles or its thumbnail', async t => {
  const thumbnail = { id: 2, type: 'av01', size: [3, 3] } as const;
  await assertSize(t, heifOf(['avif', 'mif1'], [thumbnail, one], 1), 7, 9);
  const grid = { id: 9, type: 'grid', size: [17_000, 17_000] } as const;
  await assertSize(t, heifOf(['avif', 'mif1'], [one, thumbnail, grid], 9), 17_000, 17_000);
});

test('AVIF › is known by its primary item when the brands promise only HEIF', async t => {
  const header = await headerOf(heifOf(['mif1', 'miaf'], [one], 1));
  t.deepEqual(header, { format: 'avif', width: 7, height: 9, animated: false });
});

const still = { width: 7, height: 9, animated: false };
const KINDS: [brands: string, type: string, expected: Partial<ImageHeader>][] = [
  ...['heic', 'heix', 'heim', 'heis', 'hevc', 'hevx', 'hevm', 'hevs'].map(
    (brand): (typeof KINDS)[number] => [brand, 'hvc1', { format: 'heic', ...still }],
  ),
  ['mif1', 'hvc1', { format: 'heic', ...still }],
  ['mif1 tmap MiHE', 'hev1', { format: 'heic', ...still }],
  ['avif mif1', 'hvc1', { format: 'heic', ...still }],
  ['avis avif', 'hvc1', { format: 'heic', ...still }],
  ['heic mif1', 'av01', { format: 'avif', ...still }],
  ['hevc msf1', 'av01', { format: 'avif', ...still }],
];
test('HEIF › is what its primary item is coded in, whatever the brands', async t => {
  const grid = { id: 9, type: 'grid', size: [7, 9] } as const;
  const overlay = { ...grid, type: 'iovl' };
  for (const [brands, type, expected] of KINDS) {
    const item = { id: 1, type, size: [7, 9] } as const;
    const other = { id: 2, type: type === 'av01' ? 'hvc1' : 'av01', size: [3, 3] } as const;
    const made = [['dimg', 9, [1, 2]]] as const;
    const files = [
      heifOf(brands.split(' '), [other, item], 1),
      heifOf(brands.split(' '), [grid, other, item], 9, made),
      heifOf(brands.split(' '), [overlay, item], 9, made),
    ];
    for (const file of files) t.deepEqual(await headerOf(file), expected, `${brands} of ${type}`);
  }
});

test('HEIC › is animated where it is a sequence without a primary item', async t => {
  const moov = box('moov', box('trak'));
  for (const brands of [
    ['hevc', 'msf1'],
    ['msf1', 'hevx'],
    ['heic', 'hevs'],
  ]) {
    const header = await headerOf(Buffer.concat([ftyp(...brands), moov]));
    t.deepEqual([header?.format, header?.animated], ['heic', true], brands.join());
  }
  await assertUnsized(t, Buffer.concat([ftyp('heic', 'mif1'), moov]), 'heic');
  t.false((await headerOf(ftyp('heic', 'mif1')))?.animated);
});

test('HEIC › is a still where a sequence stands beside it', async t => {
  const still = heifOf(['hevc', 'msf1', 'heic'], [{ id: 1, type: 'hvc1', size: [7, 9] }], 1);
  const size = u32(0, 0, 30);
  const media = box('mdia', box('minf', box('stbl', box('stsz', size))));
  const header = await headerOf(Buffer.concat([still, box('moov', box('trak', media))]));
  t.deepEqual(header, { format: 'heic', width: 7, height: 9, animated: false });
});

test('HEIC › has the size of what a derived picture is made of', async t => {
  const picture = { id: 1, type: 'hvc1', size: [7, 9] } as const;
  const gainMap = { id: 2, type: 'hvc1', size: [3, 3] } as const;
  const tones = { id: 3, type: 'tmap', size: [5, 5] } as const;
  const file = heifOf(['heic', 'tmap'], [gainMap, picture, tones], 3, [['dimg', 3, [1, 2]]]);
  await assertSize(t, file, 7, 9);
  const circle = heifOf(['heic', 'mif1'], [{ ...tones, type: 'iden' }], 3, [['dimg', 3, [3]]]);
  await assertUnsized(t, circle, 'heic');
});

test('AVIF › is an animation by the brand avis, and not by a grid', async t => {
  t.true((await headerOf(heifOf(['avis', 'avif'], [one], 1)))?.animated);
  t.true((await headerOf(heifOf(['avif', 'avis'], [one], 1)))?.animated);
  t.true((await headerOf(ftyp('avis', 'msf1')))?.animated);
  const grid = { id: 9, type: 'grid', size: [20, 20] } as const;
  t.false((await headerOf(heifOf(['avif'], [one, grid], 9)))?.animated);
});

test('AVIF › does not take the minor version for a brand', async t => {
  const file = box('ftyp', Buffer.from('isomavifmp42', 'latin1'));
  t.is(await headerOf(file), undefined);
});

test('AVIF › reads wide item numbers, wide property numbers and 64-bit box sizes', async t => {
  const infe = fullBox('infe', 3, u32(70_000), u16(0), Buffer.from('av01\0', 'latin1'));
  const ipma = Buffer.concat([
    u32(0x0100_0001),
    u32(1),
    u32(70_000),
    Buffer.from([2]),
    u16(0x8001),
    u16(0x8002),
  ]);
  const content = Buffer.concat([
    u32(0),
    fullBox('pitm', 1, u32(70_000)),
    fullBox('iinf', 1, u32(1), infe),
    box(
      'iprp',
      box('ipco', box('av1C', Buffer.alloc(4)), fullBox('ispe', 0, u32(7), u32(9))),
      box('ipma', ipma),
    ),
  ]);
  const wide = Buffer.concat([u32(1), Buffer.from('meta'), u32(0), u32(16 + content.length)]);
  await assertSize(t, Buffer.concat([ftyp('avif'), box('free'), wide, content]), 7, 9);
});

test('AVIF › finds meta behind the picture data', async t => {
  const file = heifOf(['avif'], [one], 1);
  const brands = ftyp('avif');
  const data = box('mdat', Buffer.alloc(300_000));
  await assertSize(t, Buffer.concat([brands, data, file.subarray(brands.length)]), 7, 9);
});

const animation = (bits: BitWriter): BitWriter => bits.put(0b10, 2).put(0, 3).put(0b100, 3);

test('JPEG XL › has no size when the header is cut or the container has no codestream', async t => {
  await assertUnsized(t, Buffer.from([0xff, 0x0a, 0xff]), 'jxl');
  await assertUnsized(t, jxlContainerOf(), 'jxl');
  await assertUnsized(t, jxlContainerOf(box('jxlc', Buffer.from('no codestream'))), 'jxl');
});

test('JPEG XL › reads sizes of every range', async t => {
  for (const side of [1, 512, 513, 8192, 8193, 262_144, 262_145, 2 ** 30]) {
    await assertSize(t, jxlOf(side, 7), side, 7);
    await assertSize(t, jxlOf(7, side), 7, side);
  }
});

test('JPEG XL › reads sizes in eights and by ratio', async t => {
  const head = (bits: BitWriter): Buffer =>
    Buffer.concat([Buffer.from([0xff, 0x0a]), bits.put(1, 1).bytes(), Buffer.alloc(20)]);
  const eights = new BitWriter().put(1, 1).put(8, 5).put(0, 3).put(31, 5);
  await assertSize(t, head(eights), 256, 72);
  const widths = [1000, 1200, 1333, 1500, 1777, 1250, 2000];
  for (const [i, width] of widths.entries()) {
    const bits = putJxlSide(new BitWriter().put(0, 1), 1000).put(i + 1, 3);
    await assertSize(t, head(bits), width, 1000);
  }
});

test('JPEG XL › finds the animation flag behind the optional fields', async t => {
  t.true((await headerOf(jxlOf(7, 9, animation)))?.animated);
  const none = jxlOf(7, 9, bits => bits.put(0b10, 2).put(0, 3).put(0, 3));
  t.false((await headerOf(none))?.animated);
  const all = jxlOf(7, 9, bits => {
    // orientation, intrinsic size by ratio, preview in eights, then the flag
    bits.put(0b10, 2).put(5, 3).put(1, 1).put(1, 1).put(3, 5).put(2, 3);
    return bits.put(1, 1).put(1, 1).put(2, 2).put(31, 5).put(0, 3).put(3, 2).put(511, 9).put(1, 1);
  });
  t.true((await headerOf(all))?.animated);
  const preview = jxlOf(7, 9, bits => {
    bits.put(0b10, 2).put(0, 3).put(0, 1);
    return bits.put(1, 1).put(0, 1).put(3, 2).put(4095, 12).put(1, 3).put(1, 1);
  });
  t.true((await headerOf(preview))?.animated);
});

test('JPEG XL › puts a codestream together from parts, other boxes between them', async t => {
  const codestream = jxlOf(123, 4567, animation);
  const parts = [codestream.subarray(0, 3), codestream.subarray(3, 4), codestream.subarray(4)];
  const [first, ...others] = parts.map((part, i) => box('jxlp', u32(i), part));
  assert.ok(first);
  const file = jxlContainerOf(first, box('Exif', Buffer.alloc(9000)), ...others);
  const header = await headerOf(file);
  t.deepEqual(header, { format: 'jxl', width: 123, height: 4567, animated: true });
});

/** Also checks the bounds of reads. */
async function countReads(sizeBytes: number, read: (offset: number, length: number) => Uint8Array) {
  let reads = 0;
  let readBytes = 0;
  const header = await readImageHeader((offset, length) => {
    reads += 1;
    readBytes += length;
    return read(offset, length);
  }, sizeBytes);
  assert.ok(reads <= WINDOW_READS_MAX, `${reads} reads`);
  assert.ok(readBytes <= WINDOW_READS_MAX * WINDOW_BYTES, `${readBytes} bytes`);
  return { header, reads };
}

/** A virtual file of 50 MB: a start, then a repeated pattern. */
function endless(start: Buffer, pattern: Buffer) {
  return countReads(50_000_000, (offset, length) => {
    const bytes = Buffer.alloc(length);
    for (let i = 0; i < length; i += 1) {
      const at = offset + i;
      bytes[i] =
        (at < start.length ? start[at] : pattern[(at - start.length) % pattern.length]) ?? 0;
    }
    return bytes;
  });
}

/** Typical edge values of lengths, counts and types. */
const EDGE_VALUES = [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff];

function mutant(file: Buffer, other: Buffer, random: Random): Buffer {
  const bytes = Buffer.from(file.subarray(0, 600));
  const edits = 1 + random.below(6);
  for (let edit = 0; edit < edits; edit += 1) {
    // Three of four edits go to the structures at the front.
    const reach = random.below(4) < 3 ? Math.min(bytes.length, 120) : bytes.length;
    bytes[random.below(reach)] = random.below(5) < 3 ? random.pick(EDGE_VALUES) : random.below(256);
  }
  if (random.below(7) === 0) return bytes.subarray(0, random.below(bytes.length));
  if (random.below(7) > 0) return bytes;
  const cut = random.below(bytes.length);
  return Buffer.concat([bytes.subarray(0, cut), other.subarray(random.below(200))]);
}

const jpegStart = Buffer.from([0xff, 0xd8, 0xff]);
const meta = (...content: Buffer[]): Buffer => {
  const head = Buffer.concat([u32(0), Buffer.from('meta'), u32(0)]);
  return Buffer.concat([ftyp('avif'), head, ...content]);
};
const openBox = (type: string, ...content: Buffer[]): Buffer =>
  Buffer.concat([u32(0), Buffer.from(type), ...content]);
const ENDLESS: [string, Buffer, Buffer][] = [
  ['a JPEG of fill bytes', jpegStart, Buffer.from([0xff])],
  ['a JPEG of stray bytes', jpegStart, Buffer.from([0x00])],
  ['a JPEG of restart markers', SOI, Buffer.from([0xff, 0xd0])],
  ['a JPEG of empty segments', SOI, Buffer.from([0xff, 0xe0, 0x00, 0x02])],
  ['a JPEG of full segments', SOI, Buffer.from([0xff, 0xe0, 0xff, 0xfe])],
  ['a PNG of empty chunks', pngOf(7, 9).subarray(0, 33), Buffer.from('\0\0\0\0tEXt\0\0\0\0')],
  ['an AVIF of empty boxes', ftyp('avif'), box('free')],
  ['an AVIF of boxes of size 1', ftyp('avif'), Buffer.from('\0\0\0\x01free\0\0\0\0\0\0\0\x10')],
  ['an AVIF of endless item entries', meta(openBox('iinf', u32(0), u16(9))), box('infe')],
  [
    'an AVIF of endless associations',
    meta(
      fullBox('pitm', 0, u16(1)),
      openBox('iprp', openBox('ipma', u32(0), Buffer.from([0xff, 0xff, 0xff, 0xff]))),
    ),
    Buffer.from([0, 2, 0]),
  ],
  [
    'an AVIF of endless properties',
    meta(fullBox('pitm', 0, u16(1)), openBox('iprp', openBox('ipco'))),
    fullBox('ispe', 0, u32(7), u32(9)),
  ],
  ['a JPEG XL of empty parts', JXL_SIGNATURE, box('jxlp', u32(0))],
  ['a WebP of zeros', Buffer.from('RIFF\0\0\0\0WEBP', 'latin1'), Buffer.alloc(1)],
];
for (const [name, start, pattern] of ENDLESS) {
  test(`hostile files › ${name} ends within the bounds`, async t => {
    const { header } = await endless(start, pattern);
    t.not(header, undefined);
  });
}

test('hostile files › a reader that has less than it promised ends it too', async t => {
  for (const { name, file, format } of await encodedSamples()) {
    const half = file.subarray(0, Math.max(12, file.length >>> 1));
    const read = (offset: number, length: number): Uint8Array =>
      half.subarray(offset, offset + length);
    const { header } = await countReads(file.length * 1000, read);
    t.is(header?.format, format, name);
  }
});

test("hostile files › passes on a reader's own error", async t => {
  const failing = (): Uint8Array => {
    throw new Error('disk');
  };
  await t.throwsAsync(readImageHeader(failing, 100), { message: /disk/ });
});

test('hostile files › 7000 seeded mutants never throw, never loop, never give half a size', async t => {
  const samples = await encodedSamples();
  const random = new Random(20_240_607);
  for (const { name, file } of samples) {
    for (let round = 0; round < 500; round += 1) {
      const bytes = mutant(file, random.pick(samples).file, random);
      const read = (offset: number, length: number): Uint8Array =>
        bytes.subarray(offset, offset + length);
      const { header, reads } = await countReads(bytes.length, read);
      t.true(reads <= 4, `${name}, round ${round}: ${reads} reads of one page`);
      if (header === undefined) continue;
      const { width, height } = header;
      t.is(width === undefined, height === undefined);
      for (const side of [width, height]) {
        if (side !== undefined) t.true(Number.isSafeInteger(side) && side > 0, `${side}`);
      }
    }
  }
});

type Field = readonly [value: number, bits: number];

function codestream(...fields: readonly Field[]): Buffer {
  const bits = new BitWriter();
  for (const [value, count] of fields) bits.put(value, count);
  return Buffer.concat([Buffer.from([0xff, 0x0a]), bits.bytes()]);
}

/** Fields are `value:bits`. */
const fieldsOf = (text: string): readonly Field[] =>
  text.split(' ').map(field => {
    const [value = 0, bits = 0] = field.split(':').map(Number);
    return [value, bits];
  });

/** 16 x 16, not all default. */
const SIZE = fieldsOf('1:1 1:5 1:3 0:1');
/** 8 bits, decoded with 16. */
const DEPTH = fieldsOf('0:3 1:1');
const NO_EXTRA: Field = [0, 1];
const ONE_CHANNEL: Field = [1, 2];
const named = (length: number): readonly Field[] => [
  [3, 2],
  [length - 48, 10],
  ...Array.from({ length }, (): Field => [0x61, 8]),
];
const alpha = (associated: number, name: readonly Field[] = [[0, 2]]): readonly Field[] => [
  // Not the default; type alpha; 8 bits; no other size.
  ...fieldsOf('0:1 0:2 0:3 0:2'),
  ...name,
  [associated, 1],
];
const DEFAULT_ALPHA: Field = [1, 1];
const TWO_CHANNELS = fieldsOf('2:2 0:4');
/** Orientation, intrinsic size, preview, and an animation without timecodes. */
const EVERY_EXTRA = fieldsOf(
  '1:1 5:3 1:1 1:1 3:5 1:3 1:1 1:1 1:2 1:3 1:1 2:2 99:10 3:2 7:10 3:2 0:32 0:1',
);
const FLOATING = fieldsOf('1:1 1:2 4:4 1:1');
const DEPTH_CHANNEL = fieldsOf('0:1 1:2 0:3 0:2 0:2');
const SPOT_COLOUR = fieldsOf('0:1 2:2 0:4 0:3 0:2 0:2 0:32 0:32');

const MULTIPLIED_JXL: readonly [name: string, associated: boolean, fields: readonly Field[]][] = [
  ['all default', false, [...SIZE.slice(0, 3), [1, 1]]],
  ['no channels', false, [...SIZE, NO_EXTRA, ...DEPTH, [0, 2]]],
  ['alpha as it mostly is', false, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, DEFAULT_ALPHA]],
  ['straight alpha', false, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(0)]],
  ['associated alpha', true, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(1)]],
  ['behind a long name', true, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(1, named(900))]],
  ['of floating point', true, [...SIZE, NO_EXTRA, ...FLOATING, ONE_CHANNEL, ...alpha(1)]],
  ['behind every extra', true, [...SIZE, ...EVERY_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(1)]],
  [
    'behind a depth and before another alpha',
    true,
    [...SIZE, NO_EXTRA, ...DEPTH, ...TWO_CHANNELS, ...DEPTH_CHANNEL, ...alpha(1)],
  ],
  [
    'behind a spot colour',
    true,
    [...SIZE, NO_EXTRA, ...DEPTH, ...TWO_CHANNELS, ...SPOT_COLOUR, ...alpha(1)],
  ],
];

for (const [name, associated, fields] of MULTIPLIED_JXL) {
  test(`alpha that a JPEG XL is multiplied by › ${name}`, async t => {
    const bare = codestream(...fields);
    t.is(await hasAssociatedAlpha(bare), associated);
    const parts = [bare.subarray(0, 4), bare.subarray(4)];
    const file = jxlContainerOf(...parts.map((part, i) => box('jxlp', u32(i), part)));
    t.is(await hasAssociatedAlpha(file), associated);
    // A truncated file does not count as associated.
    for (let length = 0; length < bare.length - 1; length += 1) {
      t.false(await hasAssociatedAlpha(bare.subarray(0, length)));
    }
  });
}

const avifOf = (...references: Buffer[]) =>
  Buffer.concat([
    ftyp('avif'),
    fullBox('meta', 0, fullBox('pitm', 0, u16(7)), ...references, box('iprp', box('ipco'))),
  ]);
const short = (type: string, from: number) => box(type, u16(from, 1, 8));
const long = (type: string, from: number) => box(type, u32(from), u16(1), u32(8));
const AVIF: [string, boolean, Buffer][] = [
  ['no references', false, avifOf()],
  ['another reference', false, avifOf(fullBox('iref', 0, short('auxl', 7)))],
  ['of another item', false, avifOf(fullBox('iref', 0, short('prem', 8)))],
  ['of the picture', true, avifOf(fullBox('iref', 0, short('auxl', 8), short('prem', 7)))],
  ['with long numbers', true, avifOf(fullBox('iref', 1, long('prem', 7)))],
  ['a box cut short', false, avifOf(fullBox('iref', 0, box('prem')))],
];
for (const [name, premultiplied, file] of AVIF) {
  test(`alpha that an AVIF is multiplied by › ${name}`, async t => {
    t.is((await readAvifColour(file)).premultiplied, premultiplied);
    for (let length = 0; length < file.length; length += 1) {
      await readAvifColour(file.subarray(0, length));
    }
  });
}
