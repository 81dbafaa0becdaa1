/**
 * What has to be done to a JPEG's bytes so that a decoder which fails at every warning reads whole
 * files and no others (ITU-T T.81, annex B). libjpeg also warns of headers that leave every pixel
 * whole, and of several warnings libvips tells the first alone: so those headers are mended in a
 * copy, and what libjpeg warns of then is damage.
 */
import { ContractError } from '#contract/errors.ts';
import { type HuffmanCodes, isEntropyWhole, type SequentialScan } from './jpeg-entropy.ts';
import { STANDARD_CODES } from './jpeg-standard-codes.ts';

/** Segments looked at, scans among them; 50 MB of full APP segments are 800. */
const SEGMENTS_MAX = 4096;
const COEFFICIENTS = 64;
/** Of a table's number: it is for AC coefficients. */
const AC_CLASS = 16;

const TEM = 0x01;
const SOF_BASELINE = 0xc0;
const SOF_EXTENDED = 0xc1;
const SOF_PROGRESSIVE = 0xc2;
const DHT = 0xc4;
const RST_FIRST = 0xd0;
const SOI = 0xd8;
const EOI = 0xd9;
const SOS = 0xda;
const DRI = 0xdd;
const APP0 = 0xe0;
const APP14 = 0xee;
const END_MARKER = Buffer.from([0xff, EOI]);
/** Ss, Se, Ah and Al of every scan of a sequential picture. */
const WHOLE_SPECTRUM = Buffer.from([0, COEFFICIENTS - 1, 0]);
const JFIF_MAJOR_AT = 5;
const ADOBE_TRANSFORM_AT = 11;
/** Adobe's YCbCr and YCCK, by the number of components: what libjpeg takes other codes for. */
const ADOBE_TRANSFORMS: Readonly<Record<number, number>> = { 3: 1, 4: 2 };

interface Component {
  readonly id: number;
  readonly across: number;
  readonly down: number;
}

interface Frame {
  readonly marker: number;
  readonly width: number;
  readonly height: number;
  readonly components: readonly Component[];
}

interface Scan {
  readonly dataStart: number;
  readonly components: readonly {
    readonly index: number;
    readonly dc: number;
    readonly ac: number;
  }[];
  readonly spectral: { readonly from: number; readonly to: number; readonly low: number };
  readonly restartInterval: number;
  /** Those in force when it begins: class in bit 4, number below it. */
  readonly codes: ReadonlyMap<number, HuffmanCodes>;
}

/** Bytes to put in the place of others. */
interface Patch {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

/** libjpeg's, in front of its end marker. */
const PADDING_WARNING = /(\d+) extraneous bytes before marker 0xd9/;
/** A sector of a camera's card. */
const PADDING_BYTES_MAX = 512;
const NOTHING = Buffer.alloc(0);

/** What of a file says how it is to be read. */
class JpegLayout {
  readonly patches: Patch[] = [];
  readonly scans: Scan[] = [];
  frame: Frame | undefined;
  /** It ends with the marker that says so. */
  hasEnd = false;
  readonly #file: Buffer;
  #restartInterval = 0;
  #codes = readCodes(STANDARD_CODES, new Map());
  #adobeAt: number | undefined;

  constructor(file: Buffer) {
    this.#file = file;
    let at = 2;
    for (let segments = 0; segments < SEGMENTS_MAX; segments++) {
      const next = this.#readSegment(at);
      if (next === undefined) break;
      at = next;
    }
    this.#mendAdobe();
  }

  /** One scan has all components, so a decoder stops behind its last block. */
  get isOneScan(): boolean {
    const { marker, components } = this.frame ?? { marker: SOF_PROGRESSIVE, components: [] };
    return marker !== SOF_PROGRESSIVE && this.scans[0]?.components.length === components.length;
  }

  get isSequential(): boolean {
    const marker = this.frame?.marker;
    return marker === SOF_BASELINE || marker === SOF_EXTENDED;
  }

  /** Reads the segment at or behind `from`; where the next one is looked for, if anywhere. */
  #readSegment(from: number): number | undefined {
    const file = this.#file;
    let at = from;
    while (at < file.length && !(file[at] === 0xff && this.#isSegment(file[at + 1]))) at++;
    // Behind a scan these may be what is left of it.
    if (at > from && this.scans.length === 0) this.#mendStray(from, at);
    const marker = file[at + 1];
    if (marker === undefined) return undefined;
    if (marker === EOI) {
      this.hasEnd = true;
      return undefined;
    }
    if (marker === TEM || (marker >= RST_FIRST && marker <= SOI)) return at + 2;
    if (at + 4 > file.length) return undefined;
    const end = at + 2 + file.readUInt16BE(at + 2);
    if (end < at + 4 || end > file.length) return undefined;
    this.#take(marker, at + 4, end);
    if (marker !== SOS) return end;
    return this.isOneScan ? undefined : end;
  }

  /** Behind FF; restart markers belong to their scan. */
  #isSegment(byte: number | undefined): boolean {
    if (byte === undefined || byte === 0 || byte === 0xff) return false;
    return this.scans.length === 0 || byte < RST_FIRST || byte >= SOI;
  }

