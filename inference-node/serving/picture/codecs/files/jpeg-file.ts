/**
 * Checks that a JPEG is whole, and repairs its headers (ITU-T T.81, annex B) in a copy. A decoder
 * that fails at every warning then reads whole files and no others: libjpeg also warns of headers
 * that damage no pixel.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import {
  EOI,
  endOfSegment,
  findMarker,
  isFrameHeader,
  RST_FIRST,
  SOI,
  SOS,
  standsAlone,
} from '@matting/proto/contract/image-header/jpeg-segments.ts';
import {
  findStrayBytes,
  type HuffmanCodes,
  type SequentialScan,
  type Stray,
} from './jpeg-entropy.ts';

/** Including scans; 50 MB of full APP segments are 800. */
const SEGMENTS_MAX = 4096;
const COEFFICIENTS = 64;
const AC_CLASS = 16;

const SOF_BASELINE = 0xc0;
const SOF_EXTENDED = 0xc1;
const SOF_PROGRESSIVE = 0xc2;
const DHT = 0xc4;
const DRI = 0xdd;
const APP0 = 0xe0;
const APP14 = 0xee;
const END_MARKER = Buffer.from([0xff, EOI]);
/** Ss, Se, Ah and Al of a sequential scan. */
const WHOLE_SPECTRUM = Buffer.from([0, COEFFICIENTS - 1, 0]);
const JFIF_MAJOR_AT = 5;
const ADOBE_TRANSFORM_AT = 11;
/** Keys are numbers of components; libjpeg reads other values as these. */
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
  /** Keys have the class in bit 4 and the number below it. */
  readonly codes: ReadonlyMap<number, HuffmanCodes>;
}

interface Patch {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

const STRAY_WARNING = /Corrupt JPEG data: (\d+) extraneous bytes before marker 0x(d[0-79])/;
/** Most stray bytes at once: a sector of a camera's memory card. */
const STRAY_BYTES_MAX = 512;
const ALIKE_MIN = 3;
const NOTHING = Buffer.alloc(0);

class JpegLayout {
  readonly patches: Patch[] = [];
  readonly scans: Scan[] = [];
  frame: Frame | undefined;
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

  /** The first scan has all components: a decoder stops after its last block. */
  get isOneScan(): boolean {
    const { marker, components } = this.frame ?? { marker: SOF_PROGRESSIVE, components: [] };
    return marker !== SOF_PROGRESSIVE && this.scans[0]?.components.length === components.length;
  }

  get isSequential(): boolean {
    const marker = this.frame?.marker;
    return marker === SOF_BASELINE || marker === SOF_EXTENDED;
  }

  #readSegment(from: number): number | undefined {
    const file = this.#file;
    const found = findMarker(file, from, false, marker => this.#isSegment(marker));
    const at = found.at < 0 ? file.length : found.at - 1;
    // After a scan, stray bytes may belong to the scan, so they stay.
    if (at > from && this.scans.length === 0) this.#mendStray(from, at);
    const marker = file[at + 1];
    if (marker === undefined) return undefined;
    if (marker === EOI) {
      this.hasEnd = true;
      return undefined;
    }
    if (standsAlone(marker)) return at + 2;
    if (at + 4 > file.length) return undefined;
    const end = endOfSegment(at + 2, file.readUInt16BE(at + 2));
    if (end === undefined || end > file.length) return undefined;
    this.#take(marker, at + 4, end);
    if (marker !== SOS) return end;
    return this.isOneScan ? undefined : end;
  }

  #isSegment(marker: number): boolean {
    return this.scans.length === 0 || marker < RST_FIRST || marker >= SOI;
  }

