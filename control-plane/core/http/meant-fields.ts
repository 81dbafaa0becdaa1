/** Finds the field or the header of /v1 that a caller meant by a misspelt name. */
import { nearName, plainName } from '@matting/http/near-names.ts';

const HEADERS: readonly (readonly [header: string, ...names: string[]])[] = [
  ['Idempotency-Key', 'idempotencykey', 'requestid'],
  ['Authorization: Bearer <API_KEY>', 'apikey', 'xapikey', 'key', 'token', 'authorization'],
];

/**
 * Names for an error what to send instead. @param known fields of this form of the body
 * @param missing what the request lacks so far, which the unknown field may hold
 */
export function meantField(name: string, known: readonly string[], missing = ''): string {
  const plain = plainName(name);
  const header = HEADERS.find(([, ...names]) => names.includes(plain))?.[0];
  if (header !== undefined && !known.some(one => plainName(one) === plain)) {
    return `Send it as the header ${header}.`;
  }
  const meant = namedLike(name, known);
  if (meant !== undefined) return `Did you mean ${meant}?`;
  return `${missing} GET /v1/openapi.json lists the fields.`.trimStart();
}

/** Undefined: no known name is like it. */
export function namedLike(name: string, known: readonly string[]): string | undefined {
  const plain = plainName(name);
  return known.find(one => plainName(one) === plain) ?? nearName(name, known);
}
