/**
 * The values of a JSON body that are no strings in every caller's mind: a switch may be true or
 * false, lengths may be numbers. They mean what the same text means.
 */

/** Any number that means something is shorter. */
export const LITERAL_BYTES_MAX = 64;

export type LiteralKind = 'boolean' | 'number';

/** RFC 8259 section 6. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const FIRST_CHARACTERS: Readonly<Record<LiteralKind, string>> = {
  boolean: 'tf',
  number: '-0123456789',
};
/** What may follow a literal: white space, a comma, a brace. */
const ENDS = Buffer.from(' \t\r\n,}');

/** Whether this byte begins a literal of these kinds. */
export function beginsLiteral(kinds: readonly LiteralKind[], byte: number): boolean {
  return kinds.some(kind => FIRST_CHARACTERS[kind].includes(String.fromCharCode(byte)));
}

export function endsLiteral(byte: number): boolean {
  return ENDS.includes(byte);
}

/** What a value must be, for an error's sentence. */
export function typeOf(kinds: readonly LiteralKind[]): string {
  return [...kinds, 'string'].map(kind => `a ${kind}`).join(' or ');
}

/**
 * The text that the literal stands for: 1e3 and 1000.0 are 1000.
 * @returns undefined: not JSON
 */
export function literalText(literal: string): string | undefined {
  if (literal === 'true' || literal === 'false') return literal;
  return NUMBER.test(literal) ? String(Number(literal)) : undefined;
}