  /** Fill bytes before a marker stay. */
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
    const count = body[0] ?? 0;
    const spectralAt = 1 + 2 * count;
    const spectral = body.subarray(spectralAt, spectralAt + WHOLE_SPECTRUM.length);
    if (this.frame === undefined || spectral.length < WHOLE_SPECTRUM.length) return;
    const { components } = this.frame;
    const [from = 0, to = 0, bits = 0] = spectral;
    const chosen = Array.from({ length: count }, (_, i) => {
      const [own, tables = 0] = body.subarray(1 + 2 * i);
      const index = components.findIndex(({ id }) => id === own);
      return { index, dc: tables >> 4, ac: tables & 15 };
    });
    this.scans.push({
      dataStart: start + body.length,
      components: chosen,
      spectral: { from, to, low: bits & 15 },
      restartInterval: this.#restartInterval,
      codes: this.#codes,
    });
    if (this.isSequential && !spectral.equals(WHOLE_SPECTRUM)) {
      this.#replace(start + spectralAt, WHOLE_SPECTRUM);
    }
  }
}

function readCodes(
  body: Buffer,
  before: ReadonlyMap<number, HuffmanCodes>,
): ReadonlyMap<number, HuffmanCodes> {
  const codes = new Map(before);
  for (let at = 0; at + 17 <= body.length; ) {
    const counts = body.subarray(at + 1, at + 17);
    const total = counts.reduce((sum, count) => sum + count, 0);
    codes.set(body.readUInt8(at), { counts, symbols: body.subarray(at + 17, at + 17 + total) });
    at += 17 + total;
  }
  return codes;
}

function isNamed(body: Buffer, name: string, lengthMin: number): boolean {
  return body.length >= lengthMin && body.toString('latin1', 0, name.length) === name;
}

function readFrame(marker: number, body: Buffer): Frame | undefined {
  const count = body[5];
  if (count === undefined || body.length < 6 + 3 * count) return undefined;
  const components = Array.from({ length: count }, (_, i) => {
    const [id = 0, factors = 0] = body.subarray(6 + 3 * i);
    return { id, across: factors >> 4, down: factors & 15 };
  });
  return { marker, width: body.readUInt16BE(3), height: body.readUInt16BE(1), components };
}

export interface MendedJpeg {
  readonly file: Buffer;
  /** Checks the file while a decoder works on it. @throws ContractError PROCESSING_FAILED */
  readonly requireWhole: () => void;
  /** Undefined: the warning is not about stray bytes. */
  readonly withoutStray: (warning: string) => Buffer | undefined;
}

export function mendJpeg(file: Buffer): MendedJpeg {
  const layout = new JpegLayout(file);
  const patches = [...layout.patches];
  const scan = readOnlyScan(layout);
  const hasEnd = scan === undefined ? layout.hasEnd : file.includes(END_MARKER, scan.start);
  // Adds a missing end marker, which would be a decoder's only warning. Half a marker is damage.
  const isMended = scan !== undefined || (!layout.isOneScan && isComplete(layout));
  if (!hasEnd && file.at(-1) !== 0xff && isMended) {
    patches.push({ start: file.length, end: file.length, bytes: END_MARKER });
  }
  const requireWhole = (): void => {
    if (scan === undefined || seesLastRows(layout) || findHarmlessBytes(file, scan)) return;
    throw new ContractError('PROCESSING_FAILED', 'The image is damaged or incomplete.');
  };
  const mended = patches.length === 0 ? file : applyPatches(file, patches);
  const withoutStray = (warning: string): Buffer | undefined => {
    const [, bytes, marker] = STRAY_WARNING.exec(warning) ?? [];
    if (marker === 'd9') return withoutPadding(mended, Number(bytes));
    const stray = scan && marker !== undefined ? findHarmlessBytes(file, scan) : undefined;
    const removed = stray?.map(({ start, end }) => ({ start, end, bytes: NOTHING }));
    return removed?.length ? applyPatches(file, [...patches, ...removed]) : undefined;
  };
  return { file: mended, requireWhole, withoutStray };
}

/**
 * Some cameras write bytes before restart markers. A changed bit leaves bytes over too, but neither
 * zeros nor the same number before three markers (docs/adr/0057). Undefined: a block is missing or
 * damaged, or the bytes may come from damage.
 */
function findHarmlessBytes(file: Buffer, scan: SequentialScan): readonly Stray[] | undefined {
  const stray = findStrayBytes(file, scan);
  if (stray === undefined || stray.length === 0) return stray;
  const lengths = new Set(stray.map(({ start, end }) => end - start));
  const areAlike = stray.length >= ALIKE_MIN && lengths.size === 1;
  const isZero = ({ start, end }: Stray) => file.subarray(start, end).every(byte => byte === 0);
  const areHarmless =
    Math.max(...lengths) <= STRAY_BYTES_MAX &&
    stray.every(({ isFilled }) => isFilled) &&
    (areAlike || stray.every(isZero));
  return areHarmless ? stray : undefined;
}

