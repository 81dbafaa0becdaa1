/** Parameter sets and slice headers of HEVC (ITU-T H.265, 7.3.2, 7.3.6), as far as intra pictures need. */
import { BitReader } from './bit-reader.ts';
import { DamagedCoding, UncheckedCoding } from './outcomes.ts';

export interface Sequence {
  /** 0: luma alone, 1: 4:2:0, 2: 4:2:2, 3: 4:4:4. */
  readonly chroma: number;
  readonly width: number;
  readonly height: number;
  readonly lumaBits: number;
  readonly chromaBits: number;
  readonly log2CodingMin: number;
  readonly log2Ctb: number;
  readonly log2TransformMin: number;
  readonly log2TransformMax: number;
  readonly intraDepthMax: number;
  readonly hasSao: boolean;
}

export interface Picture {
  readonly sequenceId: number;
  readonly hasDependentSlices: boolean;
  readonly hasOutputFlag: boolean;
  readonly extraHeaderBits: number;
  readonly hidesSigns: boolean;
  readonly initQp: number;
  readonly skipsTransforms: boolean;
  readonly log2TransformSkipMax: number;
  readonly hasQpDelta: boolean;
  readonly qpDeltaDepth: number;
  readonly hasSliceChromaQp: boolean;
  readonly bypassesTransquant: boolean;
  readonly syncsRows: boolean;
  readonly overridesDeblocking: boolean;
  readonly disablesDeblocking: boolean;
  readonly filtersAcrossSlices: boolean;
  readonly hasHeaderExtension: boolean;
}

const SETS_MAX = 64;
const SUB_LAYERS_MAX = 7;

/** profile_tier_level() (7.3.3). */
function skipProfile(reader: BitReader, subLayers: number): void {
  reader.skip(88 + 8);
  const present: [boolean, boolean][] = [];
  for (let i = 1; i < subLayers; i++) present.push([reader.flag(), reader.flag()]);
  if (subLayers > 1) reader.skip(2 * (9 - subLayers));
  for (const [hasProfile, hasLevel] of present) {
    reader.skip((hasProfile ? 88 : 0) + (hasLevel ? 8 : 0));
  }
}

/** scaling_list_data() (7.3.4). */
function skipScalingLists(reader: BitReader): void {
  for (let size = 0; size < 4; size++) {
    for (let matrix = 0; matrix < 6; matrix += size === 3 ? 3 : 1) {
      if (!reader.flag()) {
        reader.unsigned();
        continue;
      }
      if (size > 1) reader.signed();
      const coefficients = Math.min(64, 1 << (4 + 2 * size));
      for (let i = 0; i < coefficients; i++) reader.signed();
    }
  }
}

/** st_ref_pic_set() (7.3.7). @returns its number of pictures */
function skipReferenceSet(reader: BitReader, index: number, pictures: readonly number[]): number {
  if (index > 0 && reader.flag()) {
    reader.skip(1);
    reader.unsigned();
    let count = 0;
    for (let i = 0; i <= (pictures[index - 1] ?? 0); i++) {
      const isUsed = reader.flag();
      if (isUsed || reader.flag()) count += 1;
    }
    return count;
  }
  const count = reader.unsigned(16) + reader.unsigned(16);
  for (let i = 0; i < count; i++) {
    reader.unsigned();
    reader.skip(1);
  }
  return count;
}

/** vui_parameters() (E.2.1). */
function skipUsability(reader: BitReader): void {
  const EXTENDED_ASPECT = 255;
  if (reader.flag() && reader.bits(8) === EXTENDED_ASPECT) reader.skip(32);
  if (reader.flag()) reader.skip(1);
  if (reader.flag()) {
    reader.skip(4);
    if (reader.flag()) reader.skip(24);
  }
  if (reader.flag()) {
    reader.unsigned();
    reader.unsigned();
  }
  reader.skip(3);
  if (reader.flag()) for (let i = 0; i < 4; i++) reader.unsigned();
  if (reader.flag()) {
    reader.skip(64);
    if (reader.flag()) reader.unsigned();
    if (reader.flag()) throw new UncheckedCoding('parameters of a decoder’s buffer');
  }
  if (!reader.flag()) return;
  reader.skip(3);
  for (let i = 0; i < 5; i++) reader.unsigned();
}

/** Refuses tools of the range extensions that change what is coded. */
function requireKnownExtensions(reader: BitReader): void {
  if (!reader.flag()) return;
  const isRange = reader.flag();
  if (reader.bits(7) !== 0) throw new UncheckedCoding('an extension of its sequence');
  if (!isRange) return;
  // Rotation, smoothing and the precision of predictions leave the coded bits as they are.
  const [, contexts, implicit, , extended, , , rice, alignment] = Array.from({ length: 9 }, () =>
    reader.flag(),
  );
  if (contexts || implicit || extended || rice || alignment) {
    throw new UncheckedCoding('a tool of the range extensions');
  }
}

