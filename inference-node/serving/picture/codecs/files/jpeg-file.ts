/** Whether a JPEG is whole. A decoder that fails at every warning reads what is not read here. */
import { ContractError } from '@matting/proto/contract/errors.ts';

/*
 * Whether a sequential JPEG holds every block (ITU-T T.81, annex F.2.2): reads Huffman codes, skips
 * values. libjpeg fills missing blocks with grey and only warns, and libvips (8.18) overlooks a
 * warning in the last rows. Every index lies inside its table: bits are masked, table numbers come
 * from `order`, code lengths end at CODE_BITS_MAX.
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
interface HuffmanCodes {
  readonly counts: Uint8Array;
  readonly symbols: Uint8Array;
}

interface SequentialScan {
  readonly start: number;
  readonly mcus: number;
  /** In MCUs; 0: no restart markers. */
  readonly restartInterval: number;
  readonly blocks: readonly { readonly dc: HuffmanCodes; readonly ac: HuffmanCodes }[];
}

/** False: a block is missing or damaged. What follows the last block is not read. */
function isEntropyWhole(file: Uint8Array, scan: SequentialScan): boolean {
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

const BROKEN = -1;

/** The offset behind the restart marker with this number, which may have fill bytes before it. */
function passRestart(file: Uint8Array, at: number, number: number): number {
  let code = at;
  while (file[code] === 0xff) code++;
  return code > at && file[code] === 0xd0 + number ? code + 1 : BROKEN;
}

/** The low byte: bits of a code and its value; above: coefficients that it advances. */
type Step = number;

function stepOf(codeBits: number, symbol: number, isAc: boolean): Step {
  const valueBits = symbol & 15;
  const run = symbol >> 4;
  const isEnd = isAc && valueBits === 0 && run !== 15;
  const coefficients = isEnd ? END_OF_BLOCK : isAc ? run + 1 : 1;
  return (codeBits + valueBits) | (coefficients << 8);
}

/**
 * Several steps in FAST_BITS bits: bits 0 to 3 the bits taken, from bit 4 on the coefficients, in
 * STEPS_END whether the block ends. 0: none.
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

/** The offset behind the MCUs, or BROKEN. `endsAtMarker`: a marker follows at once. */
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

/*
 * Mends headers, so that a decoder which fails at every warning reads whole files and no others
 * (ITU-T T.81, annex B). libjpeg also warns of headers that leave every pixel whole: those are
 * mended in a copy, and what it then warns of is damage.
 */

/** Segments read, scans among them; 50 MB of full APP segments are 800. */
const SEGMENTS_MAX = 4096;
const COEFFICIENTS = 64;
/** The bit of a table's number that says it is for AC coefficients. */
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
/** Adobe's YCbCr and YCCK, by the number of components: libjpeg reads other values as these. */
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
  /** Tables in force when the scan begins, by class (bit 4) and number (below it). */
  readonly codes: ReadonlyMap<number, HuffmanCodes>;
}

interface Patch {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

const PADDING_WARNING = /(\d+) extraneous bytes before marker 0xd9/;
/** A sector of a camera's memory card. */
const PADDING_BYTES_MAX = 512;
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

  /** Reads the next segment from `from` on. Returns where to go on; undefined: there is no more. */
  #readSegment(from: number): number | undefined {
    const file = this.#file;
    let at = from;
    while (at < file.length && !(file[at] === 0xff && this.#isSegment(file[at + 1]))) at++;
    // After a scan these bytes may belong to it.
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

  /** The byte after FF begins a segment; restart markers belong to their scan. */
  #isSegment(byte: number | undefined): boolean {
    if (byte === undefined || byte === 0 || byte === 0xff) return false;
    return this.scans.length === 0 || byte < RST_FIRST || byte >= SOI;
  }

  /** Removes stray bytes before a marker; fill bytes are allowed there. */
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

function isFrameHeader(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== DHT && marker !== 0xc8 && marker !== 0xcc;
}

/** The tables `before`, with those of a DHT segment added or replaced. */
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
  /** Meanwhile a decoder can work on the file. @throws ContractError PROCESSING_FAILED */
  readonly requireWhole: () => void;
}

export function mendJpeg(file: Buffer): MendedJpeg {
  const layout = new JpegLayout(file);
  const patches = [...layout.patches];
  const scan = readOnlyScan(layout);
  const hasEnd = scan === undefined ? layout.hasEnd : file.includes(END_MARKER, scan.start);
  // Without an end marker a decoder reports only that. No encoder writes half of one.
  const isMended = scan !== undefined || (!layout.isOneScan && isComplete(layout));
  if (!hasEnd && file.at(-1) !== 0xff && isMended) {
    patches.push({ start: file.length, end: file.length, bytes: END_MARKER });
  }
  const requireWhole = (): void => {
    if (scan === undefined || seesLastRows(layout) || isEntropyWhole(file, scan)) return;
    throw new ContractError('PROCESSING_FAILED', 'The image is damaged or incomplete.');
  };
  return { file: patches.length === 0 ? file : applyPatches(file, patches), requireWhole };
}

/** libvips (8.18) overlooks a warning in the last rows, unless 4:2:0 is upsampled. */
function seesLastRows({ frame }: JpegLayout): boolean {
  if (frame?.components.length !== 3) return false;
  const [luma, ...chroma] = frame.components;
  if (luma === undefined) return false;
  const isHalved = chroma.every(({ across, down }) => across === 1 && down === 1);
  const isLarge = frame.width > 4 && frame.height > 16;
  return luma.across === 2 && luma.down === 2 && isHalved && isLarge;
}

/** The scan of a picture in one sequential scan, unless only a decoder can read its codes. */
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
  // A single component is stored block by block, whatever its factors are.
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

/** Then only the last scan can be cut short, which a decoder reports. */
function isComplete({ frame, scans, isSequential }: JpegLayout): boolean {
  if (frame === undefined) return false;
  if (isSequential) {
    const seen = new Set(scans.flatMap(({ components }) => components.map(({ index }) => index)));
    return frame.components.every((_, index) => seen.has(index));
  }
  if (frame.marker !== SOF_PROGRESSIVE) return false;
  // Bits still to come, by component and coefficient; all of them where none was seen.
  const low = frame.components.map(() => new Uint8Array(COEFFICIENTS).fill(255));
  for (const { components, spectral } of scans) {
    for (const { index } of components) {
      low[index]?.fill(spectral.low, spectral.from, spectral.to + 1);
    }
  }
  return low.every(bits => bits.every(bit => bit === 0));
}

/** Zeros before the end marker, of which libjpeg warns. Undefined: something else. */
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

/** Of ITU-T T.81, annex K.3, as DHT segments: frames of motion JPEG without codes mean these. */
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
