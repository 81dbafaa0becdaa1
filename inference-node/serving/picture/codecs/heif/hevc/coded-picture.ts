/**
 * Checks whether a coded picture of HEVC is whole, by its codes alone: decoders need not notice
 * damage.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { payloadOf } from './bit-reader.ts';
import { CodedSlices } from './coded-slices.ts';
import { DamagedCoding, UncheckedCoding } from './outcomes.ts';
import {
  type Picture,
  readPicture,
  readSequence,
  readSlice,
  type Sequence,
  type Slice,
} from './parameters.ts';

const SEQUENCE_SET = 33;
const PICTURE_SET = 34;
const SLICES_END = 31;
const IDR = [19, 20];

/** Fields of HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3.1). */
const LENGTH_SIZE_AT = 21;
const ARRAYS_AT = 22;

export interface CodedPicture {
  /** The content of its hvcC. */
  readonly configuration: Uint8Array;
  /** NAL units, each behind its length. */
  readonly data: Uint8Array;
  /** The size that the container declares, in pixels. */
  readonly size: Size;
}

/** Coded pictures are multiples of the smallest block: below this more than they show. */
const MARGIN_PX = 64;

/**
 * Reads every code of the picture. A flipped bit leads the arithmetic decoder astray, so that it
 * meets no end where the data ends, or one before the last block.
 * @returns what is damaged; undefined: nothing, or the picture uses a tool that is not followed
 */
export function findDamage(coded: CodedPicture): string | undefined {
  try {
    new PictureCheck().run(coded);
    return undefined;
  } catch (error) {
    if (error instanceof UncheckedCoding) return undefined;
    if (error instanceof DamagedCoding) return error.message;
    throw error;
  }
}

class PictureCheck {
  readonly #sequences = new Map<number, Sequence>();
  readonly #pictures = new Map<number, Picture>();
  #slices: CodedSlices | undefined;
  #before: Slice | undefined;
  #size: Size = { width: 0, height: 0 };

  run({ configuration, data, size }: CodedPicture): void {
    this.#size = size;
    for (const nal of configuredUnits(configuration)) this.#take(nal);
    const lengthBytes = ((configuration[LENGTH_SIZE_AT] ?? 3) & 3) + 1;
    for (const nal of unitsIn(data, lengthBytes)) this.#take(nal);
    if (!this.#slices?.isWhole) throw new DamagedCoding('it lacks a part of the picture');
  }

  #take(nal: Uint8Array): void {
    const [first, second] = nal;
    if (first === undefined || second === undefined) throw new DamagedCoding('a unit is empty');
    const type = (first >> 1) & 63;
    // A further layer may be the other eye's picture.
    const layer = ((first & 1) << 5) | (second >> 3);
    if (layer !== 0) return;
    if (type === SEQUENCE_SET) {
      const { id, sequence } = readSequence(payloadOf(nal));
      this.#sequences.set(id, sequence);
    } else if (type === PICTURE_SET) {
      const { id, picture } = readPicture(payloadOf(nal));
      this.#pictures.set(id, picture);
    } else if (type <= SLICES_END) this.#readSlice(type, payloadOf(nal));
  }

  #readSlice(type: number, payload: Uint8Array): void {
    if (!IDR.includes(type)) throw new UncheckedCoding('a picture of another kind');
    const sets = { sequences: this.#sequences, pictures: this.#pictures };
    const slice = readSlice(payload, sets, this.#before);
    if (slice.isFirst) {
      if (this.#slices !== undefined) throw new UncheckedCoding('several pictures');
      this.#requireSize(slice.sequence);
      this.#slices = new CodedSlices(slice.sequence);
    }
    if (this.#slices === undefined) throw new DamagedCoding('its first slice is missing');
    this.#slices.read(slice, payload);
    this.#before = slice;
  }

  /** The memory of a picture grows with its size, which a decoder compares. */
  #requireSize({ width, height }: Sequence): void {
    const { width: shownWidth, height: shownHeight } = this.#size;
    if (width > shownWidth + MARGIN_PX || height > shownHeight + MARGIN_PX) {
      throw new UncheckedCoding('another size than its container says');
    }
  }
}

function* configuredUnits(record: Uint8Array): Iterable<Uint8Array> {
  const view = new DataView(record.buffer, record.byteOffset, record.byteLength);
  const arrays = record[ARRAYS_AT] ?? 0;
  let at = ARRAYS_AT + 1;
  for (let array = 0; array < arrays; array++) {
    if (at + 3 > record.length) throw new DamagedCoding('its configuration is cut short');
    const units = view.getUint16(at + 1);
    at += 3;
    for (let unit = 0; unit < units; unit++) {
      const end = at + 2 <= record.length ? at + 2 + view.getUint16(at) : Infinity;
      if (end > record.length) throw new DamagedCoding('its configuration is cut short');
      yield record.subarray(at + 2, end);
      at = end;
    }
  }
}

function* unitsIn(data: Uint8Array, lengthBytes: number): Iterable<Uint8Array> {
  for (let at = 0; at < data.length; ) {
    let length = 0;
    for (let i = 0; i < lengthBytes; i++) length = length * 256 + (data[at + i] ?? 0);
    const end = at + lengthBytes + length;
    if (end > data.length) throw new DamagedCoding('a unit reaches beyond the data');
    yield data.subarray(at + lengthBytes, end);
    at = end;
  }
}
