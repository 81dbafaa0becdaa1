/** The refusal of a body, or a query, that is not of the form it claims to be. */
import { ContractError } from '#contract/errors.ts';

/**
 * Fields of a body or a query, known or not, with a value or without: more than any interface of
 * this service has. What is read is counted, so that nothing that means nothing is free.
 */
export const FIELDS_MAX = 64;

/** Characters of an unknown field's name that are shown to the caller. */
const SHOWN_NAME_LENGTH_MAX = 64;

/** @param fieldDetail what is wrong with the field, where the sentence says more */
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
  return malformed(`${what} has more than ${FIELDS_MAX} fields`);
}

/** A name that a caller chose, cut short. */
export function shownName(name: string): string {
  return name.slice(0, SHOWN_NAME_LENGTH_MAX).toWellFormed();
}

/** @param name undefined: too long to be kept. */
export function unknownField(name: string | undefined): ContractError {
  const shown = shownName(name ?? 'a very long name');
  return malformed(`unknown field: ${shown}`, shown, 'unknown field');
}

export function givenTwice(field: string): ContractError {
  return malformed(`${field} is given twice`, field, 'given twice');
}

/** A string longer than every rule allows: its text was dropped. */
export const OVERLONG: unique symbol = Symbol('overlong');
export type TextValue = string | typeof OVERLONG;
