import type { RoleMatte } from '../../picture/matte/merge-mattes.ts';
import { mergeToWorkingSize, refineMerged, stretchMerged } from '../../picture/matte/refine.ts';
import type { RgbaPicture } from '../../picture/rgba-picture.ts';

export function refineMatte(mattes: readonly RoleMatte[], picture: RgbaPicture): Buffer {
  return refineMerged(mergeToWorkingSize(mattes, picture), picture);
}

export function stretchMatte(mattes: readonly RoleMatte[], picture: RgbaPicture): Buffer {
  return stretchMerged(mergeToWorkingSize(mattes, picture), picture);
}
