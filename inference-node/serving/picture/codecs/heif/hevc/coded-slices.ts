/**
 * Reads the coding trees of intra slices of HEVC (ITU-T H.265, 7.3.8): every code, no sample. What
 * the codes mean is kept as far as later codes depend on it.
 */
import { ArithmeticDecoder, initialStates } from './arithmetic-decoder.ts';
import { CONTEXTS, INITIAL_VALUES } from './contexts.ts';
import { DamagedCoding } from './outcomes.ts';
import { ctbsAcross, ctbsDown, type Sequence, type Slice } from './parameters.ts';
import { readResidual, type Scan } from './residuals.ts';

const PLANAR = 0;
const DC = 1;
const HORIZONTAL = 10;
const VERTICAL = 26;
const DIAGONAL = 34;

/** The modes of the half as wide chroma of 4:2:2, by the mode of other formats (table 8-3). */
const MODES_422 = [
  0, 1, 2, 2, 2, 2, 3, 5, 7, 8, 10, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 23, 24, 24, 25, 25, 26,
  27, 27, 28, 28, 29, 29, 30, 31,
];
/** The modes that intra_chroma_pred_mode names; 4 is the mode of luma. */
const CHROMA_MODES = [PLANAR, VERTICAL, HORIZONTAL, DC];
/** The sides of the smallest block of which the decoder keeps something. */
const UNIT_LOG2 = 2;
/** Contexts are taken over from behind the second CTB of the row above. */
const SYNC_CTB = 1;

interface Unit {
  readonly x: number;
  readonly y: number;
  readonly log2Size: number;
  readonly isSplit: boolean;
  readonly isLossless: boolean;
  readonly chromaModes: readonly number[];
}

/** The coordinates of a block, and the block that it is a quarter of. */
interface Place {
  readonly x: number;
  readonly y: number;
  readonly baseX: number;
  readonly baseY: number;
  readonly log2Size: number;
  readonly depth: number;
  readonly index: number;
}

export class CodedSlices {
  readonly #sequence: Sequence;
  readonly #across: number;
  readonly #ctbs: number;
  readonly #units: number;
  /** The index counts units of four samples a side. */
  readonly #depths: Uint8Array;
  readonly #modes: Uint8Array;
  /** The first CTB of the slice of each CTB; -1: it is not read. */
  readonly #slices: Int32Array;
  #decoder: ArithmeticDecoder;
  #slice: Slice | undefined;
  #sliceStart = 0;
  #next = 0;
  #synced: Uint8Array = new Uint8Array(0);
  #atEnd: Uint8Array = new Uint8Array(0);
  #isQpCoded = false;

  constructor(sequence: Sequence) {
    this.#sequence = sequence;
    this.#across = ctbsAcross(sequence);
    this.#ctbs = this.#across * ctbsDown(sequence);
    const perCtb = 1 << (sequence.log2Ctb - UNIT_LOG2);
    this.#units = this.#across * perCtb;
    this.#depths = new Uint8Array(this.#ctbs * perCtb * perCtb);
    this.#modes = new Uint8Array(this.#depths.length).fill(DC);
    this.#slices = new Int32Array(this.#ctbs).fill(-1);
    this.#decoder = new ArithmeticDecoder(new Uint8Array(2), 0, new Uint8Array(0));
  }

  get isWhole(): boolean {
    return this.#next === this.#ctbs;
  }

