/**
 * Checks that a sequential JPEG has every block (ITU-T T.81, annex F.2.2) by reading Huffman codes
 * and skipping values. libjpeg fills missing blocks with grey and only warns, and libvips (8.18)
 * misses a warning in the last rows. No index exceeds its table: bits are masked, table numbers
 * come from `order`, code lengths end at CODE_BITS_MAX.
 */

import { findMarker, RST_FIRST } from '@matting/proto/contract/image-header/jpeg-segments.ts';

/** One lookup finds codes up to this length, with as many values as fit. */
const FAST_BITS = 12;
const FAST_CODES = 1 << FAST_BITS;
const CODE_BITS_MAX = 16;
/** Enough for a fast code and the longest value after it. */
const HELD_BITS_MIN = 25;
const BLOCK_COEFFICIENTS = 64;
/** Above every number of coefficients that a value can advance. */
const END_OF_BLOCK = 128;

/** A table of a DHT segment: the number of codes of each length 1 to 16, and their symbols. */
export interface HuffmanCodes {
  readonly counts: Uint8Array;
  readonly symbols: Uint8Array;
}

export interface SequentialScan {
  readonly start: number;
  readonly mcus: number;
  /** In MCUs; 0: no restart markers. */
  readonly restartInterval: number;
  readonly blocks: readonly { readonly dc: HuffmanCodes; readonly ac: HuffmanCodes }[];
}

/** Bytes that belong to no block and no marker. */
export interface Stray {
  readonly start: number;
  readonly end: number;
  /** Unused bits before `start` are all ones or all zeros, as writers pad them. */
  readonly isFilled: boolean;
}

/**
 * The bytes before restart markers that decoders skip. Undefined: a block is missing or damaged.
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
    let end = marker - 1;
    while (end > read.end && file[end - 1] === 0xff) end--;
    if (end > read.end) strays.push({ start: read.end, end, isFilled: read.isFilled });
    at = marker + 1;
  }
  return strays;
}

const BROKEN = -1;

/** Low byte: bits of a code and its value. Above it: coefficients that it advances. */
type Step = number;

function stepOf(codeBits: number, symbol: number, isAc: boolean): Step {
  const valueBits = symbol & 15;
  const run = symbol >> 4;
  const isEnd = isAc && valueBits === 0 && run !== 15;
  const coefficients = isEnd ? END_OF_BLOCK : isAc ? run + 1 : 1;
  return (codeBits + valueBits) | (coefficients << 8);
}

/**
 * Several steps within FAST_BITS bits. Bits 0 to 3: bits used; from bit 4 on: coefficients;
 * STEPS_END: the block ends. 0: no steps.
 */
type Steps = number;

const STEPS_BITS = 15;
const STEPS_COEFFICIENTS_AT = 4;
const STEPS_END = 1 << 11;

interface CodeTables {
  /** Index: the next FAST_BITS bits, one table after the other. 0: a longer code. */
  readonly fast: Uint16Array;
  /** The same for AC codes; 0: a code and its value are longer. */
  readonly several: Uint16Array;
  readonly long: readonly LongCodes[];
  /** Table numbers of an MCU's blocks: DC and AC of the first, then of the next. */
  readonly order: Uint8Array;
}

interface LongCodes {
  /** Index: the code length. One above the greatest code of that length. */
  readonly limits: Int32Array;
  /** Index: the code length. Added to a code it gives the index of its step. */
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

/** Offset after a data byte of 255 and its stuffed 0; BROKEN at a marker. */
function passStuffing(file: Uint8Array, at: number): number {
  let code = at + 1;
  while (file[code] === 0xff) code++;
  return file[code] === 0 ? code + 1 : BROKEN;
}

/** Offset of the byte before `end`, which may be 255 with its stuffed 0. */
function beforeByte(file: Uint8Array, end: number): number {
  let at = end - 1;
  if (file[at] === 0) while (file[at - 1] === 0xff) at--;
  return at;
}

class HeldBits {
  readonly #file: Uint8Array;
  at: number;
  held = 0;
  #count = 0;
  /** Trailing held bits beyond the file's end. */
  #missing = 0;
  /** Bits of a value that were not held when its code was read. */
  #owed = 0;
  #end: number;

  constructor(file: Uint8Array, start: number) {
    this.#file = file;
    this.at = start;
    this.#end = file.length;
  }

  /** Below 0: more bits were used than the file has. */
  get left(): number {
    return this.#count - this.#owed - this.#missing;
  }

  fill(): void {
    this.#readBytes();
    if (this.#owed === 0) return;
    this.held <<= this.#owed;
    this.#count -= this.#owed;
    this.#owed = 0;
    this.#readBytes();
  }

  /** Bits that are not held yet are owed until the next `fill`. */
  use(bits: number): void {
    this.#owed = bits > this.#count ? bits - this.#count : 0;
    this.held <<= bits - this.#owed;
    this.#count -= bits - this.#owed;
  }

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

/** @param block index of its tables in `order` */
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
  // No encoder writes a value after the block's end, and decoders ignore it.
  return coefficient === BLOCK_COEFFICIENTS || coefficient >= END_OF_BLOCK;
}

/** 0 if there are no steps, or they pass the block's end, where the next block has other codes. */
function reachedBy(coefficient: number, steps: Steps): number {
  if (steps === 0) return 0;
  const reached = coefficient + ((steps >> STEPS_COEFFICIENTS_AT) & 127);
  const isEnd = steps >= STEPS_END;
  if (reached > BLOCK_COEFFICIENTS || (reached === BLOCK_COEFFICIENTS && isEnd)) return 0;
  return isEnd ? END_OF_BLOCK : reached;
}
