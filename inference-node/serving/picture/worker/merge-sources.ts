import { regionIn } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { requireInside } from '@matting/proto/contract/hints.ts';
import { boxAround } from '../closer-look.ts';
import type { FinishChoices } from '../makeable.ts';
import { bodyFromOf } from '../matte/clear-haze.ts';
import { HintedMatte } from '../matte/hints/hinted-matte.ts';
import { type Drawn, drawSeeds, type HintsPlane, isDrawn } from '../matte/hints/seeds.ts';
import { mergeMattes, type RoleMatte } from '../matte/merge-mattes.ts';
import { clearOutside } from '../matte/picture-alpha.ts';
import { cutPart, spreadAlpha } from '../matte/picture-part.ts';
import { mergeToWorkingSize, workingSize } from '../matte/refine.ts';
import { resample } from '../matte/resample.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import type { StoredMatte } from './matte-file.ts';

export interface MatteSources {
  readonly mattes: readonly RoleMatte[];
  readonly given?: StoredMatte | undefined;
  /** Undefined: hints are shapes. */
  readonly hintsPlane?: HintsPlane | undefined;
}

export interface ShownMatte extends StoredMatte {
  /** The picture, or a copy of the part that the matte shows. */
  readonly view: RgbaPicture;
}

export interface MergedSources extends ShownMatte {
  /** Apply it before the matte is used. Undefined: there are no hints. */
  readonly hinted: HintedMatte | undefined;
  /** In the picture's pixels; nothing is shown outside. */
  readonly only: Box | undefined;
}

/** @throws ContractError INVALID_PARAMETER: hints outside of the picture */
export function mergeSources(
  picture: RgbaPicture,
  { given, mattes, hintsPlane }: MatteSources,
  { hints }: Pick<FinishChoices, 'hints'>,
): MergedSources {
  const drawn: Drawn | undefined = hintsPlane ?? (hints && isDrawn(hints) ? hints : undefined);
  const all = wholeOf(picture);
  const box = hints?.subjectBox && regionIn(picture, hints.subjectBox, 'subject_box');
  if (hints !== undefined) requireInside(hints, box ?? all);
  const first = given === undefined ? mergeParts(picture, mattes) : resize(picture, given);
  const { part } = first;
  const isCovered =
    part === undefined || drawn === undefined || box !== undefined || liesIn(drawn, part);
  const source = isCovered ? first : widen(first, part, picture);
  if (drawn === undefined) return { ...source, hinted: undefined, only: box };
  const { view, merged } = source;
  const before = {
    alpha: new Uint8Array(merged.alpha),
    bodyFrom: bodyFromOf(merged.alpha, merged),
  };
  const seeds = drawSeeds(drawn, picture, source.part ?? all, merged);
  const hinted = new HintedMatte(merged.alpha, seeds, merged, view);
  return { ...source, merged: { ...merged, before }, hinted, only: box };
}

/** Changes the matte in place. */
export function applyHints({ hinted, only, part, merged }: MergedSources, picture: Size): void {
  hinted?.apply();
  if (only === undefined) return;
  clearOutside(merged.alpha, merged, boxWithin(only, part ?? wholeOf(picture), merged));
}

/** For the model's next run for a hint, in the picture's pixels. */
export function nextCrop({ hinted, part, view }: MergedSources): Box | undefined {
  const crop = hinted?.nextCrop();
  if (crop === undefined) return undefined;
  const { left, top, ...size } = boxWithin(crop, wholeOf(hinted!.grid), view);
  return { left: left + (part?.left ?? 0), top: top + (part?.top ?? 0), ...size };
}

function wholeOf({ width, height }: Size): Box {
  return { left: 0, top: 0, width, height };
}

/** A version with another working size may have written the matte. */
function resize(picture: RgbaPicture, { part, merged }: StoredMatte): ShownMatte {
  const view = part === undefined ? picture : cutPart(picture, part);
  const wanted = workingSize(view);
  const { alpha: data, ...size } = merged;
  const isSame = size.width === wanted.width && size.height === wanted.height;
  const sized = isSame ? merged : { alpha: resample({ data, ...size }, wanted), ...wanted };
  return { part, view, merged: sized };
}

/** Merges the mattes of each part, then all into one around the parts. */
function mergeParts(picture: RgbaPicture, mattes: readonly RoleMatte[]): ShownMatte {
  const groups = [...Map.groupBy(mattes, ({ part }) => JSON.stringify(part)).values()];
  const parts = groups.map(([matte]) => matte?.part);
  const part = parts.includes(undefined) ? undefined : boxAround(parts as Box[]);
  const view = part === undefined ? picture : cutPart(picture, part);
  if (groups.length === 1) return { part, view, merged: mergeToWorkingSize(mattes, view) };
  const size = workingSize(view);
  const shown = part ?? wholeOf(picture);
  const alpha = Buffer.alloc(size.width * size.height);
  for (const [index, group] of groups.entries()) {
    const box = boxWithin(parts[index] ?? shown, shown, size);
    spreadAlpha(mergeMattes(group, box), box, size, alpha);
  }
  return { part, view, merged: { alpha, ...size } };
}

function liesIn(drawn: Drawn, part: Box): boolean {
  if ('luma' in drawn) return false;
  try {
    requireInside(drawn, part);
    return true;
  } catch {
    return false;
  }
}

/** Spreads the matte over the whole picture, since hints lie outside of the models' part. */
function widen({ merged }: ShownMatte, part: Box, picture: RgbaPicture): ShownMatte {
  const size = workingSize(picture);
  const small = boxWithin(part, wholeOf(picture), size);
  const { alpha, ...from } = merged;
  const inPart = resample({ data: alpha, ...from }, small);
  return {
    part: undefined,
    view: picture,
    merged: { alpha: spreadAlpha(inPart, small, size), ...size },
  };
}

/** Converts `box` to pixels of a picture of `size` that shows the area `shown`. */
function boxWithin(box: Box, shown: Box, size: Size): Box {
  const [x, y] = [size.width / shown.width, size.height / shown.height];
  const edge = (at: number, side: number) => Math.min(side, Math.max(0, Math.round(at)));
  const left = edge((box.left - shown.left) * x, size.width - 1);
  const top = edge((box.top - shown.top) * y, size.height - 1);
  const right = edge((box.left + box.width - shown.left) * x, size.width);
  const bottom = edge((box.top + box.height - shown.top) * y, size.height);
  return { left, top, width: Math.max(1, right - left), height: Math.max(1, bottom - top) };
}
