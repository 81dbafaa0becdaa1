/**
 * The fields of a submission whose body is the picture itself: parameters of the query, as forms
 * write them (`+` and `%20` are spaces). A query stands in the logs of every proxy on the way, so
 * nothing that is secret, or leads to a picture, is taken there.
 */
import { ContractError } from '#contract/errors.ts';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import {
  MATTING_FIELDS,
  OVERLONG,
  type TextField,
  type TextValue,
} from '../../submission/submit-fields.ts';
import {
  FIELDS_MAX,
  givenTwice,
  malformed,
  shownName,
  tooManyFields,
  unknownField,
} from './malformed.ts';
import { FILE_FIELDS } from './matting-form.ts';

export type QueryFields = ReadonlyMap<TextField, TextValue>;

/** An image_url may itself have a secret in it, as links that were signed do. */
export const NOT_IN_A_QUERY: readonly string[] = [
  'image_url',
  'image_base64',
  'background_url',
  'callback_url',
  'callback_secret',
  ...FILE_FIELDS,
];

/**
 * @param target the request's, with its path
 * @throws ContractError INVALID_REQUEST: unknown, given twice, not percent-encoded UTF-8;
 * INVALID_PARAMETER: a URL, a secret or a file
 */
export function readQueryFields(target: string): QueryFields {
  const texts = new Map<TextField, TextValue>();
  for (const { name, text } of parametersOf(target)) {
    if (NOT_IN_A_QUERY.includes(name)) {
      throw misplaced(name, 'must not be in the query; send multipart/form-data or JSON');
    }
    const field = MATTING_FIELDS.find((known): known is TextField => known === name);
    if (field === undefined) throw unknownField(name);
    if (texts.has(field)) throw givenTwice(field);
    texts.set(field, text.length > URL_LENGTH_MAX ? OVERLONG : text);
  }
  return texts;
}

/**
 * For a form, which has parts for all of it.
 * @throws ContractError INVALID_PARAMETER, and INVALID_REQUEST as above
 */
export function requireNoQueryFields(target: string): void {
  for (const { name } of parametersOf(target)) {
    const isField = [...MATTING_FIELDS, ...FILE_FIELDS].some(known => known === name);
    throw isField ? misplaced(name, 'must be a part of the form') : unknownField(name);
  }
}

/** Of the query, in their order. @throws ContractError INVALID_REQUEST: not percent-encoded UTF-8 */
export function* parametersOf(
  target: string,
): Generator<{ readonly name: string; readonly text: string }> {
  const start = target.indexOf('?');
  if (start === -1) return;
  const pairs = target.slice(start + 1).split('&', FIELDS_MAX + 1);
  if (pairs.length > FIELDS_MAX) throw tooManyFields('the query');
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
    const detail = 'the query is not percent-encoded UTF-8; a per cent sign is written %25';
    throw malformed(detail, shown, 'not percent-encoded UTF-8', cause);
  }
}

function misplaced(field: string, wrong: string): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_PARAMETER', `${field} ${wrong}`, { fieldErrors });
}