/** libvips (8.18) misses a warning in the last rows, unless it upsamples 4:2:0. */
function seesLastRows({ frame }: JpegLayout): boolean {
  if (frame?.components.length !== 3) return false;
  const [luma, ...chroma] = frame.components;
  if (luma === undefined) return false;
  const isHalved = chroma.every(({ across, down }) => across === 1 && down === 1);
  const isLarge = frame.width > 4 && frame.height > 16;
  return luma.across === 2 && luma.down === 2 && isHalved && isLarge;
}

/** Undefined: only a decoder can check the picture. */
function readOnlyScan(layout: JpegLayout): SequentialScan | undefined {
  const { frame, isOneScan, isSequential, scans } = layout;
  const [scan] = scans;
  if (frame === undefined || scan === undefined || !isOneScan || !isSequential) return undefined;
  const { components, codes, restartInterval, dataStart } = scan;
  const all = components.flatMap(({ index, dc, ac }) => {
    const component = frame.components[index];
    const its = { dc: codes.get(dc), ac: codes.get(AC_CLASS | ac) };
    return component === undefined ? [] : [{ ...component, ...its }];
  });
  if (all.length < components.length) return undefined;
  // A single component ignores its sampling factors.
  const isAlone = all.length === 1;
  const acrossMax = isAlone ? 1 : Math.max(...all.map(({ across }) => across));
  const downMax = isAlone ? 1 : Math.max(...all.map(({ down }) => down));
  const blocks = all.flatMap(({ across, down, dc, ac }) =>
    Array.from({ length: isAlone ? 1 : across * down }, () => ({ dc, ac })),
  );
  const known = blocks.flatMap(({ dc, ac }) => (dc && ac ? [{ dc, ac }] : []));
  if (known.length === 0 || known.length < blocks.length) return undefined;
  const mcus = Math.ceil(frame.width / (8 * acrossMax)) * Math.ceil(frame.height / (8 * downMax));
  return { start: dataStart, mcus, restartInterval, blocks: known };
}

/**
 * True if all coefficients are there: only the last scan may be truncated, which a decoder reports.
 */
function isComplete({ frame, scans, isSequential }: JpegLayout): boolean {
  if (frame === undefined) return false;
  if (isSequential) {
    const seen = new Set(scans.flatMap(({ components }) => components.map(({ index }) => index)));
    return frame.components.every((_, index) => seen.has(index));
  }
  if (frame.marker !== SOF_PROGRESSIVE) return false;
  // Missing bits by component and coefficient; 255: none was seen.
  const low = frame.components.map(() => new Uint8Array(COEFFICIENTS).fill(255));
  for (const { components, spectral } of scans) {
    for (const { index } of components) {
      low[index]?.fill(spectral.low, spectral.from, spectral.to + 1);
    }
  }
  return low.every(bits => bits.every(bit => bit === 0));
}

function withoutPadding(file: Buffer, bytes: number): Buffer | undefined {
  const end = file.lastIndexOf(END_MARKER);
  const padding = file.subarray(Math.max(0, end - bytes), end);
  if (bytes > STRAY_BYTES_MAX || padding.some(byte => byte !== 0)) return undefined;
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

/** ITU-T T.81, annex K.3, as DHT segments. Motion JPEG frames omit these codes. */
const STANDARD_CODES = Buffer.from(
  '0000010501010101010100000000000000000102030405060708090a0b100002010303020403050504040000' +
    '017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718' +
    '191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a7374757677' +
    '78797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7' +
    'c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa010003010101010101010101' +
    '0000000000000102030405060708090a0b110002010204040304070504040001027700010203110405213106' +
    '1241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a262728292a3536' +
    '3738393a434445464748494a535455565758595a636465666768696a737475767778797a8283848586878889' +
    '8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8' +
    'd9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa',
  'hex',
);
