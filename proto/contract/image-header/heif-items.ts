/**
 * The items of a HEIF file (ISO/IEC 23008-12; boxes of ISO/IEC 14496-12, 8.11), from its `meta`
 * box.
 */
import { type ByteWindow, WINDOW_BYTES } from './byte-window.ts';
import { type Box, boxes, type StepBudget } from './iso-boxes.ts';

interface ItemReference {
  readonly type: string;
  readonly from: number;
  readonly to: readonly number[];
}

export interface HeifItems {
  readonly primaryId: number | undefined;
  readonly types: ReadonlyMap<number, string>;
  readonly references: readonly ItemReference[];
  /** In the order in which they apply. */
  readonly properties: ReadonlyMap<number, readonly Box[]>;
  readonly iloc: Box | undefined;
  readonly idat: Box | undefined;
}

/** Reads numbers in sequence. Beyond the end they are 0, and `overrun` is true. */
class Cursor {
  readonly #window: ByteWindow;
  readonly #end: number;
  at: number;
  overrun = false;

  constructor(window: ByteWindow, { start, end }: Pick<Box, 'start' | 'end'>) {
    this.#window = window;
    this.at = start;
    this.#end = end;
  }

  /** Big endian, 0 to 8 bytes. */
  async number(bytes: number): Promise<number> {
    if (bytes === 0) return 0;
    const isInside = bytes <= 8 && this.at + bytes <= this.#end;
    const held = isInside ? await this.#window.at(this.at, bytes) : undefined;
    this.at += bytes;
    this.overrun ||= held === undefined;
    if (held === undefined) return 0;
    if (bytes <= 6) return held.readUIntBE(0, bytes);
    return held.readUIntBE(0, bytes - 4) * 2 ** 32 + held.readUInt32BE(bytes - 4);
  }

  /** Empty: some are missing. */
  async numbers(count: number, bytes: number): Promise<number[]> {
    const numbers: number[] = [];
    while (numbers.length < count) {
      const part = Math.min(count - numbers.length, Math.floor(WINDOW_BYTES / bytes));
      const isInside = this.at + part * bytes <= this.#end;
      const list = isInside ? await this.#window.at(this.at, part * bytes) : undefined;
      this.at += part * bytes;
      this.overrun ||= list === undefined;
      if (list === undefined) return [];
      for (let at = 0; at < list.length; at += bytes) numbers.push(list.readUIntBE(at, bytes));
    }
    return numbers;
  }
}

/** @param meta the file's first one */
export async function readItems(
  window: ByteWindow,
  meta: Box,
  budget: StepBudget,
): Promise<HeifItems> {
  const found = new Map<string, Box>();
  for await (const child of boxes(window, meta.start + 4, meta.end, budget)) {
    if (!found.has(child.type)) found.set(child.type, child);
  }
  const [pitm, iinf, iref, iprp] = ['pitm', 'iinf', 'iref', 'iprp'].map(type => found.get(type));
  return {
    primaryId: pitm && (await readPrimaryId(window, pitm)),
    types: iinf === undefined ? new Map() : await readTypes(window, iinf, budget),
    references: iref === undefined ? [] : await readReferences(window, iref, budget),
    properties: iprp === undefined ? new Map() : await readProperties(window, iprp, budget),
    iloc: found.get('iloc'),
    idat: found.get('idat'),
  };
}

async function readPrimaryId(window: ByteWindow, pitm: Box): Promise<number | undefined> {
  const cursor = new Cursor(window, pitm);
  const version = (await cursor.number(4)) >>> 24;
  const id = await cursor.number(version === 0 ? 2 : 4);
  return cursor.overrun ? undefined : id;
}

