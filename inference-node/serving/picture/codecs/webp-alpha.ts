/**
 * Encodes the alpha plane of a WebP losslessly (RFC 9649: 2.7.1.2 the chunk, 3 and 4 the VP8L
 * stream) in memory for its result alone; libwebp takes 15 bytes a pixel (docs/adr/0018). A matte
 * is flat nearly everywhere: predicted from its neighbours it is runs of zeros, which become
 * copies, and literals under one prefix code. Indexes lie inside by construction.
 */

/** Compression VP8L, gradient filter; no preprocessing. */
const CHUNK_HEADER = 1 | (3 << 2);
/** Shorter runs cost more as copies. */
const RUN_MIN = 4;
const RUN_MAX = 4095;
const LITERALS = 256;
/** The alphabet of green: literals, then prefixes of lengths. */
const GREEN_SYMBOLS = LITERALS + 24;
const CODE_LENGTH_MAX = 15;
/** The order of the code length codes: RFC 9649, 3.7.2.1.2. */
const CODE_LENGTH_ORDER = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/** Prefix of the distance that means the pixel to the left: its number less one. */
const LEFT_PREFIX = 1;

class BitWriter {
  #bytes = Buffer.allocUnsafe(65_536);
  #length = 0;
  #held = 0;
  #heldBits = 0;

  /** Least significant bit first; at most 16 bits. */
  write(value: number, bits: number): void {
    this.#held |= value << this.#heldBits;
    this.#heldBits += bits;
    while (this.#heldBits >= 8) {
      if (this.#length === this.#bytes.length) {
        this.#bytes = Buffer.concat([this.#bytes, Buffer.allocUnsafe(this.#bytes.length)]);
      }
      this.#bytes[this.#length++] = this.#held & 255;
      this.#held >>>= 8;
      this.#heldBits -= 8;
    }
  }

