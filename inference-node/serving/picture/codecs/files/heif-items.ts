/** Reads which items a HEIF file has, and where. Hostile files are expected: loops are bounded. */
import type { Size } from '@matting/proto/contract/finishing.ts';

export interface Span {
  readonly type: string;
  readonly start: number;
  readonly end: number;
}

/** Boxes and list entries of one file; a grid has at most 65,536 tiles, of three entries each. */
const STEPS_MAX = 400_000;
const ALPHA_TYPES = [
  'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0',
  'urn:mpeg:hevc:2015:auxid:1\0',
];

export interface HeifItem {
  readonly type: string;
  /** Offsets in the file; undefined where they cannot be read or lie in another file. */
  readonly extents: readonly { readonly start: number; readonly end: number }[] | undefined;
  readonly properties: readonly Span[];
}

export interface HeifItems {
  readonly primaryId: number | undefined;
  readonly byId: ReadonlyMap<number, HeifItem>;
  /** What a derived item is made of, in order, by the derived item. */
  readonly inputs: ReadonlyMap<number, readonly number[]>;
  /** Alpha planes, by the item that they belong to. */
  readonly alphas: ReadonlyMap<number, readonly number[]>;
  /** Some item stores its colours multiplied by its alpha. */
  readonly isPremultiplied: boolean;
}

/** Reads numbers one after the other; behind the end they are 0, and `overrun` is true. */
class Cursor {
  readonly #file: Buffer;
  readonly #end: number;
  at: number;

  constructor(file: Buffer, { start, end }: Span) {
    this.#file = file;
    this.at = start;
    this.#end = Math.min(end, file.length);
  }

  get overrun(): boolean {
    return this.at > this.#end;
  }

  /** Big endian, 0 to 8 bytes; more bytes are an overrun. */
  number(bytes: number): number {
    const from = this.at;
    this.at = bytes > 8 ? Number.POSITIVE_INFINITY : from + bytes;
    if (this.overrun || bytes === 0) return 0;
    if (bytes <= 6) return this.#file.readUIntBE(from, bytes);
    return (
      this.#file.readUIntBE(from, bytes - 4) * 2 ** 32 + this.#file.readUInt32BE(from + bytes - 4)
    );
  }
}

class ItemReader {
  readonly #file: Buffer;
  #stepsLeft = STEPS_MAX;

  constructor(file: Buffer) {
    this.#file = file;
  }