function readSizes(reader: BitReader) {
  const chroma = reader.unsigned(3);
  const isSeparate = chroma === 3 && reader.flag();
  if (isSeparate) throw new UncheckedCoding('planes coded apart');
  const [width, height] = [reader.unsigned(), reader.unsigned()];
  if (reader.flag()) for (let i = 0; i < 4; i++) reader.unsigned();
  const [lumaBits, chromaBits] = [8 + reader.unsigned(8), 8 + reader.unsigned(8)];
  return { chroma, width, height, lumaBits, chromaBits };
}

/** seq_parameter_set_rbsp() (7.3.2.2). @throws DamagedCoding, UncheckedCoding */
export function readSequence(payload: Uint8Array): { id: number; sequence: Sequence } {
  const reader = new BitReader(payload);
  reader.skip(4);
  const subLayers = reader.bits(3) + 1;
  if (subLayers > SUB_LAYERS_MAX) throw new DamagedCoding('it has too many layers');
  reader.skip(1);
  skipProfile(reader, subLayers);
  const id = reader.unsigned(SETS_MAX);
  const sizes = readSizes(reader);
  const log2OrderMax = 4 + reader.unsigned(12);
  const described = reader.flag() ? subLayers : 1;
  for (let i = 0; i < 3 * described; i++) reader.unsigned();
  const log2CodingMin = 3 + reader.unsigned(3);
  const log2Ctb = log2CodingMin + reader.unsigned(3);
  const log2TransformMin = 2 + reader.unsigned(3);
  const log2TransformMax = log2TransformMin + reader.unsigned(3);
  reader.unsigned(4);
  const intraDepthMax = reader.unsigned(4);
  if (log2Ctb < 4 || log2Ctb > 6 || log2TransformMax > 5 || log2TransformMin >= log2CodingMin) {
    throw new DamagedCoding('its blocks have sizes that do not exist');
  }
  if (reader.flag() && reader.flag()) skipScalingLists(reader);
  reader.skip(1);
  const hasSao = reader.flag();
  if (reader.flag()) throw new UncheckedCoding('samples that are not coded');
  const referenceSets = reader.unsigned(SETS_MAX);
  const pictures: number[] = [];
  for (let i = 0; i < referenceSets; i++) pictures.push(skipReferenceSet(reader, i, pictures));
  if (reader.flag()) reader.skip(reader.unsigned(32) * (log2OrderMax + 1));
  reader.skip(2);
  if (reader.flag()) skipUsability(reader);
  requireKnownExtensions(reader);
  const blocks = { log2CodingMin, log2Ctb, log2TransformMin, log2TransformMax, intraDepthMax };
  return { id, sequence: { ...sizes, ...blocks, hasSao } };
}

/** pic_parameter_set_rbsp() (7.3.2.3). @throws DamagedCoding, UncheckedCoding */
export function readPicture(payload: Uint8Array): { id: number; picture: Picture } {
  const reader = new BitReader(payload);
  const id = reader.unsigned(SETS_MAX);
  const sequenceId = reader.unsigned(SETS_MAX);
  const [hasDependentSlices, hasOutputFlag] = [reader.flag(), reader.flag()];
  const extraHeaderBits = reader.bits(3);
  const [hidesSigns] = [reader.flag(), reader.skip(1)];
  reader.unsigned();
  reader.unsigned();
  const initQp = 26 + reader.signed();
  reader.skip(1);
  const skipsTransforms = reader.flag();
  const hasQpDelta = reader.flag();
  const qpDeltaDepth = hasQpDelta ? reader.unsigned(3) : 0;
  reader.signed();
  reader.signed();
  const hasSliceChromaQp = reader.flag();
  reader.skip(2);
  const [bypassesTransquant, hasTiles, syncsRows] = [reader.flag(), reader.flag(), reader.flag()];
  if (hasTiles) throw new UncheckedCoding('tiles of HEVC');
  const filtersAcrossSlices = reader.flag();
  let [overridesDeblocking, disablesDeblocking] = [false, false];
  if (reader.flag()) {
    overridesDeblocking = reader.flag();
    disablesDeblocking = reader.flag();
    if (!disablesDeblocking) {
      reader.signed();
      reader.signed();
    }
  }
  if (reader.flag()) skipScalingLists(reader);
  reader.skip(1);
  reader.unsigned();
  const hasHeaderExtension = reader.flag();
  const log2TransformSkipMax = readPictureExtensions(reader, skipsTransforms);
  const headers = { sequenceId, hasDependentSlices, hasOutputFlag, extraHeaderBits, initQp };
  const filters = { overridesDeblocking, disablesDeblocking, filtersAcrossSlices };
  const tools = { hidesSigns, skipsTransforms, log2TransformSkipMax, hasQpDelta, qpDeltaDepth };
  const others = { hasSliceChromaQp, bypassesTransquant, syncsRows, hasHeaderExtension };
  return { id, picture: { ...headers, ...filters, ...tools, ...others } };
}

