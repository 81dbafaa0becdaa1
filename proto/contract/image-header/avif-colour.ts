/**
 * What an AVIF says of its primary item's colours: the code points of ITU-T H.273 in a `colr` box
 * of type nclx (ISO/IEC 14496-12, 12.1.5), whether an ICC profile stands beside them, and whether
 * they are multiplied by alpha (a reference of type `prem`, ISO/IEC 23000-22, 7.3.5.2).
 */
import { readAssociations, readPrimaryId } from './avif.ts';
import { ByteWindow } from './byte-window.ts';
import { type Box, boxes, StepBudget } from './iso-boxes.ts';

/** Code points of ITU-T H.273. */
export interface Cicp {
  readonly primaries: number;
  readonly transfer: number;
  /** Samples are of video's narrow range; absent where a decoder has stretched them. */
  readonly isNarrow?: boolean;
}

export interface AvifColour {
  readonly cicp: Cicp | undefined;
  readonly hasProfile: boolean;
  /** Decoders hand such colours out as they are. */
  readonly premultiplied: boolean;
}

const NO_COLOUR: AvifColour = { cicp: undefined, hasProfile: false, premultiplied: false };
/** FullBox: version and flags. */
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

/** A reference of type `prem` from the item, to its alpha. */
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
