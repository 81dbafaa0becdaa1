import {
  FIXED_BYTES,
  type Frame,
  HEAD_BYTES_MAX,
  LENGTH_BYTES,
  MalformedFrameError,
  PARTS_BYTES_MAX,
  PARTS_MAX,
} from './frames.ts';

type Section = 'fixed' | 'lengths' | 'head' | 'part';

const SMALL_BYTES = 4096;

/**
 * Reads the bulk of a part into its final buffer, without a copy.
 *
 *    fixed ──► lengths ──► head ──► part, part, … ──► fixed
 */
export class FrameReader<Incoming> {
  readonly #onFrame: (frame: Frame<Incoming>) => void;
  readonly #allocate: (bytes: number) => Buffer;
  readonly #partsBytesMax: number;
  readonly #small = Buffer.allocUnsafeSlow(SMALL_BYTES);
  readonly #fixed = Buffer.alloc(FIXED_BYTES);
  #section: Section = 'fixed';
  #target: Buffer = this.#fixed;
  #filled = 0;
  #headBytes = 0;
  #partBytes: number[] = [];
  #head: Incoming | undefined;
  #parts: Buffer[] = [];

  constructor(
    onFrame: (frame: Frame<Incoming>) => void,
    allocate: (bytes: number) => Buffer = Buffer.allocUnsafeSlow,
    partsBytesMax: number = PARTS_BYTES_MAX,
  ) {
    this.#onFrame = onFrame;
    this.#allocate = allocate;
    this.#partsBytesMax = partsBytesMax;
  }

  /** Buffer for the next bytes, never empty. Valid until they are `received`. */
  space(): Buffer {
    return this.#isBulk() ? this.#target.subarray(this.#filled) : this.#small;
  }

  received(bytes: number): MalformedFrameError | undefined {
    if (!this.#isBulk()) return this.#push(this.#small.subarray(0, bytes));
    this.#filled += bytes;
    return this.#push(this.#small.subarray(0, 0));
  }

  #isBulk(): boolean {
    return this.#section === 'part' && this.#target.length - this.#filled > SMALL_BYTES;
  }

  #push(chunk: Buffer): MalformedFrameError | undefined {
    let offset = 0;
    for (;;) {
      const used = Math.min(this.#target.length - this.#filled, chunk.length - offset);
      chunk.copy(this.#target, this.#filled, offset, offset + used);
      this.#filled += used;
      offset += used;
      if (this.#filled < this.#target.length) return undefined;
      const malformed = this.#complete();
      if (malformed !== undefined) return malformed;
    }
  }

  #complete(): MalformedFrameError | undefined {
    switch (this.#section) {
      case 'fixed':
        return this.#completeFixed();
      case 'lengths':
        return this.#completeLengths();
      case 'head':
        return this.#completeHead();
      case 'part':
        this.#parts.push(this.#target);
        this.#nextPart();
        return undefined;
    }
  }

  #completeFixed(): MalformedFrameError | undefined {
    this.#headBytes = this.#fixed.readUInt32LE(0);
    const partCount = this.#fixed.readUInt32LE(4);
    if (this.#headBytes > HEAD_BYTES_MAX) return new MalformedFrameError('head over its bound');
    if (partCount > PARTS_MAX) return new MalformedFrameError('too many parts');
    this.#fill('lengths', Buffer.alloc(LENGTH_BYTES * partCount));
    return undefined;
  }

  #completeLengths(): MalformedFrameError | undefined {
    const lengths = this.#target;
    this.#partBytes = [];
    for (let at = 0; at < lengths.length; at += LENGTH_BYTES) {
      this.#partBytes.push(lengths.readUInt32LE(at));
    }
    const total = this.#partBytes.reduce((sum, bytes) => sum + bytes, 0);
    if (total > this.#partsBytesMax) return new MalformedFrameError('parts over their bound');
    this.#fill('head', Buffer.alloc(this.#headBytes));
    return undefined;
  }

  #completeHead(): MalformedFrameError | undefined {
    try {
      this.#head = JSON.parse(this.#target.toString('utf8')) as Incoming;
    } catch (error) {
      return new MalformedFrameError('head is not JSON', error);
    }
    this.#nextPart();
    return undefined;
  }

  #nextPart(): void {
    const bytes = this.#partBytes[this.#parts.length];
    if (bytes !== undefined) {
      this.#fill('part', this.#allocate(bytes));
      return;
    }
    const frame = { head: this.#head as Incoming, parts: this.#parts };
    this.#head = undefined;
    this.#parts = [];
    this.#fill('fixed', this.#fixed);
    this.#onFrame(frame);
  }

  #fill(section: Section, target: Buffer): void {
    this.#section = section;
    this.#target = target;
    this.#filled = 0;
  }
}
