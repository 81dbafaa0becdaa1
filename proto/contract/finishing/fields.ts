/**
 * The fields of finishing as callers write them, in every form of a request and on the command
 * line, and what they ask for. docs/rest.md says which values each field has. A parser refuses a
 * text that is not a value of its field, and a field that would have no effect.
 */
import { invalidParameter, unsupportedOutput } from '../errors.ts';
import {
  type Background,
  type Channels,
  type CropMargins,
  type Finishing,
  isOpaque,
  NO_MARGINS,
  type Position,
  QUALITY,
  QUALITY_ABSENT,
  RATIO_SIDE,
  type Region,
  SCALE_PERCENT,
  SHADOW,
  type Shadow,
  SIZE_MEGAPIXELS,
  type Size,
} from '../finishing.ts';
import { isTransparentFormat, type OutputFormat } from '../formats.ts';
import { FRAME_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '../limits.ts';
import { frameNamed, withinLimits } from './frame.ts';
import {
  alphaOf,
  parseColour,
  parseMargins,
  parseNumber,
  parsePercent,
  parsePosition,
  parseRatio,
  parseRegion,
  SPACES,
} from './measures.ts';
import { isWholeRegion } from './region.ts';

/** The type of a field in JSON and in code samples. Every field accepts a text too. */
type FieldKind = 'text' | 'boolean' | 'number';

/** The fields in the order in which documents and pages list them. */
const FIELD_KINDS = {
  background: 'text',
  background_url: 'text',
  channels: 'text',
  crop: 'boolean',
  crop_margin: 'text',
  scale: 'text',
  position: 'text',
  size_max_megapixels: 'number',
  output_width: 'number',
  output_height: 'number',
  aspect_ratio: 'text',
  enlarge: 'boolean',
  quality: 'number',
  roi: 'text',
  shadow: 'text',
  shadow_opacity: 'number',
  shadow_blur: 'number',
  shadow_offset: 'text',
} as const satisfies Record<string, FieldKind>;
export type FinishingField = keyof typeof FIELD_KINDS;
export const FINISHING_FIELDS = Object.keys(FIELD_KINDS) as readonly FinishingField[];

/** The kind of any field of a request; those that are not of finishing are texts. */
export function fieldKind(field: string): FieldKind {
  return Object.hasOwn(FIELD_KINDS, field) ? FIELD_KINDS[field as FinishingField] : 'text';
}

/** The fields that the caller sent, the empty ones too. */
type FinishingTexts = ReadonlyMap<FinishingField, string>;

/** The rest of a request that the rules of the fields need. */
export interface FinishingBeside {
  /** undefined: not known yet. A field that depends on it is judged once it is. */
  readonly outputFormat: OutputFormat | undefined;
  /** A file for the background came beside the texts. */
  readonly backgroundFile: boolean;
}

export interface FinishingAsked {
  readonly channels: Channels;
  /**
   * undefined: the caller asks for no finishing, and every node can do that. Empty: `channels` or
   * the format alone needs a node that finishes.
   */
  readonly finishing: Finishing | undefined;
}

/** Far beyond what a picture needs around its subject. */
const MARGIN_MAX = { px: IMAGE_SIDE_PX_MAX, percent: 500 };

/**
 * Equal values give the same answer, however the caller writes them. The submission judges the
 * texts of URLs.
 * @throws ContractError INVALID_PARAMETER, UNSUPPORTED_OUTPUT_FORMAT
 */
export function parseFinishing(texts: FinishingTexts, beside: FinishingBeside): FinishingAsked {
  const background = backgroundOf(texts, beside.backgroundFile);
  const channels = channelsOf(texts, background);
  const region = regionOf(texts);
  const crop = cropOf(texts);
  const scalePercent = scaleOf(texts);
  const frame = frameOf(texts);
  const hasFrame = scalePercent !== undefined || Object.keys(frame).length > 0;
  const position = positionOf(texts, hasFrame);
  const { outputWidth, outputHeight } = frame;
  // Without one of these nothing is fitted into a frame, and nothing is enlarged.
  const isFitted = [scalePercent, outputWidth, outputHeight].some(fit => fit !== undefined);
  const enlarge = booleanOf(texts, 'enlarge', true);
  const sizeMaxMegapixels = sizeOf(texts);
  const quality = qualityOf(texts, beside.outputFormat, channels);
  const shadow = shadowOf(texts, background, channels);
  const finishing: Finishing = {
    ...(region === undefined ? {} : { region }),
    ...(crop === undefined ? {} : { crop }),
    ...(scalePercent === undefined ? {} : { scalePercent }),
    ...(position === undefined ? {} : { position }),
    ...frame,
    ...(isFitted && !enlarge && { enlarge: false as const }),
    ...(sizeMaxMegapixels === undefined ? {} : { sizeMaxMegapixels }),
    ...(background === undefined ? {} : { background }),
    ...(quality === undefined ? {} : { quality }),
    ...(shadow === undefined ? {} : { shadow }),
  };
  const { outputFormat = 'png' } = beside;
  requireFormat(outputFormat, channels, finishing);
  const asksForMore = channels === 'alpha' || !isTransparentFormat(outputFormat);
  const isAsked = asksForMore || Object.keys(finishing).length > 0;
  return { channels, finishing: isAsked ? finishing : undefined };
}

function backgroundOf(texts: FinishingTexts, fileGiven: boolean): Background | undefined {
  const given = [
    ...(['background', 'background_url'] as const).filter(field => texts.has(field)),
    ...(fileGiven ? ['background_file'] : []),
  ];
  const [, second] = given;
  if (second !== undefined)
    throw invalidParameter(second, `cannot be combined with ${given[0]}. Send one of them`);
  const colour = texts.get('background');
  if (colour === undefined) return given.length > 0 ? { kind: 'picture' } : undefined;
  if (colour.toLowerCase() === 'original') return { kind: 'original' };
  const rgba = parseColour(colour);
  if (rgba === undefined) {
    const wrong =
      'must be transparent, original, the name of a CSS colour, or 3, 4, 6 or 8 hexadecimal digits';
    throw invalidParameter('background', wrong);
  }
  return alphaOf(rgba) === 0 ? undefined : { kind: 'colour', rgba };
}

function channelsOf(texts: FinishingTexts, background: Background | undefined): Channels {
  const channels = texts.get('channels')?.toLowerCase() ?? 'rgba';
  if (channels === 'rgba') return 'rgba';
  if (channels !== 'alpha') throw invalidParameter('channels', 'must be rgba or alpha');
  if (background === undefined) return 'alpha';
  throw invalidParameter('channels', 'must be rgba when the request has a background');
}

function cropOf(texts: FinishingTexts): CropMargins | undefined {
  const isCropped = booleanOf(texts, 'crop');
  const text = texts.get('crop_margin');
  if (text === undefined) return isCropped ? NO_MARGINS : undefined;
  const margins = parseMargins(text);
  if (margins === undefined) {
    const wrong = 'must be 1, 2 or 4 lengths in px or %, separated by spaces';
    throw invalidParameter('crop_margin', wrong);
  }
  for (const length of Object.values(margins)) {
    if ('px' in length ? length.px <= MARGIN_MAX.px : length.percent <= MARGIN_MAX.percent)
      continue;
    const wrong = `must be at most ${MARGIN_MAX.px}px or ${MARGIN_MAX.percent}% per side`;
    throw invalidParameter('crop_margin', wrong);
  }
  if (!isCropped) throw invalidParameter('crop_margin', 'needs crop. Send crop=true');
  return margins;
}

function booleanOf(texts: FinishingTexts, field: FinishingField, absent = false): boolean {
  const text = texts.get(field)?.toLowerCase();
  if (text === undefined) return absent;
  if (text === 'false') return false;
  if (text === 'true') return true;
  throw invalidParameter(field, 'must be true or false');
}

function scaleOf(texts: FinishingTexts): number | undefined {
  const { min, max } = SCALE_PERCENT;
  const text = texts.get('scale');
  if (text === undefined) return undefined;
  const percent = parsePercent(text);
  if (percent !== undefined && percent >= min && percent <= max) return percent;
  throw invalidParameter('scale', `must be a percentage from ${min}% to ${max}%`);
}

/** Nothing for the middle: nodes put the subject there by default. */
function positionOf(texts: FinishingTexts, hasFrame: boolean): Position | undefined {
  const text = texts.get('position');
  if (text === undefined) return undefined;
  const position = parsePosition(text);
  if (position === undefined) {
    throw invalidParameter(
      'position',
      'must be original, center, x% or x% y%, each from 0% to 100%',
    );
  }
  if (!hasFrame) {
    throw invalidParameter('position', 'needs scale, aspect_ratio or an output size');
  }
  const { xPercent, yPercent } = position === 'original' ? {} : position;
  return xPercent === 50 && yPercent === 50 ? undefined : position;
}

function sizeOf(texts: FinishingTexts): number | undefined {
  const text = texts.get('size_max_megapixels');
  if (text === undefined) return undefined;
  const { min, max } = SIZE_MEGAPIXELS;
  const megapixels = parseNumber(text);
  if (megapixels !== undefined && megapixels >= min && megapixels <= max) return megapixels;
  throw invalidParameter('size_max_megapixels', `must be a number from ${min} to ${max}`);
}

type Frame = Pick<Finishing, 'outputWidth' | 'outputHeight' | 'aspectRatio'>;

function frameOf(texts: FinishingTexts): Frame {
  const outputWidth = sideOf(texts, 'output_width');
  const outputHeight = sideOf(texts, 'output_height');
  const aspectRatio = aspectRatioOf(texts);
  const hasBoth = outputWidth !== undefined && outputHeight !== undefined;
  if (aspectRatio !== undefined && hasBoth) {
    const wrong = 'cannot be combined with both output_width and output_height. Send one of them';
    throw invalidParameter('aspect_ratio', wrong);
  }
  const frame: Frame = {
    ...(outputWidth === undefined ? {} : { outputWidth }),
    ...(outputHeight === undefined ? {} : { outputHeight }),
    ...(aspectRatio === undefined ? {} : { aspectRatio }),
  };
  const named = frameNamed(frame);
  const { width, height } = named === undefined ? { width: 1, height: 1 } : withinLimits(named);
  if (width * height <= FRAME_PIXELS_MAX) return frame;
  const max = `must be at most ${FRAME_PIXELS_MAX / 1e6} megapixels`;
  throw hasBoth
    ? invalidParameter('output_height', `times output_width ${max}`)
    : invalidParameter('aspect_ratio', `makes a frame of ${width} x ${height} pixels. It ${max}`);
}

/** The smaller side is 1, so that 4:3 and 8:6 are the same request. */
function aspectRatioOf(texts: FinishingTexts): Size | undefined {
  const text = texts.get('aspect_ratio');
  if (text === undefined) return undefined;
  const ratio = parseRatio(text);
  const { min, max } = RATIO_SIDE;
  const isWithin = (side: number) => side >= min && side <= max;
  if (ratio !== undefined && Object.values(ratio).every(isWithin)) {
    const one = Math.min(ratio.width, ratio.height);
    return { width: ratio.width / one, height: ratio.height / one };
  }
  throw invalidParameter('aspect_ratio', `must be w:h, such as 1:1, each from ${min} to ${max}`);
}

function sideOf(texts: FinishingTexts, field: FinishingField): number | undefined {
  const text = texts.get(field);
  if (text === undefined) return undefined;
  const px = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (px >= 1 && px <= IMAGE_SIDE_PX_MAX) return px;
  throw invalidParameter(field, `must be a whole number from 1 to ${IMAGE_SIDE_PX_MAX}`);
}

/** undefined: absent, or the whole picture. */
function regionOf(texts: FinishingTexts): Region | undefined {
  const text = texts.get('roi');
  if (text === undefined) return undefined;
  const region = parseRegion(text);
  if (region === undefined) throw invalidParameter('roi', 'must be x1 y1 x2 y2, each in px or %');
  if (Object.values(region).some(edge => 'percent' in edge && edge.percent > 100)) {
    throw invalidParameter('roi', 'must lie within the image');
  }
  return isWholeRegion(region) ? undefined : region;
}

/** undefined: absent, or the format's own. */
function qualityOf(
  texts: FinishingTexts,
  format: OutputFormat | undefined,
  channels: Channels,
): number | undefined {
  const text = texts.get('quality');
  if (text === undefined) return undefined;
  const { min, max } = QUALITY;
  const quality = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (quality < min || quality > max) {
    throw invalidParameter('quality', `must be a whole number from ${min} to ${max}`);
  }
  if (channels === 'alpha') {
    throw invalidParameter('quality', 'must be absent with channels=alpha, which is lossless');
  }
  if (format === undefined) return quality;
  if (QUALITY_ABSENT[format] === undefined) {
    throw invalidParameter('quality', 'needs output_format jpeg, webp or avif');
  }
  return quality === QUALITY_ABSENT[format] ? undefined : quality;
}

function shadowOf(
  texts: FinishingTexts,
  background: Background | undefined,
  channels: Channels,
): Shadow | undefined {
  const parts = (['shadow_opacity', 'shadow_blur', 'shadow_offset'] as const).filter(field =>
    texts.has(field),
  );
  const [opacity, blur, offset] = [
    shadowNumbers(texts, 'shadow_opacity', SHADOW.opacity, 1),
    shadowNumbers(texts, 'shadow_blur', SHADOW.length, 1),
    shadowNumbers(texts, 'shadow_offset', SHADOW.length, 2),
  ];
  const text = texts.get('shadow')?.toLowerCase();
  const [part] = parts;
  if (text === undefined && part !== undefined) {
    throw invalidParameter(part, 'needs shadow. Send shadow=drop');
  }
  if (text === undefined) return undefined;
  if (text !== 'drop') throw invalidParameter('shadow', 'must be drop');
  if (channels === 'alpha') throw invalidParameter('shadow', 'must be absent with channels=alpha');
  if (background?.kind === 'original') {
    throw invalidParameter('shadow', 'must be absent with background=original');
  }
  const { absent } = SHADOW;
  return {
    opacity: opacity?.[0] ?? absent.opacity,
    blur: blur?.[0] ?? absent.blur,
    offsetX: offset?.[0] ?? absent.offsetX,
    offsetY: offset?.[1] ?? absent.offsetY,
  };
}

/** Numbers with or without a %, separated by spaces. */
function shadowNumbers(
  texts: FinishingTexts,
  field: FinishingField,
  { min, max }: { readonly min: number; readonly max: number },
  count: 1 | 2,
): readonly number[] | undefined {
  const text = texts.get(field);
  if (text === undefined) return undefined;
  const numbers = text.split(SPACES).map(part => parsePercent(part) ?? parseNumber(part) ?? -1);
  if (numbers.length === count && numbers.every(number => number >= min && number <= max)) {
    return numbers;
  }
  const each = count === 1 ? 'a number' : 'x y, each';
  throw invalidParameter(field, `must be ${each} from ${min} to ${max}`);
}

/** JPEG alone has no transparency: something must lie behind the subject everywhere. */
function requireFormat(format: OutputFormat, channels: Channels, finishing: Finishing): void {
  if (format !== 'jpeg' || isOpaque(finishing)) return;
  throw unsupportedOutput(
    channels === 'alpha'
      ? 'jpeg does not keep the matte exactly. Use png'
      : 'jpeg has no transparency. Send an opaque background, such as background=white',
  );
}
