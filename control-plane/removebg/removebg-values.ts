/**
 * The fields of remove.bg, and the checks of their values that need no image. The checks ignore the
 * case of a text.
 */

import { booleanOf, oneOf, type Texts } from '@matting/compat/field-values.ts';
import type { FormBody } from '@matting/compat/picture-form.ts';
import { invalidParameter } from '@matting/proto/contract/errors.ts';
import {
  marginsOf,
  POSITION_FORM,
  parseNumber,
  parsePercent,
  parsePosition,
  parseRegion,
  REGION_FORM,
  readText,
  within,
} from '@matting/proto/contract/finishing/measures.ts';
import { isWholeRegion } from '@matting/proto/contract/finishing/region.ts';
import { FINISHING_ROWS } from '@matting/proto/contract/finishing/table.ts';
import {
  type Channels,
  type CropMargins,
  NO_MARGINS,
  type Position,
  type Region,
  SHADOW,
  type Shadow,
} from '@matting/proto/contract/finishing.ts';
import { RemovebgRefusal } from './removebg-errors.ts';

export const REMOVEBG_TEXTS = [
  'image_url',
  'size',
  'type',
  'type_level',
  'format',
  'roi',
  'crop',
  'crop_margin',
  'scale',
  'position',
  'channels',
  'add_shadow',
  'shadow_type',
  'shadow_opacity',
  'shadow_method',
  'semitransparency',
  'bg_color',
  'bg_image_url',
] as const;
export type RemovebgText = (typeof REMOVEBG_TEXTS)[number];

const REMOVEBG_PICTURES = ['image_file', 'image_file_b64', 'bg_image_file'] as const;
export type RemovebgPicture = (typeof REMOVEBG_PICTURES)[number];

export type RemovebgFields = Omit<FormBody<RemovebgText, RemovebgPicture>, 'unknown'>;

/** Most megapixels of a result. A PNG of `full` or `4k` has at most FULL_PNG_MEGAPIXELS. */
const SIZES = {
  auto: undefined,
  preview: 0.25,
  small: 0.25,
  regular: 0.25,
  medium: 1.5,
  hd: 4,
  full: 25,
  '4k': 25,
  '50mp': 50,
} as const;
const FULL_PNG_MEGAPIXELS = 10;

type RemovebgSize = keyof typeof SIZES;

const FORMATS = ['auto', 'png', 'jpg', 'jpeg', 'webp', 'zip'] as const;
export type RemovebgFormat = (typeof FORMATS)[number];

/** Clients accept more types than remove.bg documents. */
const TYPES = [
  'auto',
  'person',
  'product',
  'car',
  'car_interior',
  'car_part',
  'animal',
  'graphic',
  'graphics',
  'transportation',
  'other',
] as const;
const TYPE_LEVELS = ['1', 'none', '2', 'latest'] as const;
const SHADOW_METHODS = ['latest', 'legacy'] as const;
/** remove.bg changes its shadows, so any plausible name is accepted. Only `drop` is rendered. */
const SHADOW_TYPE = /^[a-z0-9][a-z0-9_-]{0,31}$/;

const MARGIN_MAX = { px: 500, percent: 50 };

export function sizeOf(texts: Texts<string>): RemovebgSize {
  const [first = 'auto', ...others] = Object.keys(SIZES) as RemovebgSize[];
  return oneOf(texts, 'size', [first, ...others]);
}

export function megapixelsMaxOf(size: RemovebgSize, isPng: boolean): number | undefined {
  if (isPng && (size === 'full' || size === '4k')) return FULL_PNG_MEGAPIXELS;
  return SIZES[size];
}

export function formatOf(texts: Texts<string>): RemovebgFormat {
  return oneOf(texts, 'format', FORMATS);
}

export function requireUnrendered(texts: Texts<string>): void {
  oneOf(texts, 'type', TYPES);
  booleanOf(texts, 'add_shadow', false);
  oneOf(texts, 'shadow_method', SHADOW_METHODS);
  booleanOf(texts, 'semitransparency', true);
}

export function shadowOf(texts: Texts<string>, channels: Channels): Shadow | undefined {
  const type = texts.get('shadow_type')?.toLowerCase();
  if (type !== undefined && !SHADOW_TYPE.test(type)) {
    throw invalidParameter('shadow_type', 'must be a name of lower-case letters, digits, _ and -');
  }
  const { min, max } = FINISHING_ROWS.shadow_opacity.number;
  const { opacity } = SHADOW.absent;
  const parse = (text: string) =>
    text.toLowerCase() === 'auto' ? opacity : within(parseNumber(text), { min: 0, max });
  const wrong = `must be auto, or from 0 to ${max}`;
  const percent = readText(texts, 'shadow_opacity', parse, wrong) ?? opacity;
  if (type !== 'drop' || channels === 'alpha' || percent < min) return undefined;
  return { ...SHADOW.absent, opacity: percent };
}

export function withoutEffect(effects: {
  /** True: type_level is not `none`. All its other values name the type `other`. */
  readonly namesType: boolean;
  readonly shadow: boolean;
}): readonly RemovebgText[] {
  return [
    'type',
    ...(effects.namesType ? (['type_level'] as const) : []),
    'add_shadow',
    ...(effects.shadow ? [] : (['shadow_type', 'shadow_opacity'] as const)),
    'shadow_method',
    'semitransparency',
  ];
}

export function typeLevelOf(texts: Texts<string>): string {
  return oneOf(texts, 'type_level', TYPE_LEVELS);
}

/** Clients send default margins. Without `crop` they are checked and have no effect. */
export function cropOf(texts: Texts<string>): CropMargins | undefined {
  const isCropped = booleanOf(texts, 'crop', false);
  const margins = marginsOf(texts, MARGIN_MAX, 'must be 1, 2 or 4 lengths in px or %');
  return isCropped ? (margins ?? NO_MARGINS) : undefined;
}

export function scaleOf(texts: Texts<string>): number | undefined {
  const range = FINISHING_ROWS.scale.number;
  if (texts.get('scale')?.toLowerCase() === 'original') return undefined;
  const wrong = `must be original, or a percentage from ${range.min}% to ${range.max}%`;
  return readText(texts, 'scale', text => within(parsePercent(text), range), wrong);
}

/**
 * Undefined: the middle if there is a scale, else the subject stays in place. Without a scale the
 * service refuses every other position: it would charge for a position that has no effect.
 */
export function positionOf(
  texts: Texts<string>,
  { isScaled, isCropped }: { readonly isScaled: boolean; readonly isCropped: boolean },
): Position | undefined {
  const parse = (text: string) => parsePosition(text.replaceAll(/(?<=^| )0(?= |$)/g, '0%'));
  const position = readText(texts, 'position', parse, POSITION_FORM);
  if (position === undefined) return undefined;
  if (isScaled) return isMiddle(position) ? undefined : position;
  if (position === 'original' || isCropped) return undefined;
  throw invalidParameter('position', 'needs scale unless it is original');
}

function isMiddle(position: Position): boolean {
  return position !== 'original' && position.xPercent === 50 && position.yPercent === 50;
}

/** Undefined: the whole image. removebg-request.ts checks a region against the image's size. */
export function regionOf(texts: Texts<string>): Region | undefined {
  const region = readText(texts, 'roi', parseRegion, REGION_FORM);
  if (region === undefined) return undefined;
  if (Object.values(region).some(edge => 'percent' in edge && edge.percent > 100)) {
    throw new RemovebgRefusal('roi_exceeds_bounds', 'roi', 'roi must lie within the image.');
  }
  return isWholeRegion(region) ? undefined : region;
}