  finish(): Buffer {
    if (this.#heldBits > 0) this.write(0, 8 - this.#heldBits);
    return this.#bytes.subarray(0, this.#length);
  }
}

interface TokenSink {
  literal(difference: number): void;
  run(length: number): void;
}

/** Gives `sink` the plane's differences from their prediction (by the pixels above and left). */
function visit(pixels: Uint32Array, width: number, sink: TokenSink): void {
  let previous = -1;
  let run = 0;
  const endRun = (): void => {
    if (run >= RUN_MIN) sink.run(run);
    else for (; run > 0; run--) sink.literal(previous);
    run = 0;
  };
  for (let i = 0, x = 0; i < pixels.length; i++) {
    const left = x > 0 ? pixels[i - 1]! >>> 24 : -1;
    const above = i >= width ? pixels[i - width]! >>> 24 : -1;
    let predicted: number;
    if (left < 0) predicted = above < 0 ? 0 : above;
    else if (above < 0) predicted = left;
    else predicted = clip(left + above - (pixels[i - width - 1]! >>> 24));
    const difference = ((pixels[i]! >>> 24) - predicted) & 255;
    if (difference === previous) {
      run += 1;
      if (run === RUN_MAX) endRun();
    } else {
      endRun();
      sink.literal(difference);
      previous = difference;
    }
    x = x + 1 === width ? 0 : x + 1;
  }
  endRun();
}

function clip(value: number): number {
  return value < 0 ? 0 : value > 255 ? 255 : value;
}

/** RFC 9649, 4.2.2: a number from 1 on as a prefix and the bits after it. */
function prefixOf(value: number): { prefix: number; extraBits: number; extra: number } {
  const less = value - 1;
  if (less < 4) return { prefix: less, extraBits: 0, extra: 0 };
  const highest = 31 - Math.clz32(less);
  const extraBits = highest - 1;
  const prefix = 2 * highest + ((less >>> extraBits) & 1);
  return { prefix, extraBits, extra: less & ((1 << extraBits) - 1) };
}

/** Of a Huffman code: counts of rare symbols are raised until it fits. A lone one has 0. */
function codeLengths(counts: readonly number[]): number[] {
  for (let countMin = 1; ; countMin *= 2) {
    const lengths = huffmanLengths(
      counts.map(count => (count > 0 ? Math.max(count, countMin) : 0)),
    );
    if (Math.max(...lengths) <= CODE_LENGTH_MAX) return lengths;
  }
}

interface Tree {
  readonly count: number;
  readonly symbols: readonly number[];
}

function huffmanLengths(counts: readonly number[]): number[] {
  const lengths = counts.map(() => 0);
  const trees: Tree[] = counts
    .map((count, symbol) => ({ count, symbols: [symbol] }))
    .filter(({ count }) => count > 0);
  for (;;) {
    trees.sort((a, b) => b.count - a.count);
    const [first, second] = trees.splice(-2);
    if (first === undefined || second === undefined) return lengths;
    const symbols = [...first.symbols, ...second.symbols];
    for (const symbol of symbols) lengths[symbol]! += 1;
    trees.push({ count: first.count + second.count, symbols });
  }
}

function canonicalCodes(lengths: readonly number[]): number[] {
  const codes = lengths.map(() => 0);
  let code = 0;
  for (let length = 1; length <= CODE_LENGTH_MAX; length++) {
    for (const [symbol, its] of lengths.entries()) {
      if (its !== length) continue;
      codes[symbol] = reverse(code, length);
      code += 1;
    }
    code <<= 1;
  }
  return codes;
}

function reverse(value: number, bits: number): number {
  let reversed = 0;
  for (let i = 0; i < bits; i++) reversed |= ((value >>> i) & 1) << (bits - 1 - i);
  return reversed;
}

/** A code of one symbol: its uses take no bits. */
function writeLoneCode(writer: BitWriter, symbol: number): void {
  writer.write(1, 1); // simple
  writer.write(0, 1); // one symbol
  writer.write(1, 1); // of eight bits
  writer.write(symbol, 8);
}

function writeCode(writer: BitWriter, lengths: readonly number[]): void {
  writer.write(0, 1);
  writer.write(CODE_LENGTH_ORDER.length - 4, 4);
  // The lengths themselves are coded with four bits for each of 0 to 15.
  for (const symbol of CODE_LENGTH_ORDER) writer.write(symbol <= CODE_LENGTH_MAX ? 4 : 0, 3);
  writer.write(0, 1); // all symbols follow
  for (const length of lengths) writer.write(reverse(length, 4), 4);
}

/** The content of an ALPH chunk. `pixels`: alpha in the highest byte. */
export function encodeAlphaPlane(pixels: Uint32Array, width: number): Buffer {
  const counts: number[] = Array(GREEN_SYMBOLS).fill(0);
  visit(pixels, width, {
    literal: difference => {
      counts[difference]! += 1;
    },
    run: length => {
      counts[LITERALS + prefixOf(length).prefix]! += 1;
    },
  });
  const [first, ...others] = counts.flatMap((count, symbol) => (count > 0 ? [symbol] : []));
  const lengths = codeLengths(counts);
  const codes = canonicalCodes(lengths);
  const writer = new BitWriter();
  writer.write(CHUNK_HEADER, 8);
  writer.write(0, 3); // no transform, no colour cache, one group of codes
  if (first !== undefined && others.length === 0) writeLoneCode(writer, first);
  else writeCode(writer, lengths);
  for (const symbol of [0, 0, 0, LEFT_PREFIX]) writeLoneCode(writer, symbol);
  visit(pixels, width, {
    literal: difference => writer.write(codes[difference]!, lengths[difference]!),
    run: length => {
      const { prefix, extraBits, extra } = prefixOf(length);
      writer.write(codes[LITERALS + prefix]!, lengths[LITERALS + prefix]!);
      writer.write(extra, extraBits);
    },
  });
  return writer.finish();
}

/** Side of the blocks in which transparent pixels get the mean colour of the others. */
const BLOCK_SIDE = 8;

/** In place: chroma is coded for two by two pixels, so black would bleed into the edge. */
export function fillEdges(pixels: Uint32Array, width: number, height: number): void {
  for (let top = 0; top < height; top += BLOCK_SIDE) {
    const bottom = Math.min(height, top + BLOCK_SIDE);
    for (let left = 0; left < width; left += BLOCK_SIDE) {
      fillBlock(pixels, width, left, Math.min(width, left + BLOCK_SIDE), top, bottom);
    }
  }
}

function fillBlock(
  pixels: Uint32Array,
  width: number,
  left: number,
  right: number,
  top: number,
  bottom: number,
): void {
  let [red, green, blue, weight, hidden] = [0, 0, 0, 0, 0];
  for (let y = top; y < bottom; y++) {
    for (let i = y * width + left; i < y * width + right; i++) {
      const pixel = pixels[i]!;
      const alpha = pixel >>> 24;
      if (alpha === 0) {
        hidden += 1;
        continue;
      }
      red += (pixel & 255) * alpha;
      green += ((pixel >>> 8) & 255) * alpha;
      blue += ((pixel >>> 16) & 255) * alpha;
      weight += alpha;
    }
  }
  if (weight === 0 || hidden === 0) return;
  const mean =
    Math.round(red / weight) |
    (Math.round(green / weight) << 8) |
    (Math.round(blue / weight) << 16);
  for (let y = top; y < bottom; y++) {
    for (let i = y * width + left; i < y * width + right; i++) {
      if (pixels[i]! >>> 24 === 0) pixels[i] = mean;
    }
  }
}

/** sRGB, by an ICC profile (RFC 9649, 2.7.1.4). PNG has a chunk for it, others numbers. */

const RIFF_HEAD_BYTES = 12;
const CHUNK_HEAD_BYTES = 8;
const VP8X_BYTES = 10;
const FLAG_PROFILE = 0x20;
const FLAG_ALPHA = 0x10;
/**
 * 255 everywhere, of any size: compressed losslessly (1), then in VP8L (RFC 9649, 3) no transform,
 * no cache, one group of codes with one symbol each, which take no bits.
 */
const OPAQUE_ALPHA = Buffer.from([1, 0xe8, 0x7f, 0x44, 0x04]);

function webpChunk(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(CHUNK_HEAD_BYTES);
  head.write(type, 'latin1');
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body, Buffer.alloc(body.length % 2)]);
}

