/**
 * Says whether a sequential JPEG holds every block (ITU-T T.81, annex F.2.2). It reads Huffman
 * codes and skips values. libjpeg fills missing blocks with grey and only warns, and libvips (8.18)
 * overlooks a warning in the last rows. Every index lies inside its table: bits are masked, table
 * numbers come from `order`, code lengths end at CODE_BITS_MAX.
 */

import { findMarker, RST_FIRST } from '@matting/proto/contract/image-header/jpeg-segments.ts';

/** Codes up to this length are found by one lookup, with as many values as fit. */
const FAST_BITS = 12;
const FAST_CODES = 1 << FAST_BITS;
const CODE_BITS_MAX = 16;
/** Bits held before a code is read: a fast code and the longest value after it fit. */
const HELD_BITS_MIN = 25;
const BLOCK_COEFFICIENTS = 64;
/** The end of a block as a number of coefficients: more than any value advances to. */
const END_OF_BLOCK = 128;

/** One table of a DHT segment: the number of codes of each length 1 to 16, and their symbols. */
export interface HuffmanCodes {
  readonly counts: Uint8Array;
  readonly symbols: Uint8Array;
}

export interface SequentialScan {
  readonly start: number;
  readonly mcus: number;
  /** The interval in MCUs; 0: the scan has no restart markers. */
  readonly restartInterval: number;
  readonly blocks: readonly { readonly dc: HuffmanCodes; readonly ac: HuffmanCodes }[];
}

/** Bytes of a scan that belong to no block and to no marker. */
export interface Stray {
  readonly start: number;
  readonly end: number;
  /** The bits between the last block and `start`, which a writer fills up with ones or zeros. */
  readonly isFilled: boolean;
}

/**
 * Reads every block. Undefined: one is missing or damaged. What follows the last block is not read.
 * @returns the bytes in front of restart markers that a decoder skips
 */
export function findStrayBytes(file: Uint8Array, scan: SequentialScan): Stray[] | undefined {
  const tables = createTables(scan.blocks);
  if (tables === undefined) return undefined;
  const { mcus, restartInterval } = scan;
  const span = restartInterval === 0 ? mcus : restartInterval;
  const strays: Stray[] = [];
  let at = scan.start;
  for (let first = 0, restarts = 0; first < mcus; first += span, restarts++) {
    const read = readSpan(file, at, tables, Math.min(span, mcus - first));
    if (read === undefined) return undefined;
    if (first + span >= mcus) break;
    const marker = findMarker(file, read.end).at;
    if (file[marker] !== RST_FIRST + (restarts & 7)) return undefined;
    // Fill bytes may stand before a marker.
    let end = marker - 1;
    while (end > read.end && file[end - 1] === 0xff) end--;
    if (end > read.end) strays.push({ start: read.end, end, isFilled: read.isFilled });
    at = marker + 1;
  }
  return strays;
}

const BROKEN = -1;

/** The low byte: bits of a code and its value; above: coefficients that it advances. */
type Step = number;

function stepOf(codeBits: number, symbol: number, isAc: boolean): Step {
  const valueBits = symbol & 15;
  const run = symbol >> 4;
  const isEnd = isAc && valueBits === 0 && run !== 15;
  const coefficients = isEnd ? END_OF_BLOCK : isAc ? run + 1 : 1;
  return (codeBits + valueBits) | (coefficients << 8);
}

/**
 * Several steps in FAST_BITS bits: bits 0 to 3 the bits taken, from bit 4 on the coefficients, in
 * STEPS_END whether the block ends. 0: none.
 */
type Steps = number;

const STEPS_BITS = 15;
const STEPS_COEFFICIENTS_AT = 4;
const STEPS_END = 1 << 11;

interface CodeTables {
  /** Steps of all tables, one after the other, by the next FAST_BITS bits; 0: a longer code. */
  readonly fast: Uint16Array;
  /** The same table for AC codes; 0: a code and its value are longer. */
  readonly several: Uint16Array;
  readonly long: readonly LongCodes[];
  /** Table numbers of the blocks of an MCU: DC and AC of the first, then of the next. */
  readonly order: Uint8Array;
}

