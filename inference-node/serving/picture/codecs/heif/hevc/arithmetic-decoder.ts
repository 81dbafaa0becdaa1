/** The arithmetic decoder of HEVC (ITU-T H.265, 9.3): bins by contexts, without them, and the end. */
import { DamagedCoding } from './outcomes.ts';

/** rangeTabLps (table 9-52), four by state. */
const LPS_RANGES = Uint8Array.from(
  `128 176 208 240 128 167 197 227 128 158 187 216 123 150 178 205 116 142 169 195 111 135 160 185
  105 128 152 175 100 122 144 166 95 116 137 158 90 110 130 150 85 104 123 142 81 99 117 135
  77 94 111 128 73 89 105 122 69 85 100 116 66 80 95 110 62 76 90 104 59 72 86 99
  56 69 81 94 53 65 77 89 51 62 73 85 48 59 69 80 46 56 66 76 43 53 63 72
  41 50 59 69 39 48 56 65 37 45 54 62 35 43 51 59 33 41 48 56 32 39 46 53
  30 37 43 50 29 35 41 48 27 33 39 45 26 31 37 43 24 30 35 41 23 28 33 39
  22 27 32 37 21 26 30 35 20 24 29 33 19 23 27 31 18 22 26 30 17 21 25 28
  16 20 23 27 15 19 22 25 14 18 21 24 14 17 20 23 13 16 19 22 12 15 18 21
  12 14 17 20 11 14 16 19 11 13 15 18 10 12 15 17 10 12 14 16 9 11 13 15
  9 11 12 14 8 10 12 14 8 9 11 13 7 9 11 12 7 9 10 12 7 8 10 11
  6 8 9 11 6 7 9 10 6 7 8 9 2 2 2 2`
    .trim()
    .split(/\s+/)
    .map(Number),
);
/** transIdxLps (table 9-53). */
const LPS_STATES = Uint8Array.from(
  `0 0 1 2 2 4 4 5 6 7 8 9 9 11 11 12 13 13 15 15 16 16 18 18 19 19 21 21 22 22 23 24
  24 25 26 26 27 27 28 29 29 30 30 30 31 32 32 33 33 33 34 34 35 35 35 36 36 36 37 37 37 38 38 63`
    .trim()
    .split(/\s+/)
    .map(Number),
);
const STATE_MAX = 62;
/** Below the nine bits of the offset lie bits that are read ahead. */
const AHEAD_BITS = 7;

export class ArithmeticDecoder {
  readonly #bytes: Uint8Array;
  #at: number;
  #range = 510;
  #value = 0;
  /** Less than 0: so many bits more may be taken before a byte is read. */
  #needed = -8;
  /** Each context has twice its state, and 1 more if the likelier bin is set. */
  readonly contexts: Uint8Array;

  /** @param contexts a state for each, which decoding changes */
  constructor(bytes: Uint8Array, at: number, contexts: Uint8Array) {
    this.#bytes = bytes;
    this.#at = at;
    this.contexts = contexts;
    this.#begin();
  }

  #begin(): void {
    this.#range = 510;
    this.#needed = -8;
    this.#value = this.#byte() << 8;
    this.#value |= this.#byte();
  }

  #byte(): number {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) throw new DamagedCoding('the coded data ends before the picture does');
    this.#at += 1;
    return byte;
  }

  bin(context: number): number {
    // A context is of this module's tables, and a state below 64.
    const state = this.contexts[context]!;
    const lps = LPS_RANGES[((state >> 1) << 2) + ((this.#range >> 6) & 3)]!;
    const range = this.#range - lps;
    const scaled = range << AHEAD_BITS;
    if (this.#value < scaled) {
      if (state >> 1 < STATE_MAX) this.contexts[context] = state + 2;
      this.#range = range;
      if (range < 256) this.#shift(1);
      return state & 1;
    }
    this.#value -= scaled;
    this.#range = lps;
    const next = LPS_STATES[state >> 1]! << 1;
    this.contexts[context] = next | (state < 2 ? (state & 1) ^ 1 : state & 1);
    this.#shift(Math.clz32(lps) - 23);
    return (state & 1) ^ 1;
  }

  #shift(bits: number): void {
    this.#range <<= bits;
    this.#value <<= bits;
    this.#needed += bits;
    if (this.#needed < 0) return;
    this.#value |= this.#byte() << this.#needed;
    this.#needed -= 8;
  }

  /** A bin that is as likely set as not. */
  bypass(): number {
    this.#value <<= 1;
    this.#needed += 1;
    if (this.#needed >= 0) {
      this.#value |= this.#byte();
      this.#needed = -8;
    }
    const scaled = this.#range << AHEAD_BITS;
    if (this.#value < scaled) return 0;
    this.#value -= scaled;
    return 1;
  }

  bypasses(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i++) value = (value << 1) | this.bypass();
    return value;
  }

  /** Tells whether a slice, or a row of it, ends here (9.3.4.3.5). */
  ends(): boolean {
    this.#range -= 2;
    if (this.#value >= this.#range << AHEAD_BITS) return true;
    if (this.#range < 256) this.#shift(1);
    return false;
  }

  /**
   * Behind an end: the last bit of the offset is set, and the bits read ahead are the zeros up to
   * the next byte. @returns where that byte is
   */
  requireAligned(): number {
    const last = this.#bytes[this.#at - 1] ?? 0;
    if (((last << (8 + this.#needed)) & 0xff) !== 0x80) {
      throw new DamagedCoding('a part of the coded data does not end as it must');
    }
    return this.#at;
  }

  /** Begins the next row, at the next byte. */
  restart(): void {
    this.#begin();
  }
}

/** The states of contexts at a slice's begin (9.3.2.2). */
export function initialStates(values: readonly number[], qp: number): Uint8Array {
  const clippedQp = Math.min(51, Math.max(0, qp));
  return Uint8Array.from(values, value => {
    const slope = (value >> 4) * 5 - 45;
    const offset = ((value & 15) << 3) - 16;
    const state = Math.min(126, Math.max(1, ((slope * clippedQp) >> 4) + offset));
    return state <= 63 ? (63 - state) << 1 : ((state - 64) << 1) | 1;
  });
}