/** Of our own encoder, without a profile. `alphaPlane`: libwebp leaves opaque alpha out. */
export function tagWebp(
  webp: Buffer,
  width: number,
  height: number,
  alphaPlane: Buffer = OPAQUE_ALPHA,
): Buffer {
  const isExtended = webp.toString('latin1', RIFF_HEAD_BYTES, RIFF_HEAD_BYTES + 4) === 'VP8X';
  const first = RIFF_HEAD_BYTES + CHUNK_HEAD_BYTES;
  const canvas = Buffer.alloc(VP8X_BYTES);
  const alpha: Buffer[] = [];
  if (isExtended) {
    webp.copy(canvas, 0, first, first + VP8X_BYTES);
  } else {
    canvas[0] = FLAG_ALPHA;
    canvas.writeUIntLE(width - 1, 4, 3);
    canvas.writeUIntLE(height - 1, 7, 3);
    alpha.push(webpChunk('ALPH', alphaPlane));
  }
  canvas.writeUInt8(canvas.readUInt8(0) | FLAG_PROFILE, 0);
  const rest = webp.subarray(isExtended ? first + VP8X_BYTES : RIFF_HEAD_BYTES);
  const chunks = [webpChunk('VP8X', canvas), webpChunk('ICCP', SRGB_PROFILE), ...alpha, rest];
  const head = Buffer.from('RIFF\0\0\0\0WEBP', 'latin1');
  head.writeUInt32LE(4 + chunks.reduce((sum, chunk) => sum + chunk.length, 0), 4);
  return Buffer.concat([head, ...chunks]);
}

/** 480 bytes, CC0 (ICC.1:2022, version 4.4): IEC 61966-2-1, adapted to D50 with Bradford. */
const SRGB_PROFILE = Buffer.from(
  'AAAB4AAAAAAEQAAAbW50clJHQiBYWVogB+gAAQABAAAAAAAAYWNzcAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' +
    'APbWAAEAAAAA0y0AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAKZGVzYwAA' +
    'APwAAAAkY3BydAAAASAAAAAid3RwdAAAAUQAAAAUY2hhZAAAAVgAAAAsclhZWgAAAYQAAAAUZ1hZWgAAAZgAAAAUYlhZ' +
    'WgAAAawAAAAUclRSQwAAAcAAAAAgZ1RSQwAAAcAAAAAgYlRSQwAAAcAAAAAgbWx1YwAAAAAAAAABAAAADGVuVVMAAAAI' +
    'AAAAHABzAFIARwBCbWx1YwAAAAAAAAABAAAADGVuVVMAAAAGAAAAHABDAEMAMAAAWFlaIAAAAAAAAPbWAAEAAAAA0y1z' +
    'ZjMyAAAAAAABDEIAAAXe///zJQAAB5MAAP2Q///7of///aIAAAPcAADAblhZWiAAAAAAAABvoAAAOPUAAAOQWFlaIAAA' +
    'AAAAAGKXAAC3hwAAGNlYWVogAAAAAAAAJJ8AAA+EAAC2xHBhcmEAAAAAAAMAAAACZmYAAPKnAAANWQAAE9AAAApb',
  'base64',
);
