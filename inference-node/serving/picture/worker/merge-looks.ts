/** Makes the one matte that is refined: of the models' looks or a given matte, with hints. */
import { regionIn } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { requireInside } from '@matting/proto/contract/hints.ts';
import type { FinishChoices } from '../makeable.ts';
import { bodyFromOf } from '../matte/clear-haze.ts';
import { HintedMatte } from '../matte/hints/hinted-matte.ts';
import { type Drawn, drawSeeds, type HintsPlane, isDrawn } from '../matte/hints/seeds.ts';
import { mergeMattes, type RoleMatte } from '../matte/merge-mattes.ts';
import { clearOutside } from '../matte/picture-alpha.ts';
import { cutPart, spreadAlpha } from '../matte/picture-part.ts';
import { type MergedMatte, mergeToWorkingSize, workingSize } from '../matte/refine.ts';
import { resample } from '../matte/resample.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { boxAround } from '../zoomed-look.ts';
import type { StoredMatte } from './matte-file.ts';

export interface Looks {
  /** Mattes of the models, those of one part one after the other; none with a given matte. */
  readonly mattes: readonly RoleMatte[];
  readonly given?: StoredMatte | undefined;
  /** The picture of hints; undefined: they are shapes, if there are any. */
  readonly hintsPlane?: HintsPlane | undefined;
}

export interface SeenMatte extends StoredMatte {
  /** The picture, or a copy of the part of it that the matte shows. */
  readonly seen: RgbaPicture;
}

export interface MergedLooks extends SeenMatte {
  /** Undefined: there are no hints. Apply it before the matte is used. */
  readonly hinted: HintedMatte | undefined;
  /** The part of the picture, in its pixels, outside of which nothing is shown. */
  readonly only: Box | undefined;
}

/** @throws ContractError INVALID_PARAMETER: hints outside of the picture */
export function mergeLooks(
  picture: RgbaPicture,
  looks: Looks,
  { hints }: Pick<FinishChoices, 'hints'>,
): MergedLooks {
  const { given, mattes, hintsPlane } = looks;
  const drawn: Drawn | undefined = hintsPlane ?? (hints && isDrawn(hints) ? hints : undefined);
  const all = { left: 0, top: 0, width: picture.width, height: picture.height };
  const box = hints?.subjectBox && regionIn(picture, hints.subjectBox, 'subject_box');
  const area = box ?? all;
  if (hints !== undefined) requireInside(hints, area);
  const first = given === undefined ? seenByAll(picture, mattes) : seenOf(picture, given);
  const { part } = first;
  const looked =
    part === undefined || drawn === undefined || box !== undefined || liesIn(drawn, part)
      ? first
      : widen(first, part, picture);
  const { seen, merged } = looked;
  if (drawn === undefined) return { ...looked, hinted: undefined, only: box };
  const before = {
    alpha: new Uint8Array(merged.alpha),
    bodyFrom: bodyFromOf(merged.alpha, merged),
  };
  const seeds = drawSeeds(drawn, picture, looked.part ?? all, merged);
  const hinted = new HintedMatte(merged.alpha, seeds, merged, seen);
  return { ...looked, merged: { ...merged, before }, hinted, only: box };
}

/** Follows the hints. The matte is changed in place. */
export function followHints(looks: MergedLooks, picture: Size): SeenMatte {
  const { hinted, only, part, seen, merged } = looks;
  hinted?.apply();
  const shown = part ?? { left: 0, top: 0, ...picture };
  if (only !== undefined) clearOutside(merged.alpha, merged, boxWithin(only, shown, merged));
  return { part, seen, merged };
}

/** The next crop that the model should look at for a hint, in the picture's pixels. */
export function nextCrop({ hinted, part, seen }: MergedLooks): Box | undefined {
  const crop = hinted?.nextCrop();
  if (crop === undefined) return undefined;
  const { left, top, ...size } = boxWithin(crop, { left: 0, top: 0, ...hinted!.grid }, seen);
  return { left: left + (part?.left ?? 0), top: top + (part?.top ?? 0), ...size };
}

function seenOf(picture: RgbaPicture, { part, merged }: StoredMatte): SeenMatte {
  const seen = part === undefined ? picture : cutPart(picture, part);
  return { part, seen, merged: sized(merged, seen) };
}

/** Mattes of several parts are merged each by itself, and make one matte of what is around all. */
function seenByAll(picture: RgbaPicture, mattes: readonly RoleMatte[]): SeenMatte {
  const looks = [...Map.groupBy(mattes, ({ part }) => JSON.stringify(part)).values()];
  const parts = looks.map(([matte]) => matte?.part);
  const part = parts.includes(undefined) ? undefined : boxAround(parts as Box[]);
  const seen = part === undefined ? picture : cutPart(picture, part);
  if (looks.length === 1) return { part, seen, merged: mergeToWorkingSize(mattes, seen) };
  const size = workingSize(seen);
  const shown = part ?? { left: 0, top: 0, ...picture };
  const alpha = Buffer.alloc(size.width * size.height);
  for (const [index, look] of looks.entries()) {
    const box = boxWithin(parts[index] ?? shown, shown, size);
    spreadAlpha(mergeMattes(look, box), box, size, alpha);
  }
  return { part, seen, merged: { alpha, ...size } };
}

/** A version of this program with another working size may have written it. */
function sized({ alpha, ...size }: MergedMatte, seen: Size): MergedMatte {
  const wanted = workingSize(seen);
  if (size.width === wanted.width && size.height === wanted.height) return { alpha, ...size };
  return { alpha: resample({ data: alpha, ...size }, wanted), ...wanted };
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

/** The matte over all of the picture: hints lie outside of the part that the models chose. */
function widen({ merged }: SeenMatte, part: Box, picture: RgbaPicture): SeenMatte {
  const size = workingSize(picture);
  const small = boxWithin(part, { left: 0, top: 0, ...picture }, size);
  const { alpha, ...from } = merged;
  const inPart = resample({ data: alpha, ...from }, small);
  return {
    part: undefined,
    seen: picture,
    merged: { alpha: spreadAlpha(inPart, small, size), ...size },
  };
}

/** A box in the units of `shown`, in the pixels of a plane of `size` over it. */
function boxWithin(box: Box, shown: Box, size: Size): Box {
  const [x, y] = [size.width / shown.width, size.height / shown.height];
  const edge = (at: number, side: number) => Math.min(side, Math.max(0, Math.round(at)));
  const left = edge((box.left - shown.left) * x, size.width - 1);
  const top = edge((box.top - shown.top) * y, size.height - 1);
  const right = edge((box.left + box.width - shown.left) * x, size.width);
  const bottom = edge((box.top + box.height - shown.top) * y, size.height);
  return { left, top, width: Math.max(1, right - left), height: Math.max(1, bottom - top) };
}