function readPictureExtensions(reader: BitReader, skipsTransforms: boolean): number {
  if (!reader.flag()) return 2;
  const isRange = reader.flag();
  if (reader.bits(7) !== 0) throw new UncheckedCoding('an extension of its picture');
  if (!isRange) return 2;
  const log2TransformSkipMax = skipsTransforms ? 2 + reader.unsigned(3) : 2;
  const [predictsAcross, hasOffsets] = [reader.flag(), reader.flag()];
  if (predictsAcross || hasOffsets) throw new UncheckedCoding('a tool of the range extensions');
  return log2TransformSkipMax;
}

export interface Slice {
  readonly picture: Picture;
  readonly sequence: Sequence;
  readonly isFirst: boolean;
  readonly isDependent: boolean;
  /** The address of its first CTB, in raster order. */
  readonly address: number;
  readonly qp: number;
  readonly hasLumaSao: boolean;
  readonly hasChromaSao: boolean;
  /** The offset of its coded data in the payload. */
  readonly dataAt: number;
}

type SliceHead = Pick<Slice, 'qp' | 'hasLumaSao' | 'hasChromaSao'>;

const INTRA_SLICE = 2;

interface ParameterSets {
  readonly sequences: ReadonlyMap<number, Sequence>;
  readonly pictures: ReadonlyMap<number, Picture>;
}

export function ctbsAcross({ width, log2Ctb }: Sequence): number {
  return Math.ceil(width / (1 << log2Ctb));
}

export function ctbsDown({ height, log2Ctb }: Sequence): number {
  return Math.ceil(height / (1 << log2Ctb));
}

/**
 * slice_segment_header() (7.3.6.1) of an IDR picture.
 * @param before what a dependent slice takes over
 * @throws DamagedCoding, UncheckedCoding
 */
export function readSlice(
  payload: Uint8Array,
  { sequences, pictures }: ParameterSets,
  before: Slice | undefined,
): Slice {
  const reader = new BitReader(payload);
  const isFirst = reader.flag();
  reader.skip(1);
  const picture = pictures.get(reader.unsigned(SETS_MAX));
  const sequence = picture && sequences.get(picture.sequenceId);
  if (picture === undefined || sequence === undefined) {
    throw new DamagedCoding('a slice has no parameters');
  }
  const isDependent = !isFirst && picture.hasDependentSlices && reader.flag();
  const ctbs = ctbsAcross(sequence) * ctbsDown(sequence);
  const address = isFirst ? 0 : reader.bits(Math.ceil(Math.log2(ctbs)));
  if (isDependent && before === undefined) throw new DamagedCoding('a slice depends on none');
  const head: SliceHead =
    isDependent && before !== undefined ? before : readHead(reader, sequence, picture);
  if (picture.syncsRows) {
    const entries = reader.unsigned(ctbs);
    const offsetBits = entries > 0 ? reader.unsigned(31) + 1 : 0;
    reader.skip(entries * offsetBits);
  }
  if (picture.hasHeaderExtension) reader.skip(8 * reader.unsigned(256));
  const { qp, hasLumaSao, hasChromaSao } = head;
  const own = { picture, sequence, isFirst, isDependent, address };
  return { ...own, qp, hasLumaSao, hasChromaSao, dataAt: reader.alignedAt() };
}

function readHead(reader: BitReader, { chroma, hasSao }: Sequence, picture: Picture): SliceHead {
  reader.skip(picture.extraHeaderBits);
  if (reader.unsigned(2) !== INTRA_SLICE) throw new UncheckedCoding('a slice of another kind');
  if (picture.hasOutputFlag) reader.skip(1);
  const hasLumaSao = hasSao && reader.flag();
  const hasChromaSao = hasSao && chroma !== 0 && reader.flag();
  const qp = picture.initQp + reader.signed();
  if (picture.hasSliceChromaQp) {
    reader.signed();
    reader.signed();
  }
  let isDeblocked = !picture.disablesDeblocking;
  if (picture.overridesDeblocking && reader.flag()) {
    isDeblocked = !reader.flag();
    if (isDeblocked) {
      reader.signed();
      reader.signed();
    }
  }
  if (picture.filtersAcrossSlices && (hasLumaSao || hasChromaSao || isDeblocked)) reader.skip(1);
  return { qp, hasLumaSao, hasChromaSao };
}
