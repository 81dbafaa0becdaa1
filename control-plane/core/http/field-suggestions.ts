import { nearName, plainName } from '@matting/http/near-names.ts';

const HEADERS: readonly (readonly [header: string, ...names: string[]])[] = [
  ['Idempotency-Key', 'idempotencykey', 'requestid'],
  ['Authorization: Bearer <API_KEY>', 'apikey', 'xapikey', 'key', 'token', 'authorization'],
];

/**
 * What to send instead of a misspelt field of /v1.
 * @param known the fields of this kind of body
 * @param missing a required field that the request lacks
 */
export function suggestField(name: string, known: readonly string[], missing = ''): string {
  const plain = plainName(name);
  const header = HEADERS.find(([, ...names]) => names.includes(plain))?.[0];
  if (header !== undefined && !known.some(one => plainName(one) === plain)) {
    return `Send it as the header ${header}.`;
  }
  const similar = similarName(name, known);
  if (similar !== undefined) return `Did you mean ${similar}?`;
  return `${missing} GET /v1/openapi.json lists the fields.`.trimStart();
}

export function similarName(name: string, known: readonly string[]): string | undefined {
  const plain = plainName(name);
  return known.find(one => plainName(one) === plain) ?? nearName(name, known);
}