interface LongCodes {
  /** The index is the code length; the value is one above the greatest code of that length. */
  readonly limits: Int32Array;
  /** The index is the code length; the value added to a code gives the index of its step. */
  readonly offsets: Int32Array;
  readonly steps: Uint16Array;
}

/** Undefined: a table is not a prefix code. */
function createTables(blocks: SequentialScan['blocks']): CodeTables | undefined {
  const numbers = new Map<HuffmanCodes, number>();
  const order = blocks.flatMap(({ dc, ac }) =>
    [dc, ac].map(codes => {
      const number = numbers.get(codes) ?? numbers.size;
      numbers.set(codes, number);
      return number;
    }),
  );
  const fast = new Uint16Array(FAST_CODES * numbers.size);
  const several = new Uint16Array(fast.length);
  const long: LongCodes[] = [];
  for (const [codes, number] of numbers) {
    const [from, to] = [number * FAST_CODES, (number + 1) * FAST_CODES];
    const part = fast.subarray(from, to);
    const isAc = blocks.some(({ ac }) => ac === codes);
    const table = createTable(codes, isAc, part);
    if (table === undefined) return undefined;
    if (isAc)
      several.set(
        part.map((_, bits) => stepsOf(part, bits)),
        from,
      );
    long.push(table);
  }
  return { fast, several, long, order: Uint8Array.from(order) };
}

function stepsOf(fast: Uint16Array, bits: number): Steps {
  let taken = 0;
  let coefficients = 0;
  while (coefficients < BLOCK_COEFFICIENTS) {
    const step = fast[(bits << taken) & (FAST_CODES - 1)]!;
    const stepBits = step & 255;
    if (step === 0 || taken + stepBits > FAST_BITS) break;
    taken += stepBits;
    if (step >> 8 === END_OF_BLOCK) {
      return taken | (coefficients << STEPS_COEFFICIENTS_AT) | STEPS_END;
    }
    coefficients += step >> 8;
  }
  return taken | (coefficients << STEPS_COEFFICIENTS_AT);
}

function createTable(
  { counts, symbols }: HuffmanCodes,
  isAc: boolean,
  fast: Uint16Array,
): LongCodes | undefined {
  const limits = new Int32Array(CODE_BITS_MAX + 1);
  const offsets = new Int32Array(CODE_BITS_MAX + 1);
  const steps = new Uint16Array(symbols.length);
  let code = 0;
  let index = 0;
  for (let bits = 1; bits <= CODE_BITS_MAX; bits++) {
    offsets[bits] = index - code;
    for (let i = 0; i < counts[bits - 1]!; i++, code++, index++) {
      if (index >= symbols.length || code >= 1 << bits) return undefined;
      const step = stepOf(bits, symbols[index]!, isAc);
      steps[index] = step;
      const unread = FAST_BITS - bits;
      if (unread >= 0) fast.fill(step, code << unread, (code + 1) << unread);
    }
    limits[bits] = code;
    code <<= 1;
  }
  return { limits, offsets, steps };
}

function findLong({ limits, offsets, steps }: LongCodes, held: number): Step {
  for (let bits = FAST_BITS + 1; bits <= CODE_BITS_MAX; bits++) {
    const code = held >>> (32 - bits);
    if (code < limits[bits]!) return steps[code + offsets[bits]!]!;
  }
  return 0;
}

/** The offset behind a data byte of 255 and the 0 that follows it. BROKEN: it is a marker. */
function passStuffing(file: Uint8Array, at: number): number {
  let code = at + 1;
  while (file[code] === 0xff) code++;
  return file[code] === 0 ? code + 1 : BROKEN;
}

/** The offset of the data byte before `end`, which may be 255 with the 0 that follows it. */
function beforeByte(file: Uint8Array, end: number): number {
  let at = end - 1;
  if (file[at] === 0) while (file[at - 1] === 0xff) at--;
  return at;
}

/** Bits of the scan that were read and are not yet used. */
class HeldBits {
  readonly #file: Uint8Array;
  /** The offset of the next byte. */
  at: number;
  /** The first bit is the highest one. */
  held = 0;
  #count = 0;
  /** So many of the last held bits are not in the file. */
  #missing = 0;
  /** Bits of a value that were not yet held when its code was read. */
  #owed = 0;
  #end: number;

