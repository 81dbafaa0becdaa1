/** Item ids (ISO/IEC 23008-12) of the picture and of its alpha plane. */
export const COLOURS_ID = 1;
export const ALPHA_ID = 2;
const ALPHA_TYPE = 'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0';
const ESSENTIAL = 0x80;
const HIDDEN = 1;

export function u16(...values: number[]): Buffer {
  const bytes = Buffer.alloc(2 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt16BE(value, 2 * i);
  return bytes;
}

export function u32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt32BE(value, 4 * i);
  return bytes;
}

export function box(type: string, ...content: Buffer[]): Buffer {
  const length = content.reduce((sum, part) => sum + part.length, 8);
  return Buffer.concat([u32(length), Buffer.from(type, 'latin1'), ...content]);
}

export function fullBox(
  type: string,
  version: number,
  flags: number,
  ...content: Buffer[]
): Buffer {
  return box(type, u32((version << 24) | flags), ...content);
}

export interface HeifItem {
  readonly id: number;
  readonly type: 'av01' | 'hvc1' | 'grid';
  readonly isHidden: boolean;
  readonly data: Buffer;
  readonly properties: readonly (readonly [box: Buffer, essential: boolean])[];
}

export interface Reference {
  readonly type: 'auxl' | 'dimg';
  readonly from: number;
  readonly to: readonly number[];
}

export interface Arrangement {
  readonly items: readonly HeifItem[];
  readonly references: readonly Reference[];
}

/** @param brands the major one, a version of four zeros, and the others */
export function writeHeif(brands: string, { items, references }: Arrangement): Buffer {
  const ftyp = box('ftyp', Buffer.from(brands, 'latin1'));
  // Offsets have a fixed length, so a first pass finds the offset of the data.
  const metaBytes = writeMeta(items, references, 0).length;
  const meta = writeMeta(items, references, ftyp.length + metaBytes + 8);
  return Buffer.concat([ftyp, meta, box('mdat', ...items.map(({ data }) => data))]);
}

export function sizeBox(width: number, height: number): Buffer {
  return fullBox('ispe', 0, 0, u32(width, height));
}

export function alphaMark(): Buffer {
  return fullBox('auxC', 0, 0, Buffer.from(ALPHA_TYPE, 'latin1'));
}

export const ALPHA_OF_COLOURS: Reference = { type: 'auxl', from: ALPHA_ID, to: [COLOURS_ID] };

function writeMeta(
  items: readonly HeifItem[],
  references: readonly Reference[],
  dataOffset: number,
): Buffer {
  const handler = Buffer.concat([u32(0), Buffer.from('pict', 'latin1'), Buffer.alloc(13)]);
  let offset = dataOffset;
  const locations = items.map(({ id, data }) => {
    // Construction method 0 (this file), one extent.
    const location = Buffer.concat([u16(id, 0, 1), u32(offset, data.length)]);
    offset += data.length;
    return location;
  });
  const infos = items.map(({ id, type, isHidden }) =>
    fullBox('infe', 2, isHidden ? HIDDEN : 0, u16(id, 0), Buffer.from(`${type}\0`, 'latin1')),
  );
  const refs = references.map(({ type, from, to }) => box(type, u16(from, to.length, ...to)));
  return fullBox(
    'meta',
    0,
    0,
    fullBox('hdlr', 0, 0, handler),
    fullBox('pitm', 0, 0, u16(COLOURS_ID)),
    // Offsets and lengths of four bytes, no base offset.
    fullBox('iloc', 0, 0, Buffer.from([0x44, 0x00]), u16(items.length), ...locations),
    fullBox('iinf', 0, 0, u16(items.length), ...infos),
    ...(refs.length === 0 ? [] : [fullBox('iref', 0, 0, ...refs)]),
    writeProperties(items),
  );
}

function writeProperties(items: readonly HeifItem[]): Buffer {
  const known = new Map<Buffer, number>();
  const indices = new Map<string, number>();
  const written: Buffer[] = [];
  // Items share long properties, which are compared once.
  const indexOf = (property: Buffer): number => {
    const index = known.get(property) ?? indexOfBytes(property.toString('latin1'), property);
    known.set(property, index);
    return index;
  };
  const indexOfBytes = (key: string, property: Buffer): number => {
    const index = indices.get(key) ?? written.push(property);
    indices.set(key, index);
    return index;
  };
  const associations = items.map(({ id, properties }) => {
    const list = properties.map(
      ([property, isEssential]) => indexOf(property) | (isEssential ? ESSENTIAL : 0),
    );
    return Buffer.concat([u16(id), Buffer.from([list.length, ...list])]);
  });
  if (written.length >= ESSENTIAL) throw new Error('more properties than short indices reach');
  const ipma = fullBox('ipma', 0, 0, u32(items.length), ...associations);
  return box('iprp', box('ipco', ...written), ipma);
}
