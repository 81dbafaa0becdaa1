/** Bits of a NAL unit of HEVC (ITU-T H.265), the most significant first. */
import { DamagedCoding } from './outcomes.ts';

/** Exp-Golomb codes of parameter sets and slice headers have fewer leading zeros. */
const LEADING_ZEROS_MAX = 32;

/**
 * A NAL unit's payload without its bytes of emulation prevention (7.3.1.1), behind its header of two
 * bytes.
 */
export function payloadOf(nal: Uint8Array): Uint8Array {
  const payload = new Uint8Array(Math.max(0, nal.length - 2));
  let length = 0;
  let zeros = 0;
  for (let at = 2; at < nal.length; at++) {
    // The loop ends before the array does.
    const byte = nal[at]!;
    if (zeros >= 2 && byte === 3) {
      zeros = 0;
      continue;
    }
    payload[length++] = byte;
    zeros = byte === 0 ? zeros + 1 : 0;
  }
  return payload.subarray(0, length);
}

export class BitReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** @throws DamagedCoding where the bytes end */
  bit(): number {
    const byte = this.#bytes[this.#at >> 3];
    if (byte === undefined) throw new DamagedCoding('a header is cut short');
    const bit = (byte >> (7 - (this.#at & 7))) & 1;
    this.#at += 1;
    return bit;
  }

  flag(): boolean {
    return this.bit() === 1;
  }

  /** u(n), up to 32 bits. */
  bits(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i++) value = value * 2 + this.bit();
    return value;
  }

  skip(count: number): void {
    for (let i = 0; i < count; i++) this.bit();
  }

  /** ue(v) (9.2). */
  unsigned(max = 2 ** LEADING_ZEROS_MAX): number {
    let zeros = 0;
    while (this.bit() === 0) {
      zeros += 1;
      if (zeros > LEADING_ZEROS_MAX) throw new DamagedCoding('a number of a header has no end');
    }
    const value = 2 ** zeros - 1 + this.bits(zeros);
    if (value > max) throw new DamagedCoding('a number of a header is out of range');
    return value;
  }

  /** se(v). */
  signed(): number {
    const code = this.unsigned();
    return code % 2 === 0 ? -code / 2 : (code + 1) / 2;
  }

  /** byte_alignment() (7.3.2.5): a bit that is set, then zeros. @returns where the next byte is */
  alignedAt(): number {
    if (!this.flag()) throw new DamagedCoding('a header does not end');
    while ((this.#at & 7) !== 0) {
      if (this.flag()) throw new DamagedCoding('a header does not end');
    }
    return this.#at >> 3;
  }
}
