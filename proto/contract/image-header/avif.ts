/**
 * AVIF (AV1 Image File Format 1.1 over HEIF, ISO/IEC 23008-12). Its brands say what the file may
 * hold, its primary item what it does hold: HEIC shares the container and is not AVIF. The size is
 * the primary item's `ispe`, a grid's own one included; rotation and cropping are not applied.
 */
import { ByteWindow, type ImageHeader } from './byte-window.ts';
import { type Box, boxes, StepBudget } from './iso-boxes.ts';

/** Brands read of one ftyp box; real files have fewer than ten. */
const BRANDS_MAX = 64;
/** Properties associated with one item; the format's own bound. */
const ASSOCIATIONS_MAX = 255;

const SEQUENCE = 'avis';
const AV1_ITEM = 'av01';
/** Items made of other items: what those are coded in decides. */
const DERIVED_ITEMS = new Set(['grid', 'iovl', 'iden', 'tmap']);

export function isIsoFile(start: Buffer): boolean {
  return start.length >= 12 && start.toString('latin1', 4, 8) === 'ftyp';
}

interface Size {
  readonly width: number;
  readonly height: number;
}

interface MetaBox {
  readonly primaryId: number | undefined;
  readonly typesById: ReadonlyMap<number, string>;
  /** Size of the primary item. */
  readonly size: Size | undefined;
}

async function readBrands(window: ByteWindow, ftyp: Box): Promise<ReadonlySet<string>> {
  const brands = new Set<string>();
  const bytes = await window.upTo(ftyp.start, Math.min(ftyp.end - ftyp.start, 4 * BRANDS_MAX));
  for (let offset = 0; offset + 4 <= bytes.length; offset += 4) {
    if (offset !== 4) brands.add(bytes.toString('latin1', offset, offset + 4));
  }
  return brands;
}

async function readPrimaryId(window: ByteWindow, pitm: Box): Promise<number | undefined> {
  const version = (await window.at(pitm.start, 1))?.[0];
  if (version === 0) return (await window.at(pitm.start + 4, 2))?.readUInt16BE(0);
  return (await window.at(pitm.start + 4, 4))?.readUInt32BE(0);
}

async function readItemTypes(
  window: ByteWindow,
  iinf: Box,
  budget: StepBudget,
): Promise<Map<number, string>> {
  const types = new Map<number, string>();
  const version = (await window.at(iinf.start, 1))?.[0];
  const entries = iinf.start + 4 + (version === 0 ? 2 : 4);
  for await (const infe of boxes(window, entries, iinf.end, budget)) {
    const entry = await window.at(infe.start, 14);
    if (infe.type !== 'infe' || entry === undefined) continue;
    const version = entry.readUInt8(0);
    if (version < 2) continue;
    const wide = version >= 3;
    const id = wide ? entry.readUInt32BE(4) : entry.readUInt16BE(4);
    const typeAt = wide ? 10 : 8;
    types.set(id, entry.toString('latin1', typeAt, typeAt + 4));
  }
  return types;
}

/** Position in ipco, counted from 1, of each ispe property. */
async function readSizes(
  window: ByteWindow,
  ipco: Box,
  budget: StepBudget,
): Promise<Map<number, Size>> {
  const sizes = new Map<number, Size>();
  let index = 0;
  for await (const property of boxes(window, ipco.start, ipco.end, budget)) {
    index += 1;
    if (property.type !== 'ispe') continue;
    const ispe = await window.at(property.start, 12);
    if (ispe === undefined) break;
    sizes.set(index, { width: ispe.readUInt32BE(4), height: ispe.readUInt32BE(8) });
  }
  return sizes;
}

/** The indices of the properties that ipma associates with the item. */
async function readAssociations(
  window: ByteWindow,
  ipma: Box,
  itemId: number,
  budget: StepBudget,
): Promise<number[]> {
  const head = await window.at(ipma.start, 8);
  if (head === undefined) return [];
  const idBytes = head.readUInt8(0) < 1 ? 2 : 4;
  const indexBytes = (head.readUInt8(3) & 1) === 0 ? 1 : 2;
  const entries = head.readUInt32BE(4);
  let offset = ipma.start + 8;
  for (let entry = 0; entry < entries && budget.take(); entry += 1) {
    const item = await window.at(offset, idBytes + 1);
    if (item === undefined || offset >= ipma.end) return [];
    const count = Math.min(item.readUInt8(idBytes), ASSOCIATIONS_MAX);
    const listBytes = count * indexBytes;
    offset += idBytes + 1;
    if (item.readUIntBE(0, idBytes) === itemId) {
      const list = await window.at(offset, listBytes);
      if (list === undefined) return [];
      const essentialBit = 1 << (8 * indexBytes - 1);
      return Array.from(
        { length: count },
        (_, i) => list.readUIntBE(i * indexBytes, indexBytes) & (essentialBit - 1),
      );
    }
    offset += listBytes;
  }
  return [];
}

