/** Colours as CSS writes them: hexadecimal, and by name. */
import colorNames from 'color-name';

const HEX = /^#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$/;

/**
 * The colour as `Background` has it; `transparent` is 0. Hexadecimal with 3, 4, 6 or 8 digits, the
 * `#` optional, since a query takes it for the start of a fragment. Case does not matter.
 * @returns undefined for any other text
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
