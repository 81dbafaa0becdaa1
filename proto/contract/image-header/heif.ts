/**
 * HEIF (ISO/IEC 23008-12). The primary item decides, not the brands: AV1 is AVIF (AV1 Image File
 * Format 1.1), HEVC is HEIC.
 */
import type { Size } from '../finishing.ts';
import { type ByteReader, ByteWindow, type ImageHeader } from './byte-window.ts';
import { type HeifItems, readItems } from './heif-items.ts';
import { type Box, boxes, StepBudget } from './iso-boxes.ts';

export type { Box };

/** Of one ftyp box; real files have fewer than ten. */
const BRANDS_MAX = 64;
const AVIF_SEQUENCE = 'avis';
/** Used if the primary item cannot be read. */
const AVIF_BRANDS = ['avif', AVIF_SEQUENCE];
const HEIC_SEQUENCES = ['hevc', 'hevx', 'hevm', 'hevs'];
const HEIC_BRANDS = ['heic', 'heix', 'heim', 'heis', ...HEIC_SEQUENCES];
/** Item types by their coding. */
export const CODED: Readonly<Record<string, 'avif' | 'heic' | undefined>> = {
  av01: 'avif',
  hvc1: 'heic',
  hev1: 'heic',
};
export const GRID = 'grid';
/** Derived items of which only the first input counts here: a gain map does not. */
const ONE_INPUT = ['iden', 'tmap'];
/** Types of items that are made of others. */
const DERIVED = [GRID, 'iovl', ...ONE_INPUT];
/** Nested derived items; real files have one. */
const DEPTH_MAX = 8;

export function isIsoFile(start: Buffer): boolean {
  return start.length >= 12 && start.toString('latin1', 4, 8) === 'ftyp';
}

async function readBrands(window: ByteWindow, ftyp: Box): Promise<ReadonlySet<string>> {
  const brands = new Set<string>();
  const bytes = await window.upTo(ftyp.start, Math.min(ftyp.end - ftyp.start, 4 * BRANDS_MAX));
  for (let offset = 0; offset + 4 <= bytes.length; offset += 4) {
    if (offset !== 4) brands.add(bytes.toString('latin1', offset, offset + 4));
  }
  return brands;
}

/** Boxes from `moov` to a track's number of pictures. */
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

export function inputsOf({ references }: HeifItems, id: number): readonly number[] | undefined {
  return references.find(({ type, from }) => type === 'dimg' && from === id)?.to;
}

interface PathItem {
  readonly id: number;
  readonly type: string;
}

/** The primary item, then each first input, down to the coded item. */
export function pathOf(items: HeifItems): readonly PathItem[] {
  const path: PathItem[] = [];
  let id = items.primaryId;
  while (id !== undefined && path.length < DEPTH_MAX) {
    const type = items.types.get(id);
    if (type === undefined) break;
    path.push({ id, type });
    id = DERIVED.includes(type) ? inputsOf(items, id)?.[0] : undefined;
  }
  return path;
}

/** undefined: unknown. */
export function codedIn(path: readonly PathItem[]): PathItem | undefined {
  const last = path.at(-1);
  return last === undefined || DERIVED.includes(last.type) ? undefined : last;
}

/** The primary item, and its base if it is one with a gain map. Empty: unreadable. */
export function pictureIds(items: HeifItems): readonly number[] {
  const path = pathOf(items);
  const depth = path.findIndex(({ type }) => !ONE_INPUT.includes(type));
  return path.slice(0, depth + 1).map(({ id }) => id);
}

async function readSize(
  window: ByteWindow,
  items: HeifItems,
  id: number | undefined,
): Promise<Size | undefined> {
  const ispe = propertiesOf(items, id).find(({ type }) => type === 'ispe');
  const content = ispe && (await window.at(ispe.start, 12));
  return content && { width: content.readUInt32BE(4), height: content.readUInt32BE(8) };
}

export function propertiesOf({ properties }: HeifItems, id: number | undefined): readonly Box[] {
  return (id === undefined ? undefined : properties.get(id)) ?? [];
}

interface IsoFile {
  readonly brands: ReadonlySet<string>;
  readonly items: HeifItems | undefined;
  readonly sampleCounts: readonly number[];
}

export async function readIsoFile(window: ByteWindow, budget: StepBudget): Promise<IsoFile> {
  let brands: ReadonlySet<string> = new Set();
  let items: HeifItems | undefined;
  const sampleCounts: number[] = [];
  for await (const box of boxes(window, 0, window.sizeBytes, budget)) {
    if (box.type === 'ftyp' && brands.size === 0) brands = await readBrands(window, box);
    if (box.type === 'meta') items ??= await readItems(window, box, budget);
    if (box.type === 'moov') sampleCounts.push(...(await readSampleCounts(window, box, 0, budget)));
    if (items !== undefined && !brands.has(AVIF_SEQUENCE)) break;
  }
  return { brands, items, sampleCounts };
}

/**
 * The size is that of the picture's item or grid, before rotation and cropping. undefined: neither
 * AVIF nor HEIC.
 */
export async function readHeifHeader(window: ByteWindow): Promise<ImageHeader | undefined> {
  const { brands, items, sampleCounts } = await readIsoFile(window, new StepBudget());
  const path = items === undefined ? [] : pathOf(items);
  const coding = codedIn(path)?.type;
  const isOf = (known: readonly string[]) => known.some(brand => brands.has(brand));
  const promised = isOf(AVIF_BRANDS) ? 'avif' : isOf(HEIC_BRANDS) ? 'heic' : undefined;
  const format = coding === undefined ? promised : CODED[coding];
  if (format === undefined) return undefined;
  const size = items && (await readSize(window, items, pictureIds(items).at(-1)));
  // A sequence of one picture that is also an item is a still picture.
  const isOne = sampleCounts.length > 0 && sampleCounts.every(count => count === 1);
  const isStill = coding !== undefined && (format === 'heic' || isOne);
  const isSequence = isOf(format === 'heic' ? HEIC_SEQUENCES : [AVIF_SEQUENCE]);
  return { format, width: size?.width, height: size?.height, animated: isSequence && !isStill };
}

/** Describes an unsupported ISO file, for an error. */
export async function nameIsoFile(read: ByteReader, sizeBytes: number): Promise<string> {
  const window = new ByteWindow(read, sizeBytes);
  const { brands, items } = await readIsoFile(window, new StepBudget());
  const coding = items && codedIn(pathOf(items))?.type;
  if (coding !== undefined) return `HEIF whose picture is coded as ${printable(coding)}`;
  return `an ISO media file of the brand ${printable([...brands][0] ?? '')}`;
}

/** For four characters of an untrusted file. */
export function printable(name: string): string {
  return `"${name.replace(/[^ !#-~]/g, '?')}"`;
}