  /** Fill bytes before a marker are lawful. */
  #mendStray(start: number, at: number): void {
    let end = at;
    while (end > start && this.#file[end - 1] === 0xff) end--;
    if (end > start) this.patches.push({ start, end, bytes: NOTHING });
  }

  #take(marker: number, start: number, end: number): void {
    const body = this.#file.subarray(start, end);
    if (marker === SOS) this.#takeScan(start, body);
    else if (marker === DHT) this.#codes = readCodes(body, this.#codes);
    else if (marker === DRI && body.length >= 2) this.#restartInterval = body.readUInt16BE(0);
    else if (marker === APP0) this.#mendJfif(start, body);
    else if (marker === APP14 && isNamed(body, 'Adobe', 12)) {
      this.#adobeAt = start + ADOBE_TRANSFORM_AT;
    } else if (isFrameHeader(marker)) this.frame ??= readFrame(marker, body);
  }

  #mendJfif(start: number, body: Buffer): void {
    if (!isNamed(body, 'JFIF\0', 14)) return;
    if (body[JFIF_MAJOR_AT] === 1 || body[JFIF_MAJOR_AT] === 2) return;
    this.#replace(start + JFIF_MAJOR_AT, Buffer.from([1]));
  }

  #mendAdobe(): void {
    const at = this.#adobeAt;
    const transform = ADOBE_TRANSFORMS[this.frame?.components.length ?? 0];
    if (at === undefined || transform === undefined) return;
    if (this.#file[at] !== 0 && this.#file[at] !== transform) {
      this.#replace(at, Buffer.from([transform]));
    }
  }

  #replace(start: number, bytes: Buffer): void {
    this.patches.push({ start, end: start + bytes.length, bytes });
  }

  #takeScan(start: number, body: Buffer): void {
    const count = body[0];
    const spectralAt = 1 + 2 * count;
    const spectral = body.subarray(spectralAt, spectralAt + WHOLE_SPECTRUM.length);
    if (this.frame === undefined || spectral.length < WHOLE_SPECTRUM.length) return;
    const { components } = this.frame;
    const chosen = Array.from({ length: count }, (_, i) => ({
      index: components.findIndex(({ id }) => id === body[1 + 2 * i]),
      dc: body[2 + 2 * i] >> 4,
      ac: body[2 + 2 * i] & 15,
    }));
    this.scans.push({
      dataStart: start + body.length,
      components: chosen,
      spectral: { from: spectral[0], to: spectral[1], low: spectral[2] & 15 },
      restartInterval: this.#restartInterval,
      codes: this.#codes,
    });
    if (this.isSequential && !spectral.equals(WHOLE_SPECTRUM)) {
      this.#replace(start + spectralAt, WHOLE_SPECTRUM);
    }
  }
}

/** SOF0 to SOF15: without DHT, JPG and DAC. */
function isFrameHeader(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== DHT && marker !== 0xc8 && marker !== 0xcc;
}

/** Those of a DHT segment beside the ones before it, or in their place. */
function readCodes(
  body: Buffer,
  before: ReadonlyMap<number, HuffmanCodes>,
): ReadonlyMap<number, HuffmanCodes> {
  const codes = new Map(before);
  for (let at = 0; at + 17 <= body.length; ) {
    const counts = body.subarray(at + 1, at + 17);
    const total = counts.reduce((sum, count) => sum + count, 0);
    codes.set(body[at], { counts, symbols: body.subarray(at + 17, at + 17 + total) });
    at += 17 + total;
  }
  return codes;
}

function isNamed(body: Buffer, name: string, lengthMin: number): boolean {
  return body.length >= lengthMin && body.toString('latin1', 0, name.length) === name;
}

function readFrame(marker: number, body: Buffer): Frame | undefined {
  const count = body[5];
  if (body.length < 6 || body.length < 6 + 3 * count) return undefined;
  const components = Array.from({ length: count }, (_, i) => {
    const factors = body[7 + 3 * i];
    return { id: body[6 + 3 * i], across: factors >> 4, down: factors & 15 };
  });
  return { marker, width: body.readUInt16BE(3), height: body.readUInt16BE(1), components };
}

export interface MendedJpeg {
  /** The bytes as they were given, or a mended copy. */
  readonly file: Buffer;
  /**
   * Reads the picture's codes, which takes a while: a decoder can work on the file meanwhile.
   * @throws ContractError PROCESSING_FAILED where blocks of the picture are missing or damaged
   */
  readonly requireWhole: () => void;
}

