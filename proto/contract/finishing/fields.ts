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
  SCALE_PERCENT,
  SIZE_MEGAPIXELS,
} from '../finishing.ts';
import { isTransparentFormat, type OutputFormat } from '../formats.ts';
import { FRAME_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '../limits.ts';
import {
  alphaOf,
  parseColour,
  parseMargins,
  parseNumber,
  parsePercent,
  parsePosition,
} from './measures.ts';

/** The type of a field in JSON and in code samples. Every field accepts a text too. */
export type FieldKind = 'text' | 'boolean' | 'number';

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
} as const satisfies Record<string, FieldKind>;
export type FinishingField = keyof typeof FIELD_KINDS;
export const FINISHING_FIELDS = Object.keys(FIELD_KINDS) as readonly FinishingField[];

/** The kind of any field of a request; those that are not of finishing are texts. */
export function fieldKind(field: string): FieldKind {
  return Object.hasOwn(FIELD_KINDS, field) ? FIELD_KINDS[field as FinishingField] : 'text';
}

/** The fields that the caller sent, the empty ones too. */
export type FinishingTexts = ReadonlyMap<FinishingField, string>;

/** The rest of a request that the rules of the fields need. */
export interface FinishingBeside {
  readonly outputFormat: OutputFormat;
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
  const crop = cropOf(texts);
  const scalePercent = scaleOf(texts);
  const frame = frameOf(texts);
  const hasFrame = scalePercent !== undefined || Object.keys(frame).length > 0;
  const position = positionOf(texts, hasFrame);
  const sizeMaxMegapixels = sizeOf(texts);
  const finishing: Finishing = {
    ...(crop === undefined ? {} : { crop }),
    ...(scalePercent === undefined ? {} : { scalePercent }),
    ...(position === undefined ? {} : { position }),
    ...frame,
    ...(sizeMaxMegapixels === undefined ? {} : { sizeMaxMegapixels }),
    ...(background === undefined ? {} : { background }),
  };
  requireFormat(beside.outputFormat, channels, finishing);
  const asksForMore = channels === 'alpha' || !isTransparentFormat(beside.outputFormat);
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
  const rgba = parseColour(colour);
  if (rgba === undefined) {
    const wrong =
      'must be transparent, the name of a CSS colour, or 3, 4, 6 or 8 hexadecimal digits';
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

function booleanOf(texts: FinishingTexts, field: FinishingField): boolean {
  const text = texts.get(field)?.toLowerCase();
  if (text === undefined || text === 'false') return false;
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
    throw invalidParameter('position', 'needs scale, output_width or output_height');
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

function frameOf(texts: FinishingTexts): Pick<Finishing, 'outputWidth' | 'outputHeight'> {
  const outputWidth = sideOf(texts, 'output_width');
  const outputHeight = sideOf(texts, 'output_height');
  if ((outputWidth ?? 1) * (outputHeight ?? 1) > FRAME_PIXELS_MAX) {
    const wrong = `times output_width must be at most ${FRAME_PIXELS_MAX / 1e6} megapixels`;
    throw invalidParameter('output_height', wrong);
  }
  return {
    ...(outputWidth === undefined ? {} : { outputWidth }),
    ...(outputHeight === undefined ? {} : { outputHeight }),
  };
}

function sideOf(texts: FinishingTexts, field: FinishingField): number | undefined {
  const text = texts.get(field);
  if (text === undefined) return undefined;
  const px = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (px >= 1 && px <= IMAGE_SIDE_PX_MAX) return px;
  throw invalidParameter(field, `must be a whole number from 1 to ${IMAGE_SIDE_PX_MAX}`);
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
