/** Values of finishing as texts. Parsers return undefined for any other text. */
import colorNames from 'color-name';
import { invalidParameter } from '../errors.ts';
import type { CropMargins, Length, Position, Region, Size } from '../finishing.ts';

/** No sign and no exponent. No valid value needs more digits. */
const NUMBER = /^\d{1,9}(?:\.\d{1,9})?$/;
export const SPACES = / +/;

/** undefined: absent. @throws ContractError INVALID_PARAMETER */
export function readText<Field extends string, Value>(
  texts: ReadonlyMap<Field, string>,
  field: Field,
  parse: (text: string) => Value | undefined,
  wrong: string,
): Value | undefined {
  const text = texts.get(field);
  const value = text === undefined ? undefined : parse(text);
  if (text === undefined || value !== undefined) return value;
  throw invalidParameter(field, wrong);
}

export function within(value: number | undefined, { min, max }: { min: number; max: number }) {
  return value !== undefined && value >= min && value <= max ? value : undefined;
}

export function parseNumber(text: string): number | undefined {
  return NUMBER.test(text) ? Number(text) : undefined;
}

/** Digits only, at most as many as `max` has. */
export function parseWhole(text: string, max: number): number | undefined {
  return /^\d+$/.test(text) && text.length <= `${max}`.length ? Number(text) : undefined;
}

/** `12.5%`. */
export function parsePercent(text: string): number | undefined {
  return text.endsWith('%') ? parseNumber(text.slice(0, -1)) : undefined;
}

/** `20px`, `5%` or `0`. */
export function parseLength(text: string): Length | undefined {
  const percent = parsePercent(text);
  const px = /px$/i.test(text) ? parseNumber(text.slice(0, -2)) : undefined;
  // Zero is the same in both units.
  if (percent === 0 || px === 0 || text === '0') return { px: 0 };
  if (percent !== undefined) return { percent };
  return px === undefined ? undefined : { px };
}

/** One, two or four lengths, as in CSS. */
function parseMargins(text: string): CropMargins | undefined {
  const parts = text.split(SPACES);
  const [top, right = top, bottom = top, left = right] = parts.map(parseLength);
  if (parts.length !== 1 && parts.length !== 2 && parts.length !== 4) return undefined;
  if (parts.some(part => parseLength(part) === undefined)) return undefined;
  if (!top || !right || !bottom || !left) return undefined;
  return { top, right, bottom, left };
}

/** @throws ContractError INVALID_PARAMETER: also for a margin over `max` */
export function marginsOf<Field extends string>(
  texts: ReadonlyMap<Field | 'crop_margin', string>,
  max: { readonly px: number; readonly percent: number },
  wrong: string,
): CropMargins | undefined {
  const margins = readText(texts, 'crop_margin', parseMargins, wrong);
  const isLong = (length: Length) =>
    'px' in length ? length.px > max.px : length.percent > max.percent;
  if (margins === undefined || !Object.values(margins).some(isLong)) return margins;
  throw invalidParameter('crop_margin', `must be at most ${max.px}px or ${max.percent}% per side`);
}

export const REGION_FORM = 'must be x1 y1 x2 y2, each in px or %';
export const POSITION_FORM = 'must be original, center, x% or x% y%, each from 0% to 100%';

/** `x1 y1 x2 y2`. */
export function parseRegion(text: string): Region | undefined {
  const parts = text.trim().split(SPACES);
  const [left, top, right, bottom] = parts.map(parseLength);
  if (!left || !top || !right || !bottom || parts.length !== 4) return undefined;
  return { left, top, right, bottom };
}

/** `original`, `center`, `x%` for both directions, or `x% y%`. */
export function parsePosition(text: string): Position | undefined {
  if (text.toLowerCase() === 'original') return 'original';
  if (text.toLowerCase() === 'center') return { xPercent: 50, yPercent: 50 };
  const parts = text.split(SPACES);
  const [xPercent, yPercent = xPercent] = parts.map(parsePercent);
  if (parts.length > 2 || parts.some(part => parsePercent(part) === undefined)) return undefined;
  if (xPercent === undefined || yPercent === undefined) return undefined;
  if (xPercent > 100 || yPercent > 100) return undefined;
  return { xPercent, yPercent };
}

/** `w:h`. */
export function parseRatio(text: string): Size | undefined {
  const parts = text.split(':');
  const [width, height] = parts.map(parseNumber);
  return width && height && parts.length === 2 ? { width, height } : undefined;
}

const HEX = /^#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$/;

/**
 * A CSS name, `transparent` (0), or 3, 4, 6 or 8 hexadecimal digits. `#` is optional, because it
 * begins a URL's fragment.
 */
export function parseColour(text: string): number | undefined {
  const lower = text.toLowerCase();
  if (lower === 'transparent') return 0;
  if (Object.hasOwn(colorNames, lower)) {
    const [red, green, blue] = colorNames[lower] ?? [0, 0, 0];
    return toNumber(red, green, blue, 255);
  }
  const digits = HEX.exec(lower)?.[1];
  if (digits === undefined) return undefined;
  const long = digits.length < 6 ? [...digits].map(digit => digit + digit).join('') : digits;
  return Number.parseInt(long.padEnd(8, 'f'), 16);
}

/** Straight alpha, 0 to 255. */
export function alphaOf(rgba: number): number {
  return rgba & 0xff;
}

function toNumber(red: number, green: number, blue: number, alpha: number): number {
  return ((red << 24) | (green << 16) | (blue << 8) | alpha) >>> 0;
}