async function readItemSize(
  window: ByteWindow,
  iprp: Box,
  itemId: number,
  budget: StepBudget,
): Promise<Size | undefined> {
  let sizes: Map<number, Size> | undefined;
  const associated: number[] = [];
  for await (const child of boxes(window, iprp.start, iprp.end, budget)) {
    if (child.type === 'ipco') sizes ??= await readSizes(window, child, budget);
    if (child.type === 'ipma') {
      associated.push(...(await readAssociations(window, child, itemId, budget)));
    }
  }
  const index = associated.find(candidate => sizes?.has(candidate));
  return index === undefined ? undefined : sizes?.get(index);
}

async function readMeta(window: ByteWindow, meta: Box, budget: StepBudget): Promise<MetaBox> {
  let primaryId: number | undefined;
  let typesById: ReadonlyMap<number, string> = new Map();
  let iprp: Box | undefined;
  for await (const child of boxes(window, meta.start + 4, meta.end, budget)) {
    if (child.type === 'pitm') primaryId ??= await readPrimaryId(window, child);
    if (child.type === 'iinf') typesById = await readItemTypes(window, child, budget);
    if (child.type === 'iprp') iprp ??= child;
  }
  // The order of pitm and iprp is free, so properties are read when the primary item is known.
  const size =
    iprp === undefined || primaryId === undefined
      ? undefined
      : await readItemSize(window, iprp, primaryId, budget);
  return { primaryId, typesById, size };
}

function isCodedInAv1(meta: MetaBox | undefined): boolean | undefined {
  if (meta?.primaryId === undefined) return undefined;
  const type = meta.typesById.get(meta.primaryId);
  if (type === undefined) return undefined;
  if (DERIVED_ITEMS.has(type)) return [...meta.typesById.values()].includes(AV1_ITEM);
  return type === AV1_ITEM;
}

/** Boxes on the way from `moov` to how many pictures a track has. */
const SAMPLE_PATH = ['trak', 'mdia', 'minf', 'stbl'];

async function readSampleCounts(
  window: ByteWindow,
  parent: Box,
  depth: number,
  budget: StepBudget,
): Promise<number[]> {
  const counts: number[] = [];
  for await (const child of boxes(window, parent.start, parent.end, budget)) {
    if (child.type === SAMPLE_PATH[depth]) {
      counts.push(...(await readSampleCounts(window, child, depth + 1, budget)));
    }
    if (depth < SAMPLE_PATH.length || (child.type !== 'stsz' && child.type !== 'stz2')) continue;
    const head = await window.at(child.start, 12);
    counts.push(head === undefined ? 0 : head.readUInt32BE(8));
  }
  return counts;
}

/** Undefined: an ISO file that is not AVIF. */
export async function readAvif(window: ByteWindow): Promise<ImageHeader | undefined> {
  const budget = new StepBudget();
  let brands: ReadonlySet<string> = new Set();
  let meta: MetaBox | undefined;
  const sampleCounts: number[] = [];
  for await (const box of boxes(window, 0, window.sizeBytes, budget)) {
    if (box.type === 'ftyp' && brands.size === 0) brands = await readBrands(window, box);
    if (box.type === 'meta') meta ??= await readMeta(window, box, budget);
    if (box.type === 'moov') sampleCounts.push(...(await readSampleCounts(window, box, 0, budget)));
    if (meta !== undefined && !brands.has(SEQUENCE)) break;
  }
  const coded = isCodedInAv1(meta);
  const isSequence = brands.has(SEQUENCE);
  const named = isSequence || brands.has('avif');
  // mif1 alone promises only a HEIF container: then the primary item has to say AV1.
  const isAvif = named ? coded !== false : brands.has('mif1') && coded === true;
  if (!isAvif) return undefined;
  // A sequence of one picture, which is an item as well, is that picture.
  const isOne = sampleCounts.length > 0 && sampleCounts.every(count => count === 1);
  const animated = isSequence && !(isOne && coded === true);
  return { format: 'avif', width: meta?.size?.width, height: meta?.size?.height, animated };
}

