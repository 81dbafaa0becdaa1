import { regionIn } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { type Hints, requireInside } from '@matting/proto/contract/hints.ts';

/** Relative to the box's sides: models take a subject that fills the picture for the background. */
const MARGIN_SHARE = 0.1;

/**
 * The part that models see for a caller's box, with a margin. Undefined: all of the picture.
 * @throws ContractError INVALID_PARAMETER: hints outside of the picture or the box
 */
export function partOf(hints: Hints, picture: Size): Box | undefined {
  const { width, height } = picture;
  const all = { left: 0, top: 0, width, height };
  const box = hints.subjectBox && regionIn(picture, hints.subjectBox, 'subject_box');
  requireInside(hints, box ?? all);
  if (box === undefined) return undefined;
  const [x, y] = [Math.ceil(MARGIN_SHARE * box.width), Math.ceil(MARGIN_SHARE * box.height)];
  const left = Math.max(0, box.left - x);
  const top = Math.max(0, box.top - y);
  const right = Math.min(width, box.left + box.width + x);
  const bottom = Math.min(height, box.top + box.height + y);
  const part = { left, top, width: right - left, height: bottom - top };
  return part.width === width && part.height === height ? undefined : part;
}