  /** @throws DamagedCoding */
  read(slice: Slice, payload: Uint8Array): void {
    if (slice.address !== this.#next) throw new DamagedCoding('a slice is missing');
    if (!slice.isDependent) this.#sliceStart = slice.address;
    this.#slice = slice;
    const begin = slice.isDependent ? this.#atEnd : this.#initial(slice);
    this.#decoder = new ArithmeticDecoder(payload, slice.dataAt, begin.slice());
    if (slice.picture.syncsRows && slice.isDependent) this.#syncAtRow(slice);
    for (;;) {
      if (this.#next >= this.#ctbs) throw new DamagedCoding('a slice reaches beyond the picture');
      const column = this.#next % this.#across;
      this.#slices[this.#next] = this.#sliceStart;
      this.#readCtb(this.#next);
      this.#next += 1;
      const isSyncPoint = column === Math.min(SYNC_CTB, this.#across - 1);
      if (slice.picture.syncsRows && isSyncPoint) this.#synced = this.#decoder.contexts.slice();
      if (this.#decoder.ends()) break;
      if (slice.picture.syncsRows && this.#next % this.#across === 0) this.#beginRow(slice);
    }
    this.#atEnd = this.#decoder.contexts.slice();
    requireEnd(payload, this.#decoder.requireAligned());
  }

  #initial({ qp }: Slice): Uint8Array {
    return initialStates(INITIAL_VALUES, qp);
  }

  #beginRow(slice: Slice): void {
    if (!this.#decoder.ends()) throw new DamagedCoding('a row of the coded data does not end');
    this.#decoder.requireAligned();
    this.#decoder.restart();
    this.#syncAtRow(slice);
  }

  /**
   * Takes the contexts from the row above at a row's begin, if that row is of the slice (9.3.1).
   */
  #syncAtRow(slice: Slice): void {
    if (this.#next % this.#across !== 0) return;
    const above = this.#next - this.#across + Math.min(SYNC_CTB, this.#across - 1);
    // A picture of one column has no second CTB to take from.
    const isThere = this.#across > 1 && above >= 0 && this.#slices[above] === this.#sliceStart;
    this.#decoder.contexts.set(isThere ? this.#synced : this.#initial(slice));
  }

  #isAvailable(x: number, y: number): boolean {
    if (x < 0 || y < 0) return false;
    const { log2Ctb } = this.#sequence;
    return this.#slices[(y >> log2Ctb) * this.#across + (x >> log2Ctb)] === this.#sliceStart;
  }

  #unitAt(x: number, y: number): number {
    return (y >> UNIT_LOG2) * this.#units + (x >> UNIT_LOG2);
  }

  #keep(into: Uint8Array, x: number, y: number, log2Size: number, value: number): void {
    const side = Math.max(1, (1 << log2Size) >> UNIT_LOG2);
    for (let row = 0, at = this.#unitAt(x, y); row < side; row++, at += this.#units) {
      into.fill(value, at, at + side);
    }
  }

  #readCtb(ctb: number): void {
    const slice = this.#slice;
    if (slice === undefined) return;
    const { log2Ctb } = this.#sequence;
    const [column, row] = [ctb % this.#across, Math.floor(ctb / this.#across)];
    if (slice.hasLumaSao || slice.hasChromaSao) this.#readSao(slice, column, row);
    this.#readTree(column << log2Ctb, row << log2Ctb, log2Ctb, 0);
  }

  #readSao({ hasLumaSao, hasChromaSao }: Slice, column: number, row: number): void {
    const { log2Ctb, chroma, lumaBits, chromaBits } = this.#sequence;
    const [x, y] = [column << log2Ctb, row << log2Ctb];
    const decoder = this.#decoder;
    for (const isThere of [this.#isAvailable(x - 1, y), this.#isAvailable(x, y - 1)]) {
      if (isThere && decoder.bin(CONTEXTS.saoMerge) === 1) return;
    }
    let type = 0;
    for (let plane = 0; plane < (chroma === 0 ? 1 : 3); plane++) {
      if (!(plane === 0 ? hasLumaSao : hasChromaSao)) continue;
      if (plane < 2) {
        const isOn = decoder.bin(CONTEXTS.saoType) === 1;
        type = isOn ? 1 + decoder.bypass() : 0;
      }
      if (type === 0) continue;
      const offsetMax = (1 << (Math.min(plane === 0 ? lumaBits : chromaBits, 10) - 5)) - 1;
      let signs = 0;
      for (let i = 0; i < 4; i++) {
        let offset = 0;
        while (offset < offsetMax && decoder.bypass() === 1) offset += 1;
        if (offset > 0) signs += 1;
      }
      if (type === 1) decoder.bypasses(signs + 5);
      else if (plane < 2) decoder.bypasses(2);
    }
  }

  #readTree(x: number, y: number, log2Size: number, depth: number): void {
    const { width, height, log2CodingMin, log2Ctb } = this.#sequence;
    const side = 1 << log2Size;
    const picture = this.#slice?.picture;
    const isInside = x + side <= width && y + side <= height;
    const maySplit = log2Size > log2CodingMin;
    const isSplit = maySplit && (!isInside || this.#readSplit(x, y, depth));
    if (picture?.hasQpDelta && log2Size >= log2Ctb - picture.qpDeltaDepth) this.#isQpCoded = false;
    if (!isSplit) {
      this.#keep(this.#depths, x, y, log2Size, depth);
      this.#readUnit(x, y, log2Size);
      return;
    }
    const half = side >> 1;
    for (const [right, down] of QUARTERS) {
      const [left, top] = [x + right * half, y + down * half];
      if (left < width && top < height) this.#readTree(left, top, log2Size - 1, depth + 1);
    }
  }

  #readSplit(x: number, y: number, depth: number): boolean {
    const isDeeper = (nearX: number, nearY: number) =>
      this.#isAvailable(nearX, nearY) && this.#depths[this.#unitAt(nearX, nearY)]! > depth;
    const context = (isDeeper(x - 1, y) ? 1 : 0) + (isDeeper(x, y - 1) ? 1 : 0);
    return this.#decoder.bin(CONTEXTS.split + context) === 1;
  }

  #readUnit(x: number, y: number, log2Size: number): void {
    const { log2CodingMin, chroma } = this.#sequence;
    const decoder = this.#decoder;
    const isLossless =
      this.#slice?.picture.bypassesTransquant === true && decoder.bin(CONTEXTS.bypass) === 1;
    const isSplit = log2Size === log2CodingMin && decoder.bin(CONTEXTS.partition) === 0;
    const lumaModes = this.#readLumaModes(x, y, log2Size, isSplit);
    const chromaModes: number[] = [];
    const several = chroma === 3 ? lumaModes.length : 1;
    for (let i = 0; chroma !== 0 && i < several; i++) {
      chromaModes.push(this.#readChromaMode(lumaModes[i]!));
    }
    const unit = { x, y, log2Size, isSplit, isLossless, chromaModes };
    const place = { x, y, baseX: x, baseY: y, log2Size, depth: 0, index: 0 };
    this.#readTransforms(unit, place, 1, 1);
  }

  #readLumaModes(x: number, y: number, log2Size: number, isSplit: boolean): number[] {
    const decoder = this.#decoder;
    const log2Part = isSplit ? log2Size - 1 : log2Size;
    const parts = isSplit ? QUARTERS : QUARTERS.slice(0, 1);
    const isPredicted = parts.map(() => decoder.bin(CONTEXTS.lumaPredicted) === 1);
    return parts.map(([right, down], part) => {
      const [left, top] = [x + (right << log2Part), y + (down << log2Part)];
      const likely = this.#likelyModes(left, top);
      let mode: number;
      if (isPredicted[part]) {
        mode = likely[decoder.bypass() === 0 ? 0 : 1 + decoder.bypass()]!;
      } else {
        mode = decoder.bypasses(5);
        for (const one of likely.toSorted((a, b) => a - b)) if (mode >= one) mode += 1;
      }
      this.#keep(this.#modes, left, top, log2Part, mode);
      return mode;
    });
  }

