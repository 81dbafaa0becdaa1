/**
 * Checks that the entropy-coded data of a sequential JPEG holds every block of the picture (ITU-T
 * T.81, annex F.2.2): it reads the Huffman codes and skips their values. libjpeg fills missing
 * blocks with grey and only warns, and libvips (8.18) overlooks a warning in the last rows.
 *
 * In the loops every index lies inside its table by construction: bits are masked to the table's
 * size, table numbers come from `order`, code lengths end at CODE_BITS_MAX.
 */

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

/** A scan that holds a whole picture. */
export interface SequentialScan {
  /** Offset of its first byte of data. */
  readonly start: number;
  readonly mcus: number;
  /** In MCUs; 0: no restart markers. */
  readonly restartInterval: number;
  /** The blocks of one MCU, in order. */
  readonly blocks: readonly { readonly dc: HuffmanCodes; readonly ac: HuffmanCodes }[];
}

/** False: a block is missing or damaged. What follows the last block is not read. */
export function isEntropyWhole(file: Uint8Array, scan: SequentialScan): boolean {
  const tables = createTables(scan.blocks);
  if (tables === undefined) return false;
  const { mcus, restartInterval } = scan;
  const span = restartInterval === 0 ? mcus : restartInterval;
  let at = scan.start;
  for (let first = 0, restarts = 0; first < mcus; first += span, restarts++) {
    if (restarts > 0) at = passRestart(file, at, (restarts - 1) & 7);
    if (at === BROKEN) return false;
    at = readSpan(file, at, tables, Math.min(span, mcus - first), first + span < mcus);
  }
  return at !== BROKEN;
}

/** Returned instead of an offset. */
const BROKEN = -1;

/** The offset behind the restart marker with this number, which may have fill bytes before it. */
function passRestart(file: Uint8Array, at: number, number: number): number {
  let code = at;
  while (file[code] === 0xff) code++;
  return code > at && file[code] === 0xd0 + number ? code + 1 : BROKEN;
}

/**
 * What a code stands for: in the low byte the bits that it takes together with its value, above
 * that the coefficients by which it advances the block. 0: no code.
 */
type Step = number;

function stepOf(codeBits: number, symbol: number, isAc: boolean): Step {
  const valueBits = symbol & 15;
  const run = symbol >> 4;
  const isEnd = isAc && valueBits === 0 && run !== 15;
  const coefficients = isEnd ? END_OF_BLOCK : isAc ? run + 1 : 1;
  return (codeBits + valueBits) | (coefficients << 8);
}

/**
 * Several steps that fit into FAST_BITS bits: in bits 0 to 3 the bits that they take, from bit 4 on
 * the coefficients by which they advance the block, in STEPS_END whether the block ends. 0: none.
 */
type Steps = number;

const STEPS_COEFFICIENTS_AT = 4;
const STEPS_END = 1 << 11;

interface CodeTables {
  /** Steps of all tables, one after the other, by the next FAST_BITS bits; 0: a longer code. */
  readonly fast: Uint16Array;
  /** The same for AC codes; 0: a code and its value are longer. */
  readonly several: Uint16Array;
  readonly long: readonly LongCodes[];
  /** Table numbers of the blocks of an MCU: DC and AC of the first, then of the next. */
  readonly order: Uint8Array;
}

interface LongCodes {
  /** By code length: one above the greatest code of that length. */
  readonly limits: Int32Array;
  /** By code length: what to add to a code for the index of its step. */
  readonly offsets: Int32Array;
  readonly steps: Uint16Array;
}

/** Undefined: a table is no prefix code. */
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

/**
 * Reads MCUs from `start` on. Returns the offset behind them, or BROKEN.
 * @param endsAtMarker only the rest of a byte may stand between the last MCU and a marker
 */
function readSpan(
  file: Uint8Array,
  start: number,
  { fast, several, long, order }: CodeTables,
  mcus: number,
  endsAtMarker: boolean,
): number {
  let at = start;
  let end = file.length;
  // Bits read and not used, the first on top; the last `missing` of them are not in the file.
  let held = 0;
  let heldBits = 0;
  let missing = 0;
  // Bits of a value that were not yet held when its code was read.
  let owed = 0;
  for (let mcu = 0; mcu < mcus; mcu++) {
    for (let block = 0; block < order.length; block += 2) {
      let table = order[block]!;
      let coefficient = 0;
      while (coefficient < BLOCK_COEFFICIENTS) {
        while (heldBits < HELD_BITS_MIN) {
          const byte = at < end ? file[at]! : 0;
          const next = byte === 0xff ? passStuffing(file, at) : at + 1;
          if (at < end && next !== BROKEN) {
            held |= byte << (24 - heldBits);
            at = next;
          } else {
            // A marker or the file's end: zeros from here on.
            end = at;
            missing += 8;
          }
          heldBits += 8;
        }
        if (owed > 0) {
          held <<= owed;
          heldBits -= owed;
          owed = 0;
          continue;
        }
        const entry = (table << FAST_BITS) | (held >>> (32 - FAST_BITS));
        const steps = several[entry]!;
        if (steps !== 0) {
          const reached = coefficient + ((steps >> STEPS_COEFFICIENTS_AT) & 127);
          const isEnd = steps >= STEPS_END;
          // Beyond the block's end the bits belong to the next block, which has its own codes.
          if (reached < BLOCK_COEFFICIENTS || (reached === BLOCK_COEFFICIENTS && !isEnd)) {
            held <<= steps & 15;
            heldBits -= steps & 15;
            coefficient = isEnd ? END_OF_BLOCK : reached;
            continue;
          }
        }
        let step = fast[entry]!;
        if (step === 0) step = findLong(long[table]!, held);
        if (step === 0) return BROKEN;
        const bits = step & 255;
        owed = bits > heldBits ? bits - heldBits : 0;
        held <<= bits - owed;
        heldBits -= bits - owed;
        coefficient += step >> 8;
        table = order[block + 1]!;
      }
      // A value behind the block's end: no encoder writes one, and decoders ignore it.
      if (coefficient > BLOCK_COEFFICIENTS && coefficient < END_OF_BLOCK) return BROKEN;
    }
    if (missing > heldBits - owed) return BROKEN;
  }
  return endsAtMarker && heldBits - owed - missing >= 8 ? BROKEN : at;
}
