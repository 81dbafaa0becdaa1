/**
 * Parses finishing fields of requests and of the command line (docs/finishing.md). It refuses wrong
 * values and fields without an effect.
 */
import { invalidParameter, unsupportedOutput } from '../errors.ts';
import {
  type Background,
  type Channels,
  type CropMargins,
  type Finishing,
  given,
  isOpaque,
  NO_MARGINS,
  type Position,
  QUALITY_ABSENT,
  type Region,
  SHADOW,
  type Shadow,
  type Size,
} from '../finishing.ts';
import { isTransparentFormat, type OutputFormat } from '../formats.ts';
import { FRAME_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '../limits.ts';
import { frameNamed, withinLimits } from './frame.ts';
import {
  alphaOf,
  marginsOf,
  POSITION_FORM,
  parseColour,
  parseNumber,
  parsePercent,
  parsePosition,
  parseRatio,
  parseRegion,
  parseWhole,
  REGION_FORM,
  readText,
  SPACES,
  within,
} from './measures.ts';
import { isWholeRegion } from './region.ts';
import {
  type BooleanField,
  type ChoiceField,
  FINISHING_ROWS,
  type FinishingField,
  type FinishingNumbers,
  type NumberField,
  OWN_NUMBER_FIELDS,
  propertyOf,
  rowOf,
} from './table.ts';

/** Sent fields, including empty ones. */
type FinishingTexts = ReadonlyMap<FinishingField, string>;

/** Other parts of the request that the rules need. */
interface FinishingContext {
  /** undefined: not known yet; dependent fields are checked later. */
  readonly outputFormat: OutputFormat | undefined;
  readonly backgroundFile: boolean;
}

export interface ParsedFinishing {
  readonly channels: Channels;
  /** undefined: no finishing. Empty: `channels` or the format needs a node that finishes. */
  readonly finishing: Finishing | undefined;
}

/** Far more than any picture needs. */
const MARGIN_MAX = { px: IMAGE_SIDE_PX_MAX, percent: 500 };

/**
 * Equal values give equal answers. @throws ContractError INVALID_PARAMETER,
 * UNSUPPORTED_OUTPUT_FORMAT
 */
export function parseFinishing(texts: FinishingTexts, context: FinishingContext): ParsedFinishing {
  const background = backgroundOf(texts, context.backgroundFile);
  const channels = channelsOf(texts, background);
  const region = regionOf(texts);
  const crop = cropOf(texts);
  const scalePercent = numberOf(texts, 'scale');
  const frame = frameOf(texts);
  const hasFrame = scalePercent !== undefined || Object.keys(frame).length > 0;
  const position = positionOf(texts, hasFrame);
  const { outputWidth, outputHeight } = frame;
  // Without one of these nothing is fitted or enlarged.
  const isFitted = [scalePercent, outputWidth, outputHeight].some(fit => fit !== undefined);
  const enlarge = !booleanOf(texts, 'enlarge') && isFitted ? (false as const) : undefined;
  const finishing: Finishing = given({
    region,
    crop,
    position,
    background,
    enlarge,
    ...frame,
    ...numbersOf(texts),
    quality: qualityOf(texts, context.outputFormat, channels),
    shadow: shadowOf(texts, background, channels),
  });
  const { outputFormat = 'png' } = context;
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
  const wrong =
    'must be transparent, original, the name of a CSS colour, or 3, 4, 6 or 8 hexadecimal digits';
  const rgba = readText(texts, 'background', parseColour, wrong) ?? 0;
  return alphaOf(rgba) === 0 ? undefined : { kind: 'colour', rgba };
}

function channelsOf(texts: FinishingTexts, background: Background | undefined): Channels {
  if (choiceOf(texts, 'channels') !== 'alpha') return 'rgba';
  if (background === undefined) return 'alpha';
  throw invalidParameter('channels', 'must be rgba when the request has a background');
}

function cropOf(texts: FinishingTexts): CropMargins | undefined {
  const isCropped = booleanOf(texts, 'crop');
  const wrong = 'must be 1, 2 or 4 lengths in px or %, separated by spaces';
  const margins = marginsOf(texts, MARGIN_MAX, wrong);
  if (margins === undefined) return isCropped ? NO_MARGINS : undefined;
  if (!isCropped) throw invalidParameter('crop_margin', 'needs crop. Send crop=true');
  return margins;
}

function booleanOf(texts: FinishingTexts, field: BooleanField): boolean {
  const text = texts.get(field)?.toLowerCase();
  if (text === undefined) return FINISHING_ROWS[field].schema.default;
  if (text === 'false') return false;
  if (text === 'true') return true;
  throw invalidParameter(field, 'must be true or false');
}

function choiceOf(texts: FinishingTexts, field: ChoiceField): string | undefined {
  const text = texts.get(field)?.toLowerCase();
  const values = FINISHING_ROWS[field].choice;
  if (text === undefined || values.includes(text)) return text;
  throw invalidParameter(field, `must be ${values.join(' or ')}`);
}

function numberOf(texts: FinishingTexts, field: NumberField): number | undefined {
  const range = rowOf(field).number!;
  const { min, max, form = 'number' } = range;
  const [parse, what, unit = ''] = NUMBERS[form]!;
  const wrong = `must be a ${what} from ${min}${unit} to ${max}${unit}`;
  return readText(texts, field, text => within(parse(text, max), range), wrong);
}

const parseShare = (text: string) => parsePercent(text) ?? parseNumber(text);
type Parse = (text: string, max: number) => number | undefined;
const NUMBERS: { readonly [form: string]: readonly [Parse, what: string, unit?: string] } = {
  number: [parseNumber, 'number'],
  share: [parseShare, 'number'],
  whole: [parseWhole, 'whole number'],
  percent: [parsePercent, 'percentage such as 85%,', '%'],
};

/** Except the quality, which depends on the format. */
function numbersOf(texts: FinishingTexts): FinishingNumbers {
  const plain = OWN_NUMBER_FIELDS.filter(field => field !== 'quality');
  return Object.fromEntries(plain.map(field => [propertyOf(field), numberOf(texts, field)]));
}

/** undefined for the middle, the default of nodes. */
function positionOf(texts: FinishingTexts, hasFrame: boolean): Position | undefined {
  const position = readText(texts, 'position', parsePosition, POSITION_FORM);
  if (position === undefined) return undefined;
  if (!hasFrame) {
    throw invalidParameter('position', 'needs scale, aspect_ratio or an output size');
  }
  const { xPercent, yPercent } = position === 'original' ? {} : position;
  return xPercent === 50 && yPercent === 50 ? undefined : position;
}

type Frame = Pick<Finishing, 'outputWidth' | 'outputHeight' | 'aspectRatio'>;

function frameOf(texts: FinishingTexts): Frame {
  const outputWidth = numberOf(texts, 'output_width');
  const outputHeight = numberOf(texts, 'output_height');
  const aspectRatio = aspectRatioOf(texts);
  const hasBoth = outputWidth !== undefined && outputHeight !== undefined;
  if (aspectRatio !== undefined && hasBoth) {
    const wrong = 'cannot be combined with both output_width and output_height. Send one of them';
    throw invalidParameter('aspect_ratio', wrong);
  }
  const frame: Frame = given({ outputWidth, outputHeight, aspectRatio });
  const named = frameNamed(frame);
  const { width, height } = named === undefined ? { width: 1, height: 1 } : withinLimits(named);
  if (width * height <= FRAME_PIXELS_MAX) return frame;
  const max = `must be at most ${FRAME_PIXELS_MAX / 1e6} megapixels`;
  throw hasBoth
    ? invalidParameter('output_height', `times output_width ${max}`)
    : invalidParameter('aspect_ratio', `makes a frame of ${width} x ${height} pixels. It ${max}`);
}

/** The smaller side is 1, so that 4:3 and 8:6 are equal. */
function aspectRatioOf(texts: FinishingTexts): Size | undefined {
  const side = FINISHING_ROWS.aspect_ratio.text;
  const parse = (text: string) => {
    const { width, height } = parseRatio(text) ?? {};
    const one = Math.min(within(width, side) ?? 0, within(height, side) ?? 0);
    return width && height && one > 0 ? { width: width / one, height: height / one } : undefined;
  };
  const wrong = `must be w:h, such as 1:1, each from ${side.min} to ${side.max}`;
  return readText(texts, 'aspect_ratio', parse, wrong);
}

/** undefined: absent, or the whole picture. */
function regionOf(texts: FinishingTexts): Region | undefined {
  const region = readText(texts, 'roi', parseRegion, REGION_FORM);
  if (region === undefined) return undefined;
  if (Object.values(region).some(edge => 'percent' in edge && edge.percent > 100)) {
    throw invalidParameter('roi', 'must lie within the image');
  }
  return isWholeRegion(region) ? undefined : region;
}

/** undefined: absent, or the format's default. */
function qualityOf(texts: FinishingTexts, format: OutputFormat | undefined, channels: Channels) {
  const quality = numberOf(texts, 'quality');
  if (quality === undefined) return undefined;
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
  const { absent } = SHADOW;
  const opacity = numberOf(texts, 'shadow_opacity') ?? absent.opacity;
  const blur = numberOf(texts, 'shadow_blur') ?? absent.blur;
  const [offsetX, offsetY] = offsetOf(texts) ?? [absent.offsetX, absent.offsetY];
  const shadow = choiceOf(texts, 'shadow');
  const [part] = parts;
  if (shadow === undefined && part !== undefined) {
    throw invalidParameter(part, 'needs shadow. Send shadow=drop');
  }
  if (shadow === undefined) return undefined;
  if (channels === 'alpha') throw invalidParameter('shadow', 'must be absent with channels=alpha');
  if (background?.kind === 'original') {
    throw invalidParameter('shadow', 'must be absent with background=original');
  }
  return { opacity, blur, offsetX, offsetY };
}

function offsetOf(texts: FinishingTexts): readonly [x: number, y: number] | undefined {
  const range = FINISHING_ROWS.shadow_offset.text;
  const parse = (text: string): readonly [x: number, y: number] | undefined => {
    const [x, y, ...more] = text.split(SPACES).map(part => within(parseShare(part), range));
    return x === undefined || y === undefined || more.length > 0 ? undefined : [x, y];
  };
  const wrong = `must be x y, each from ${range.min} to ${range.max}`;
  return readText(texts, 'shadow_offset', parse, wrong);
}

/** Only JPEG has no transparency. */
function requireFormat(format: OutputFormat, channels: Channels, finishing: Finishing): void {
  if (format !== 'jpeg' || isOpaque(finishing)) return;
  throw unsupportedOutput(
    channels === 'alpha'
      ? 'jpeg does not keep the matte exactly. Use png'
      : 'jpeg has no transparency. Send an opaque background, such as background=white',
  );
}