  /** candModeList (8.4.2). */
  #likelyModes(x: number, y: number): readonly [number, number, number] {
    const { log2Ctb } = this.#sequence;
    const modeAt = (nearX: number, nearY: number) =>
      this.#isAvailable(nearX, nearY) ? this.#modes[this.#unitAt(nearX, nearY)]! : DC;
    const left = modeAt(x - 1, y);
    const isCtbTop = (y & ((1 << log2Ctb) - 1)) === 0;
    const above = isCtbTop ? DC : modeAt(x, y - 1);
    if (left === above) {
      if (left < 2) return [PLANAR, DC, VERTICAL];
      return [left, 2 + ((left + 29) % 32), 2 + ((left - 1) % 32)];
    }
    const others = [PLANAR, DC, VERTICAL];
    return [left, above, others.find(mode => mode !== left && mode !== above)!];
  }

  #readChromaMode(luma: number): number {
    const decoder = this.#decoder;
    const isOther = decoder.bin(CONTEXTS.chromaMode) === 1;
    const named = isOther ? CHROMA_MODES[decoder.bypasses(2)]! : luma;
    const mode = isOther && named === luma ? DIAGONAL : named;
    return this.#sequence.chroma === 2 ? MODES_422[mode]! : mode;
  }

  /** transform_tree(). `cb` and `cr`: whether the parent has coefficients there. */
  #readTransforms(unit: Unit, place: Place, cb: number, cr: number): void {
    const { log2TransformMin, log2TransformMax, intraDepthMax, chroma } = this.#sequence;
    const { x, y, log2Size, depth } = place;
    const decoder = this.#decoder;
    const isForced = log2Size > log2TransformMax || (unit.isSplit && depth === 0);
    const depthMax = intraDepthMax + (unit.isSplit ? 1 : 0);
    const isAsked = !isForced && log2Size > log2TransformMin && depth < depthMax;
    const isSplit =
      isForced || (isAsked && decoder.bin(CONTEXTS.splitTransform + 5 - log2Size) === 1);
    if (isSplit && log2Size <= log2TransformMin) throw new DamagedCoding('a block is too small');
    if ((log2Size > 2 && chroma !== 0) || chroma === 3) {
      const isTwice = chroma === 2 && (!isSplit || log2Size === 3);
      cb = cb === 0 ? 0 : this.#readChromaCoded(depth, isTwice);
      cr = cr === 0 ? 0 : this.#readChromaCoded(depth, isTwice);
    } else if (chroma === 0) {
      cb = 0;
      cr = 0;
    }
    if (isSplit) {
      const half = 1 << (log2Size - 1);
      for (const [index, [right, down]] of QUARTERS.entries()) {
        const at = { x: x + right * half, y: y + down * half, baseX: x, baseY: y };
        const part = { ...at, log2Size: log2Size - 1, depth: depth + 1, index };
        this.#readTransforms(unit, part, cb, cr);
      }
      return;
    }
    const luma = decoder.bin(CONTEXTS.lumaCoded + (depth === 0 ? 1 : 0));
    this.#readTransform(unit, place, luma, cb, cr);
  }

  /** Bits of one block, or of two, one below the other. */
  #readChromaCoded(depth: number, isTwice: boolean): number {
    const first = this.#decoder.bin(CONTEXTS.chromaCoded + depth);
    return isTwice ? first | (this.#decoder.bin(CONTEXTS.chromaCoded + depth) << 1) : first;
  }

  /** transform_unit(). */
  #readTransform(unit: Unit, place: Place, luma: number, cb: number, cr: number): void {
    const { chroma } = this.#sequence;
    const { x, y, log2Size, index } = place;
    if (luma === 0 && cb === 0 && cr === 0) return;
    if (this.#slice?.picture.hasQpDelta && !this.#isQpCoded) this.#readQpDelta();
    if (luma === 1) {
      const mode = this.#modes[this.#unitAt(x, y)]!;
      this.#readBlock(unit, log2Size, true, mode);
    }
    if (chroma === 0) return;
    const isWhole = log2Size > 2 || chroma === 3;
    if (!isWhole && index !== 3) return;
    const log2Chroma = Math.max(2, log2Size - (chroma === 3 ? 0 : 1));
    const mode = this.#chromaModeAt(unit, place);
    for (const plane of [cb, cr]) {
      for (let bit = 1; bit < (chroma === 2 ? 4 : 2); bit <<= 1) {
        if ((plane & bit) !== 0) this.#readBlock(unit, log2Chroma, false, mode);
      }
    }
  }

  #chromaModeAt({ x, y, log2Size, chromaModes }: Unit, place: Place): number {
    const half = 1 << (log2Size - 1);
    const part = (place.x >= x + half ? 1 : 0) + (place.y >= y + half ? 2 : 0);
    return chromaModes.length === 1 ? chromaModes[0]! : chromaModes[part]!;
  }

  #readQpDelta(): void {
    const decoder = this.#decoder;
    this.#isQpCoded = true;
    let size = decoder.bin(CONTEXTS.qpDelta);
    if (size === 0) return;
    while (size < 5 && decoder.bin(CONTEXTS.qpDelta + 1) === 1) size += 1;
    if (size === 5) {
      let order = 0;
      while (decoder.bypass() === 1) {
        order += 1;
        if (order > 7) throw new DamagedCoding('a change of quality is out of range');
      }
      size += (1 << order) - 1 + decoder.bypasses(order);
    }
    decoder.bypass();
    if (size > 26 + 3 * (this.#sequence.lumaBits - 8)) {
      throw new DamagedCoding('a change of quality is out of range');
    }
  }

  #readBlock(unit: Unit, log2Size: number, isLuma: boolean, mode: number): void {
    const { chroma } = this.#sequence;
    const picture = this.#slice?.picture;
    const isDirected = log2Size === 2 || (log2Size === 3 && (isLuma || chroma === 3));
    const scan: Scan = !isDirected
      ? 0
      : mode >= 6 && mode <= 14
        ? 2
        : mode >= 22 && mode <= 30
          ? 1
          : 0;
    const maySkipTransform =
      picture?.skipsTransforms === true &&
      !unit.isLossless &&
      log2Size <= picture.log2TransformSkipMax;
    const block = { log2Size, isLuma, scan, maySkipTransform, mayHideSign: !unit.isLossless };
    readResidual(this.#decoder, block, picture?.hidesSigns === true);
  }
}

/** Right and down, in the order of coding. */
const QUARTERS = [
  [0, 0],
  [1, 0],
  [0, 1],
  [1, 1],
] as const;

/** Behind a slice there may be words of zeros (cabac_zero_words, 7.3.2.10). */
function requireEnd(payload: Uint8Array, at: number): void {
  for (let i = at; i < payload.length; i++) {
    if (payload[i] !== 0) throw new DamagedCoding('a slice ends before its data does');
  }
}
