/**
 * The fields of a JSON body that are no strings in every caller's mind: `crop` may be true or false,
 * lengths may be numbers. They mean what the same text means; every other field is a string.
 */
import type { MattingField } from '../../services/submission/submit-fields.ts';

/** Any number that means something is shorter. */
export const LITERAL_BYTES_MAX = 64;

type LiteralKind = 'boolean' | 'number';

const KINDS: Readonly<Partial<Record<MattingField, LiteralKind>>> = {
  crop: 'boolean',
  size_max_megapixels: 'number',
  output_width: 'number',
  output_height: 'number',
};
/** RFC 8259 section 6. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const FIRST_CHARACTERS: Readonly<Record<LiteralKind, string>> = {
  boolean: 'tf',
  number: '-0123456789',
};
/** What may follow a literal: white space, a comma, a brace. */
const ENDS = Buffer.from(' \t\r\n,}');

/** Whether this byte begins a literal that the field may have. */
export function beginsLiteral(field: MattingField, byte: number): boolean {
  const kind = KINDS[field];
  return kind !== undefined && FIRST_CHARACTERS[kind].includes(String.fromCharCode(byte));
}

export function endsLiteral(byte: number): boolean {
  return ENDS.includes(byte);
}

/** What a value of the field must be, for an error's sentence. */
export function typeOf(field: MattingField): string {
  const kind = KINDS[field];
  return kind === undefined ? 'a string' : `a ${kind} or a string`;
}

/**
 * The text that the literal stands for: 1e3 and 1000.0 are 1000.
 * @returns undefined: not JSON
 */
export function literalText(literal: string): string | undefined {
  if (literal === 'true' || literal === 'false') return literal;
  return NUMBER.test(literal) ? String(Number(literal)) : undefined;
}
