import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { WINDOW_BYTES, WINDOW_READS_MAX } from '../image-header/byte-window.ts';
import { type ImageHeader, readImageHeader } from '../image-header.ts';
import {
  box,
  encodedSamples,
  ftyp,
  fullBox,
  pngOf,
  SOI,
  u16,
  u32,
} from './image-header-samples.ts';

interface Outcome {
  readonly header: ImageHeader | undefined;
  readonly reads: number;
  readonly readBytes: number;
}

async function countReads(
  sizeBytes: number,
  read: (offset: number, length: number) => Uint8Array,
): Promise<Outcome> {
  let reads = 0;
  let readBytes = 0;
  const header = await readImageHeader((offset, length) => {
    reads += 1;
    readBytes += length;
    return read(offset, length);
  }, sizeBytes);
  assert.ok(reads <= WINDOW_READS_MAX, `${reads} reads`);
  assert.ok(readBytes <= WINDOW_READS_MAX * WINDOW_BYTES, `${readBytes} bytes`);
  return { header, reads, readBytes };
}

/** A file of 50 MB that is not there: a start, then one pattern for ever. */
function endless(start: Buffer, pattern: Buffer): Promise<Outcome> {
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

/** Numbers in [0, 1) that are the same in every run (Mulberry32). */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Boundary values that lengths, counts and types are most often wrong about. */
const TELLING = [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff];

function mutant(file: Buffer, other: Buffer, random: () => number): Buffer {
  const bytes = Buffer.from(file.subarray(0, 600));
  const edits = 1 + Math.floor(random() * 6);
  for (let edit = 0; edit < edits; edit += 1) {
    // The structures are at the front: three of four edits go there.
    const reach = random() < 0.75 ? Math.min(bytes.length, 120) : bytes.length;
    const at = Math.floor(random() * reach);
    bytes[at] =
      (random() < 0.6 ? TELLING[Math.floor(random() * TELLING.length)] : undefined) ??
      Math.floor(random() * 256);
  }
  if (random() < 0.15) return bytes.subarray(0, Math.floor(random() * bytes.length));
  if (random() < 0.15) {
    const cut = Math.floor(random() * bytes.length);
    return Buffer.concat([bytes.subarray(0, cut), other.subarray(Math.floor(random() * 200))]);
  }
  return bytes;
}

describe('hostile files', () => {
  const jpegStart = Buffer.from([0xff, 0xd8, 0xff]);
  const meta = (...content: Buffer[]): Buffer => {
    const head = Buffer.concat([u32(0), Buffer.from('meta'), u32(0)]);
    return Buffer.concat([ftyp('avif'), head, ...content]);
  };
  const openBox = (type: string, ...content: Buffer[]): Buffer =>
    Buffer.concat([u32(0), Buffer.from(type), ...content]);
  const cases: [string, Buffer, Buffer][] = [
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
    [
      'a JPEG XL of empty parts',
      Buffer.concat([box('JXL ', Buffer.from([0x0d, 0x0a, 0x87, 0x0a]))]),
      box('jxlp', u32(0)),
    ],
    ['a WebP of zeros', Buffer.from('RIFF\0\0\0\0WEBP', 'latin1'), Buffer.alloc(1)],
  ];
  for (const [name, start, pattern] of cases) {
    it(`${name} ends within the bounds`, async () => {
      const { header } = await endless(start, pattern);
      assert.notEqual(header, undefined);
    });
  }

  it('a reader that has less than it promised ends it too', async () => {
    for (const { name, file, format } of await encodedSamples()) {
      const half = file.subarray(0, Math.max(12, file.length >>> 1));
      const read = (offset: number, length: number): Uint8Array =>
        half.subarray(offset, offset + length);
      const { header } = await countReads(file.length * 1000, read);
      assert.equal(header?.format, format, name);
    }
  });

  it("passes on a reader's own error", async () => {
    const failing = (): Uint8Array => {
      throw new Error('disk');
    };
    await assert.rejects(readImageHeader(failing, 100), /disk/);
  });

  it('6500 seeded mutants never throw, never loop, never give half a size', async () => {
    const samples = await encodedSamples();
    const random = seededRandom(20_240_607);
    for (const { name, file } of samples) {
      for (let round = 0; round < 500; round += 1) {
        const other = samples[Math.floor(random() * samples.length)]?.file ?? file;
        const bytes = mutant(file, other, random);
        const read = (offset: number, length: number): Uint8Array =>
          bytes.subarray(offset, offset + length);
        const { header, reads } = await countReads(bytes.length, read);
        assert.ok(reads <= 4, `${name}, round ${round}: ${reads} reads of one page`);
        if (header === undefined) continue;
        const { width, height } = header;
        assert.equal(width === undefined, height === undefined);
        for (const side of [width, height]) {
          if (side !== undefined) assert.ok(Number.isSafeInteger(side) && side > 0, `${side}`);
        }
      }
    }
  });
});