  #step(): boolean {
    this.#stepsLeft -= 1;
    return this.#stepsLeft >= 0;
  }

  spans(start: number, end: number): Span[] {
    const spans: Span[] = [];
    for (let at = start; at + 8 <= end && this.#step(); ) {
      const cursor = new Cursor(this.#file, { type: '', start: at, end });
      const short = cursor.number(4);
      cursor.at += 4;
      const length = short === 1 ? cursor.number(8) : short === 0 ? end - at : short;
      if (at + length < cursor.at || cursor.overrun) break;
      const type = this.#file.toString('latin1', at + 4, at + 8);
      spans.push({ type, start: cursor.at, end: Math.min(end, at + length) });
      at += length;
    }
    return spans;
  }

  read(): HeifItems {
    const meta = this.spans(0, this.#file.length).find(({ type }) => type === 'meta');
    const boxes = meta === undefined ? [] : this.spans(meta.start + 4, meta.end);
    const find = (name: string) => boxes.find(({ type }) => type === name);
    const types = this.#readTypes(find('iinf'));
    const extents = this.#readLocations(find('iloc'), find('idat'));
    const properties = this.#readProperties(find('iprp'));
    const byId = new Map<number, HeifItem>();
    for (const [id, type] of types) {
      byId.set(id, { type, extents: extents.get(id), properties: properties.get(id) ?? [] });
    }
    const references = this.#readReferences(find('iref'));
    const inputs = new Map<number, readonly number[]>();
    const alphas = new Map<number, number[]>();
    for (const { type, from, to } of references) {
      if (type === 'dimg') inputs.set(from, to);
      if (type !== 'auxl' || !this.#isAlpha(byId.get(from))) continue;
      for (const id of to) {
        const planes = alphas.get(id);
        if (planes === undefined) alphas.set(id, [from]);
        else planes.push(from);
      }
    }
    const isPremultiplied = references.some(({ type }) => type === 'prem');
    const primaryId = this.#readPrimaryId(find('pitm'));
    return { primaryId, byId, inputs, alphas, isPremultiplied };
  }

  #readPrimaryId(pitm: Span | undefined): number | undefined {
    if (pitm === undefined) return undefined;
    const cursor = new Cursor(this.#file, pitm);
    const version = cursor.number(4) >>> 24;
    const id = cursor.number(version === 0 ? 2 : 4);
    return cursor.overrun ? undefined : id;
  }

  #readTypes(iinf: Span | undefined): Map<number, string> {
    const types = new Map<number, string>();
    if (iinf === undefined) return types;
    const isLong = this.#file[iinf.start] !== 0;
    for (const infe of this.spans(iinf.start + (isLong ? 8 : 6), iinf.end)) {
      const cursor = new Cursor(this.#file, infe);
      const version = cursor.number(4) >>> 24;
      const id = cursor.number(version >= 3 ? 4 : 2);
      cursor.at += 2;
      const type = this.#file.toString('latin1', cursor.at, cursor.at + 4);
      if (infe.type === 'infe' && version >= 2) types.set(id, type);
    }
    return types;
  }

  #readLocations(iloc: Span | undefined, idat: Span | undefined): Map<number, HeifItem['extents']> {
    const locations = new Map<number, HeifItem['extents']>();
    if (iloc === undefined) return locations;
    const cursor = new Cursor(this.#file, iloc);
    const version = cursor.number(4) >>> 24;
    const sizes = cursor.number(2);
    const [offsetBytes, lengthBytes, baseBytes] = [
      sizes >> 12,
      (sizes >> 8) & 15,
      (sizes >> 4) & 15,
    ];
    const indexBytes = version === 0 ? 0 : sizes & 15;
    const count = cursor.number(version < 2 ? 2 : 4);
    for (let i = 0; i < count && this.#step() && !cursor.overrun; i++) {
      const id = cursor.number(version < 2 ? 2 : 4);
      const method = version === 0 ? 0 : cursor.number(2) & 15;
      const isElsewhere = cursor.number(2) !== 0;
      const base = cursor.number(baseBytes);
      // In the file, or in the box `idat`; a third method refers to other items.
      const source = method === 0 ? { start: 0, end: Number.POSITIVE_INFINITY } : idat;
      const extents: { start: number; end: number }[] = [];
      const extentCount = cursor.number(2);
      for (let j = 0; j < extentCount && this.#step() && !cursor.overrun; j++) {
        cursor.at += indexBytes;
        const start = (source?.start ?? 0) + base + cursor.number(offsetBytes);
        const length = cursor.number(lengthBytes);
        // A length of 0 means up to the end.
        const all = method === 0 ? this.#file.length : (idat?.end ?? 0);
        extents.push({ start, end: length === 0 ? all : start + length });
      }
      const isKnown = !isElsewhere && method <= 1 && source !== undefined && !cursor.overrun;
      const isInside = extents.every(({ end }) => end <= (source?.end ?? 0));
      locations.set(id, isKnown && isInside ? extents : undefined);
    }
    return locations;
  }

  #readReferences(iref: Span | undefined) {
    const references: { type: string; from: number; to: number[] }[] = [];
    if (iref === undefined) return references;
    const idBytes = this.#file[iref.start] === 0 ? 2 : 4;
    for (const span of this.spans(iref.start + 4, iref.end)) {
      const cursor = new Cursor(this.#file, span);
      const from = cursor.number(idBytes);
      const count = cursor.number(2);
      const to: number[] = [];
      for (let i = 0; i < count && this.#step() && !cursor.overrun; i++) {
        to.push(cursor.number(idBytes));
      }
      references.push({ type: span.type, from, to });
    }
    return references;
  }

  #readProperties(iprp: Span | undefined): Map<number, Span[]> {
    const byId = new Map<number, Span[]>();
    if (iprp === undefined) return byId;
    const children = this.spans(iprp.start, iprp.end);
    const ipco = children.find(({ type }) => type === 'ipco');
    const properties = ipco === undefined ? [] : this.spans(ipco.start, ipco.end);
    for (const ipma of children.filter(({ type }) => type === 'ipma')) {
      const cursor = new Cursor(this.#file, ipma);
      const head = cursor.number(4);
      const count = cursor.number(4);
      const indexBytes = (head & 1) === 0 ? 1 : 2;
      const indexMask = indexBytes === 1 ? 0x7f : 0x7fff;
      for (let i = 0; i < count && this.#step() && !cursor.overrun; i++) {
        const id = cursor.number(head >>> 24 === 0 ? 2 : 4);
        const own = byId.get(id) ?? [];
        for (let left = cursor.number(1); left > 0; left--) {
          const property = properties[(cursor.number(indexBytes) & indexMask) - 1];
          if (property !== undefined) own.push(property);
        }
        byId.set(id, own);
      }
    }
    return byId;
  }

  #isAlpha(item: HeifItem | undefined): boolean {
    const auxC = item?.properties.find(({ type }) => type === 'auxC');
    if (auxC === undefined) return false;
    const name = this.#file.toString('latin1', auxC.start + 4, auxC.end);
    return ALPHA_TYPES.some(type => name.startsWith(type));
  }
}

export function readHeifItems(file: Buffer): HeifItems {
  return new ItemReader(file).read();
}

/** Undefined: it cannot be read. */
export function readGrid(file: Buffer, { extents }: HeifItem) {
  const extent = extents?.length === 1 ? extents[0] : undefined;
  if (extent === undefined || extent.end > file.length || extent.end - extent.start < 8) {
    return undefined;
  }
  const data = file.subarray(extent.start, extent.end);
  const isLong = (data.readUInt8(1) & 1) === 1;
  if (isLong && data.length < 12) return undefined;
  return {
    rows: data.readUInt8(2) + 1,
    columns: data.readUInt8(3) + 1,
    width: isLong ? data.readUInt32BE(4) : data.readUInt16BE(4),
    height: isLong ? data.readUInt32BE(8) : data.readUInt16BE(6),
  };
}

export function readSize(file: Buffer, item: HeifItem | undefined): Size | undefined {
  const ispe = item?.properties.find(({ type }) => type === 'ispe');
  if (ispe === undefined || ispe.end - ispe.start < 12) return undefined;
  const [width, height] = [file.readUInt32BE(ispe.start + 4), file.readUInt32BE(ispe.start + 8)];
  return { width, height };
}