export function mendJpeg(file: Buffer): MendedJpeg {
  const layout = new JpegLayout(file);
  const patches = [...layout.patches];
  const scan = readOnlyScan(layout);
  const hasEnd = scan === undefined ? layout.hasEnd : file.includes(END_MARKER, scan.start);
  // A decoder that finds a marker says what is missing before it; one that finds none, no more.
  // Some encoders leave the marker out, but none writes half of it: that is a file cut short.
  const isMended = scan !== undefined || (!layout.isOneScan && isComplete(layout));
  if (!hasEnd && file.at(-1) !== 0xff && isMended) {
    patches.push({ start: file.length, end: file.length, bytes: END_MARKER });
  }
  const requireWhole = (): void => {
    if (scan === undefined || seesLastRows(layout) || isEntropyWhole(file, scan)) return;
    throw new ContractError('PROCESSING_FAILED', 'the image is damaged or parts of it are missing');
  };
  return { file: patches.length === 0 ? file : applyPatches(file, patches), requireWhole };
}

/**
 * libvips (8.18) fails at a warning when it asks for the next rows, so it overlooks those of the
 * last ones, except where libjpeg decodes a row of MCUs ahead: it does to bring 4:2:0 to full size.
 */
function seesLastRows({ frame }: JpegLayout): boolean {
  if (frame === undefined || frame.components.length !== 3) return false;
  const [luma, ...chroma] = frame.components;
  const isHalved = chroma.every(({ across, down }) => across === 1 && down === 1);
  const isLarge = frame.width > 4 && frame.height > 16;
  return luma.across === 2 && luma.down === 2 && isHalved && isLarge;
}

/** Of a picture in one sequential scan; undefined also where it takes a decoder to read its codes. */
function readOnlyScan(layout: JpegLayout): SequentialScan | undefined {
  const { frame, isOneScan, isSequential, scans } = layout;
  if (frame === undefined || !isOneScan || !isSequential) return undefined;
  const { components, codes, restartInterval, dataStart } = scans[0];
  const all = components.flatMap(({ index }) => frame.components[index] ?? []);
  if (all.length < components.length) return undefined;
  // A component alone comes block by block, whatever its factors are.
  const isAlone = all.length === 1;
  const acrossMax = isAlone ? 1 : Math.max(...all.map(({ across }) => across));
  const downMax = isAlone ? 1 : Math.max(...all.map(({ down }) => down));
  const blocks = components.flatMap((component, i) => {
    const dc = codes.get(component.dc);
    const ac = codes.get(AC_CLASS | component.ac);
    const count = isAlone ? 1 : all[i].across * all[i].down;
    return Array.from({ length: count }, () => ({ dc, ac }));
  });
  const known = blocks.flatMap(({ dc, ac }) => (dc && ac ? [{ dc, ac }] : []));
  if (known.length === 0 || known.length < blocks.length) return undefined;
  const mcus = Math.ceil(frame.width / (8 * acrossMax)) * Math.ceil(frame.height / (8 * downMax));
  return { start: dataStart, mcus, restartInterval, blocks: known };
}

/**
 * Of a picture in several scans, that they say every bit of every coefficient: only the last of
 * them can be cut then, which a decoder tells.
 */
function isComplete({ frame, scans, isSequential }: JpegLayout): boolean {
  if (frame === undefined) return false;
  if (isSequential) {
    const seen = new Set(scans.flatMap(({ components }) => components.map(({ index }) => index)));
    return frame.components.every((_, index) => seen.has(index));
  }
  if (frame.marker !== SOF_PROGRESSIVE) return false;
  // Bits that are still to come, by component and coefficient; unseen ones have all.
  const low = frame.components.map(() => new Uint8Array(COEFFICIENTS).fill(255));
  for (const { components, spectral } of scans) {
    for (const { index } of components) {
      low[index]?.fill(spectral.low, spectral.from, spectral.to + 1);
    }
  }
  return low.every(bits => bits.every(bit => bit === 0));
}

/**
 * Some encoders fill up with zeros before the end marker, and of a picture in several scans libjpeg
 * warns of that. Undefined: the warning is another, or these are not zeros.
 */
export function withoutPadding(file: Buffer, warning: string): Buffer | undefined {
  const bytes = Number(PADDING_WARNING.exec(warning)?.[1] ?? 0);
  const end = file.lastIndexOf(END_MARKER);
  const padding = file.subarray(Math.max(0, end - bytes), end);
  if (bytes === 0 || bytes > PADDING_BYTES_MAX || padding.some(byte => byte !== 0))
    return undefined;
  return applyPatches(file, [{ start: end - bytes, end, bytes: NOTHING }]);
}

function applyPatches(file: Buffer, patches: readonly Patch[]): Buffer {
  const parts: Buffer[] = [];
  let at = 0;
  for (const { start, end, bytes } of patches.toSorted((a, b) => a.start - b.start)) {
    parts.push(file.subarray(at, start), bytes);
    at = end;
  }
  return Buffer.concat([...parts, file.subarray(at)]);
}
