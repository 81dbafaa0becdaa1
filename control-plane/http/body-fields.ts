import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';

/** More fields than any interface has. Unknown and empty fields count too. */
export const FIELDS_MAX = 64;

const SHOWN_NAME_LENGTH_MAX = 64;

export function malformed(
  detail: string,
  field?: string,
  fieldDetail?: string,
  cause?: unknown,
): ContractError {
  const fieldErrors = field === undefined ? [] : [{ field, detail: fieldDetail ?? detail }];
  return new ContractError('INVALID_REQUEST', detail, { fieldErrors, cause });
}

export function tooManyFields(what: string): ContractError {
  return malformed(`${what} has more than ${FIELDS_MAX} fields.`);
}

export function shownName(name: string): string {
  return name.slice(0, SHOWN_NAME_LENGTH_MAX).toWellFormed();
}

/** @param name undefined: too long to be kept */
export function unknownField(
  name: string | undefined,
  suggestionFor?: (name: string) => string,
): ContractError {
  const shown = shownName(name ?? 'a very long name');
  const unknown = `Unknown field: ${shown}.`;
  if (suggestionFor === undefined) return malformed(unknown, shown, 'is unknown');
  const suggestion = suggestionFor(shown);
  return malformed(`${unknown} ${suggestion}`, shown, `is unknown. ${suggestion}`);
}

export function givenTwice(field: string): ContractError {
  return malformed(`${field} is given twice. Send it once.`, field, 'is given twice');
}

/** Prefixes the fields of a ContractError with `path`. */
export function underPath<T>(path: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof ContractError)) throw error;
    const { code, message } = error;
    const fieldErrors = error.fieldErrors.map(one => ({ ...one, field: `${path}.${one.field}` }));
    // The message may end with advice that suits a single request only.
    const summary = fieldErrors.map(({ field, detail }) => `${field} ${detail}.`).join(' ');
    throw new ContractError(code, summary || `${path}: ${message}`, { cause: error, fieldErrors });
  }
}

/** Decoded as forms are: `+` is a space. @throws ContractError INVALID_REQUEST: not valid UTF-8 */
export function* parametersOf(
  target: string,
): Generator<{ readonly name: string; readonly text: string }> {
  const start = target.indexOf('?');
  if (start === -1) return;
  const pairs = target.slice(start + 1).split('&', FIELDS_MAX + 1);
  if (pairs.length > FIELDS_MAX) throw tooManyFields('The query');
  for (const pair of pairs) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decoded(equals === -1 ? pair : pair.slice(0, equals));
    yield { name, text: equals === -1 ? '' : decoded(pair.slice(equals + 1), name) };
  }
}

function decoded(text: string, field?: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch (cause) {
    const shown = field === undefined ? undefined : shownName(field);
    const detail = 'The query is not percent-encoded UTF-8. Write a percent sign as %25.';
    throw malformed(detail, shown, 'is not percent-encoded UTF-8', cause);
  }
}

/** @throws ContractError INVALID_REQUEST: an unknown name, or one given twice */
export function queryOf(target: string, known: readonly string[]): ReadonlyMap<string, string> {
  const given = new Map<string, string>();
  for (const { name, text } of parametersOf(target)) {
    if (!known.includes(name)) throw unknownField(name);
    if (given.has(name)) throw givenTwice(name);
    given.set(name, text);
  }
  return given;
}

export function requireLimit(text: string | undefined, max: number): number | undefined {
  if (text === undefined) return undefined;
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= max) return limit;
  throw invalidParameter('limit', `must be a whole number from 1 to ${max}`);
}

/** A string over every limit, whose text was dropped. */
export const OVERLONG: unique symbol = Symbol('overlong');
export type TextValue = string | typeof OVERLONG;

/** Two bytes a character. */
export function bytesOfText(text: TextValue): number {
  return text === OVERLONG ? 0 : 2 * text.length;
}
