/** Bits of a byte string, least significant first, as JPEG XL writes them. */
export class BitReader {
  readonly #bytes: Uint8Array;
  #position = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** More bits were asked for than there are: what was read since is made of zeros. */
  get overrun(): boolean {
    return this.#position > this.#bytes.length * 8;
  }

  /** An unsigned number of up to 30 bits. */
  bits(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i += 1) {
      const byte = this.#bytes[this.#position >>> 3] ?? 0;
      value |= ((byte >>> (this.#position & 7)) & 1) << i;
      this.#position += 1;
    }
    return value;
  }

  skipToByte(): void {
    this.#position = (this.#position + 7) & ~7;
  }

  bool(): boolean {
    return this.bits(1) === 1;
  }
}