  constructor(file: Uint8Array, start: number) {
    this.#file = file;
    this.at = start;
    this.#end = file.length;
  }

  /** Bits that the file has and that nothing used. Below 0: more were used than the file has. */
  get left(): number {
    return this.#count - this.#owed - this.#missing;
  }

  /** Holds enough for a fast code and the longest value after it. */
  fill(): void {
    this.#readBytes();
    if (this.#owed === 0) return;
    this.held <<= this.#owed;
    this.#count -= this.#owed;
    this.#owed = 0;
    this.#readBytes();
  }

  /** Uses bits. Those that are not held yet are owed until the next `fill`. */
  use(bits: number): void {
    this.#owed = bits > this.#count ? bits - this.#count : 0;
    this.held <<= bits - this.#owed;
    this.#count -= bits - this.#owed;
  }

  /** The offset behind the last byte that is used in part. */
  end(): { readonly end: number; readonly isFilled: boolean } {
    this.fill();
    let end = this.at;
    for (let unused = this.left; unused >= 8; unused -= 8) end = beforeByte(this.#file, end);
    const rest = this.left & 7;
    const filling = rest === 0 ? 0 : this.held >>> (32 - rest);
    return { end, isFilled: filling === 0 || filling === (1 << rest) - 1 };
  }

  #readBytes(): void {
    while (this.#count < HELD_BITS_MIN) {
      const byte = this.at < this.#end ? this.#file[this.at]! : 0;
      const next = byte === 0xff ? passStuffing(this.#file, this.at) : this.at + 1;
      if (this.at < this.#end && next !== BROKEN) {
        this.held |= byte << (24 - this.#count);
        this.at = next;
      } else {
        // A marker or the file's end: zeros from here on.
        this.#end = this.at;
        this.#missing += 8;
      }
      this.#count += 8;
    }
  }
}

/** Reads MCUs. Undefined: one is missing or damaged. */
function readSpan(
  file: Uint8Array,
  start: number,
  tables: CodeTables,
  mcus: number,
): { readonly end: number; readonly isFilled: boolean } | undefined {
  const bits = new HeldBits(file, start);
  for (let mcu = 0; mcu < mcus; mcu++) {
    for (let block = 0; block < tables.order.length; block += 2) {
      if (!readBlock(bits, tables, block)) return undefined;
    }
    if (bits.left < 0) return undefined;
  }
  return bits.end();
}

/** Reads the codes of a block, whose tables are at `block` of the order, and skips their values. */
function readBlock(bits: HeldBits, { fast, several, long, order }: CodeTables, block: number) {
  let table = order[block]!;
  let coefficient = 0;
  while (coefficient < BLOCK_COEFFICIENTS) {
    bits.fill();
    const entry = (table << FAST_BITS) | (bits.held >>> (32 - FAST_BITS));
    const reached = reachedBy(coefficient, several[entry]!);
    if (reached > 0) {
      bits.use(several[entry]! & STEPS_BITS);
      coefficient = reached;
      continue;
    }
    const step = fast[entry]! || findLong(long[table]!, bits.held);
    if (step === 0) return false;
    bits.use(step & 255);
    coefficient += step >> 8;
    table = order[block + 1]!;
  }
  // A value behind the block's end: no encoder writes one, and decoders ignore it.
  return coefficient === BLOCK_COEFFICIENTS || coefficient >= END_OF_BLOCK;
}

/**
 * The coefficient that several steps lead to. 0: there are none, or they go beyond the block's end,
 * where the bits belong to the next block, which has its own codes.
 */
function reachedBy(coefficient: number, steps: Steps): number {
  if (steps === 0) return 0;
  const reached = coefficient + ((steps >> STEPS_COEFFICIENTS_AT) & 127);
  const isEnd = steps >= STEPS_END;
  if (reached > BLOCK_COEFFICIENTS || (reached === BLOCK_COEFFICIENTS && isEnd)) return 0;
  return isEnd ? END_OF_BLOCK : reached;
}
