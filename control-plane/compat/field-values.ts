/** Values that several compatible interfaces share. Readers ignore upper and lower case. */
import { OVERLONG, type TextValue } from '@matting/http/body-fields.ts';
import { invalidParameter } from '@matting/proto/contract/errors.ts';
import { alphaOf, parseColour, readText } from '@matting/proto/contract/finishing/measures.ts';
import type { Background } from '@matting/proto/contract/finishing.ts';

export type Texts<Name extends string> = ReadonlyMap<Name, string>;

/** @throws ContractError INVALID_PARAMETER: a value is longer than every rule allows */
export function requireShort<Name extends string>(given: ReadonlyMap<Name, TextValue>) {
  const texts = new Map<Name, string>();
  for (const [field, text] of given) {
    if (text === OVERLONG) throw invalidParameter(field, 'is too long');
    texts.set(field, text);
  }
  return texts as Texts<Name>;
}

/** @param values the first is the default */
export function oneOf<Value extends string>(
  texts: Texts<string>,
  field: string,
  values: readonly [Value, ...Value[]],
): Value {
  const text = texts.get(field)?.toLowerCase();
  if (text === undefined) return values[0];
  const value = values.find(known => known === text);
  if (value === undefined)
    throw invalidParameter(field, `must be one of ${[...new Set(values)].join(', ')}`);
  return value;
}

/** PHP sends true and false as 1 and 0. */
export function booleanOf(texts: Texts<string>, field: string, absent: boolean): boolean {
  const text = texts.get(field)?.toLowerCase();
  if (text === undefined) return absent;
  if (text === 'true' || text === '1') return true;
  if (text === 'false' || text === '0') return false;
  throw invalidParameter(field, 'must be true or false');
}

/** Undefined: no colour, or a transparent one. */
export function colourOf(texts: Texts<string>, field: string): Background | undefined {
  const wrong = 'must be 3, 4, 6 or 8 hexadecimal digits or a colour name';
  const rgba = readText(texts, field, parseColour, wrong) ?? 0;
  return alphaOf(rgba) === 0 ? undefined : { kind: 'colour', rgba };
}

const OPAQUE_FORMATS = ['jpg', 'jpeg', 'zip'];

export function requireMatteAlone(format: string, background: Background | undefined): void {
  if (background !== undefined) {
    throw invalidParameter('channels', 'must be rgba when the request has a background');
  }
  if (OPAQUE_FORMATS.includes(format)) {
    throw invalidParameter('format', `must be png or webp for channels=alpha, not ${format}`);
  }
}

/** The opaque background of a format without transparency: the colour blended over white. */
export function opaque(background: Background | undefined): Background {
  if (background !== undefined && background.kind !== 'colour') return background;
  const rgba = background?.rgba ?? 0;
  const share = alphaOf(rgba) / 255;
  const onWhite = (shift: number) =>
    Math.round(((rgba >>> shift) & 0xff) * share + 255 * (1 - share));
  const [red, green, blue] = [onWhite(24), onWhite(16), onWhite(8)];
  return { kind: 'colour', rgba: ((red << 24) | (green << 16) | (blue << 8) | 0xff) >>> 0 };
}