async function readTypes(
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

async function readReferences(window: ByteWindow, iref: Box, budget: StepBudget) {
  const references: ItemReference[] = [];
  const idBytes = (await window.at(iref.start, 1))?.[0] === 0 ? 2 : 4;
  for await (const box of boxes(window, iref.start + 4, iref.end, budget)) {
    const cursor = new Cursor(window, box);
    const from = await cursor.number(idBytes);
    const isRead = !cursor.overrun;
    const count = await cursor.number(2);
    if (!budget.take(count)) break;
    const to = await cursor.numbers(count, idBytes);
    if (isRead) references.push({ type: box.type, from, to });
  }
  return references;
}

/** Real items have up to seven. 255 for each of 8000 items took 0.2 s. */
const PROPERTIES_A_STEP = 8;

async function readProperties(
  window: ByteWindow,
  iprp: Box,
  budget: StepBudget,
): Promise<Map<number, Box[]>> {
  const properties: Box[] = [];
  const associated: Box[] = [];
  for await (const child of boxes(window, iprp.start, iprp.end, budget)) {
    if (child.type === 'ipma') associated.push(child);
    if (child.type !== 'ipco' || properties.length > 0) continue;
    for await (const property of boxes(window, child.start, child.end, budget)) {
      properties.push(property);
    }
  }
  const byId = new Map<number, Box[]>();
  for (const ipma of associated) {
    const cursor = new Cursor(window, ipma);
    const head = await cursor.number(4);
    const entries = await cursor.number(4);
    const indexBytes = (head & 1) === 0 ? 1 : 2;
    const essentialBit = 1 << (8 * indexBytes - 1);
    for (let entry = 0; entry < entries && !cursor.overrun && budget.take(); entry += 1) {
      const id = await cursor.number(head >>> 24 === 0 ? 2 : 4);
      const count = await cursor.number(1);
      if (!budget.take(Math.floor(count / PROPERTIES_A_STEP))) break;
      const indices = await cursor.numbers(count, indexBytes);
      // Counted from 1; 0: none.
      const own = indices.flatMap(index => properties[(index & (essentialBit - 1)) - 1] ?? []);
      const known = byId.get(id);
      if (known === undefined) byId.set(id, own);
      else known.push(...own);
    }
  }
  return byId;
}

/** Offsets in the file. */
export interface Extent {
  readonly start: number;
  readonly end: number;
}

/** Only of items wholly within the file. */
export async function readExtents(
  window: ByteWindow,
  { iloc, idat }: HeifItems,
  budget: StepBudget,
): Promise<Map<number, readonly Extent[]>> {
  const byId = new Map<number, readonly Extent[]>();
  if (iloc === undefined) return byId;
  const cursor = new Cursor(window, iloc);
  const version = (await cursor.number(4)) >>> 24;
  const sizes = await cursor.number(2);
  const [offsetBytes, lengthBytes, baseBytes] = [sizes >> 12, (sizes >> 8) & 15, (sizes >> 4) & 15];
  const indexBytes = version === 0 ? 0 : sizes & 15;
  const idBytes = version < 2 ? 2 : 4;
  const items = await cursor.number(idBytes);
  for (let item = 0; item < items && !cursor.overrun && budget.take(); item += 1) {
    const id = await cursor.number(idBytes);
    const method = version === 0 ? 0 : (await cursor.number(2)) & 15;
    const isElsewhere = (await cursor.number(2)) !== 0;
    // The bytes are in the file or in the box `idat`. A third method refers to other items.
    const source = method === 0 ? { start: 0, end: window.sizeBytes } : idat;
    const base = (source?.start ?? 0) + (await cursor.number(baseBytes));
    const extents: Extent[] = [];
    const count = await cursor.number(2);
    for (let i = 0; i < count && !cursor.overrun && budget.take(); i += 1) {
      cursor.at += indexBytes;
      const start = base + (await cursor.number(offsetBytes));
      const length = await cursor.number(lengthBytes);
      // A length of 0 means up to the end.
      extents.push({ start, end: length === 0 ? (source?.end ?? start) : start + length });
    }
    const end = Math.min(source?.end ?? 0, window.sizeBytes);
    const isWhole = !cursor.overrun && extents.length === count;
    const isInside = extents.every(extent => extent.start <= extent.end && extent.end <= end);
    // Repeating the same bytes many times could fill the memory.
    const bytes = extents.reduce((sum, extent) => sum + extent.end - extent.start, 0);
    const isShort = bytes <= window.sizeBytes;
    if (isWhole && isInside && isShort && !isElsewhere && method <= 1) byId.set(id, extents);
  }
  return byId;
}