/*
 * What an AVIF says of its primary item's colours: the code points of ITU-T H.273 in a `colr` box
 * of type nclx (ISO/IEC 14496-12, 12.1.5), whether an ICC profile stands beside them, and whether
 * they are multiplied by alpha (a reference of type `prem`, ISO/IEC 23000-22, 7.3.5.2).
 */

/** Code points of ITU-T H.273. */
export interface Cicp {
  readonly primaries: number;
  readonly transfer: number;
  /** Samples are of video's narrow range; absent where a decoder has stretched them. */
  readonly isNarrow?: boolean;
}

interface AvifColour {
  readonly cicp: Cicp | undefined;
  readonly hasProfile: boolean;
  /** Decoders hand such colours out as they are. */
  readonly premultiplied: boolean;
}

const NO_COLOUR: AvifColour = { cicp: undefined, hasProfile: false, premultiplied: false };
const FULL_BOX_BYTES = 4;

async function readColr(window: ByteWindow, colr: Box): Promise<AvifColour> {
  const type = (await window.at(colr.start, 4))?.toString('latin1');
  if (type === 'prof' || type === 'rICC') return { ...NO_COLOUR, hasProfile: true };
  const points = await window.at(colr.start + 4, 4);
  if (type !== 'nclx' || points === undefined) return NO_COLOUR;
  const cicp = { primaries: points.readUInt16BE(0), transfer: points.readUInt16BE(2) };
  return { ...NO_COLOUR, cicp };
}

async function readProperties(
  window: ByteWindow,
  iprp: Box,
  primaryId: number,
  budget: StepBudget,
): Promise<Pick<AvifColour, 'cicp' | 'hasProfile'>> {
  const colours = new Map<number, AvifColour>();
  const associated: number[] = [];
  for await (const child of boxes(window, iprp.start, iprp.end, budget)) {
    if (child.type === 'ipma') {
      associated.push(...(await readAssociations(window, child, primaryId, budget)));
    }
    if (child.type !== 'ipco') continue;
    let index = 0;
    for await (const property of boxes(window, child.start, child.end, budget)) {
      index += 1;
      if (property.type === 'colr') colours.set(index, await readColr(window, property));
    }
  }
  const own = associated.flatMap(index => colours.get(index) ?? []);
  return {
    cicp: own.find(colour => colour.cicp !== undefined)?.cicp,
    hasProfile: own.some(colour => colour.hasProfile),
  };
}

async function readPremultiplied(
  window: ByteWindow,
  iref: Box,
  itemId: number,
  budget: StepBudget,
): Promise<boolean> {
  const version = (await window.at(iref.start, 1))?.[0];
  const idBytes = version === 0 ? 2 : 4;
  for await (const { type, start } of boxes(
    window,
    iref.start + FULL_BOX_BYTES,
    iref.end,
    budget,
  )) {
    if (type !== 'prem') continue;
    if ((await window.at(start, idBytes))?.readUIntBE(0, idBytes) === itemId) return true;
  }
  return false;
}

export async function readAvifColour(file: Buffer): Promise<AvifColour> {
  const budget = new StepBudget();
  const window = new ByteWindow(
    (offset, length) => file.subarray(offset, offset + length),
    file.length,
  );
  for await (const box of boxes(window, 0, window.sizeBytes, budget)) {
    if (box.type !== 'meta') continue;
    let primaryId: number | undefined;
    let iprp: Box | undefined;
    let iref: Box | undefined;
    for await (const child of boxes(window, box.start + FULL_BOX_BYTES, box.end, budget)) {
      if (child.type === 'pitm') primaryId ??= await readPrimaryId(window, child);
      if (child.type === 'iprp') iprp ??= child;
      if (child.type === 'iref') iref ??= child;
    }
    if (primaryId === undefined || iprp === undefined) return NO_COLOUR;
    const named = await readProperties(window, iprp, primaryId, budget);
    const premultiplied =
      iref !== undefined && (await readPremultiplied(window, iref, primaryId, budget));
    return { ...named, premultiplied };
  }
  return NO_COLOUR;
}
