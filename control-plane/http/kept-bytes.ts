/** Bytes of a body that a reader keeps until more arrives. It reserves room before it grows. */
import type { HeldRoom } from '@matting/program/held-bytes.ts';

const FIRST_BYTES = 256;
export const NOTHING = Buffer.alloc(0);

export class KeptBytes {
  readonly #bytesMax: number;
  readonly #room: HeldRoom;
  #bytes: Buffer = NOTHING;
  #length = 0;

  constructor(bytesMax: number, room: HeldRoom) {
    this.#bytesMax = bytesMax;
    this.#room = room;
  }

  get length(): number {
    return this.#length;
  }

  /** @returns false: over the bound, and nothing is kept @throws the room's refusal */
  append(bytes: Uint8Array, from = 0, end = bytes.length): boolean {
    const length = this.#length + end - from;
    if (length > this.#bytesMax) return false;
    if (length > this.#bytes.length) this.#grow(length);
    this.#bytes.set(bytes.subarray(from, end), this.#length);
    this.#length = length;
    return true;
  }

  /** Valid until the next `append`. */
  view(from = 0, end = this.#length): Buffer {
    return this.#bytes.subarray(from, end);
  }

  truncate(length: number): void {
    this.#length = length;
  }

  #grow(length: number): void {
    const wanted = Math.max(length, 2 * this.#bytes.length, FIRST_BYTES);
    const size = Math.min(wanted, this.#bytesMax);
    this.#room.grow(size - this.#bytes.length);
    // A slice of Node's buffer pool would keep the whole pool alive.
    const larger = Buffer.allocUnsafeSlow(size);
    larger.set(this.view());
    this.#bytes = larger;
  }
}
