/** Numbers, lengths, margins and positions as texts. Each answers undefined for any other text. */
import type { CropMargins, Length, Position } from '../finishing.ts';

/** No sign and no exponent; more digits than any value within its range needs are none. */
const NUMBER = /^\d{1,9}(?:\.\d{1,9})?$/;
/** Parts of a value stand apart by spaces, as in CSS. */
const SPACES = / +/;

/** A plain decimal number, at least 0. */
export function parseNumber(text: string): number | undefined {
  return NUMBER.test(text) ? Number(text) : undefined;
}

/** `12.5%`, at least 0. */
export function parsePercent(text: string): number | undefined {
  return text.endsWith('%') ? parseNumber(text.slice(0, -1)) : undefined;
}

/** `20px`, `5%`, or `0`. */
export function parseLength(text: string): Length | undefined {
  const percent = parsePercent(text);
  const px = /px$/i.test(text) ? parseNumber(text.slice(0, -2)) : undefined;
  // Nothing is nothing in either unit.
  if (percent === 0 || px === 0 || text === '0') return { px: 0 };
  if (percent !== undefined) return { percent };
  return px === undefined ? undefined : { px };
}

/** One length for all sides, two for top and bottom, left and right, or four from the top on. */
export function parseMargins(text: string): CropMargins | undefined {
  const parts = text.split(SPACES);
  const [top, right = top, bottom = top, left = right] = parts.map(parseLength);
  if (parts.length !== 1 && parts.length !== 2 && parts.length !== 4) return undefined;
  if (parts.some(part => parseLength(part) === undefined)) return undefined;
  if (!top || !right || !bottom || !left) return undefined;
  return { top, right, bottom, left };
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
