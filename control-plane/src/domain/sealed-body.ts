/**
 * How a row of webhook_outbox says that its body is sealed as its secret is: by the id of its
 * secret's key. Control planes from before bodies were sealed know no such key, so they leave the
 * row to the others. Pure.
 */

const SEALED = 'body.';

/** The id in a row whose body is sealed. */
export function withSealedBody(keyId: string): string {
  return `${SEALED}${keyId}`;
}

export interface RowKey {
  /** Of the key that sealed the secret. */
  readonly keyId: string;
  /** False: the row is from before bodies were sealed. */
  readonly bodySealed: boolean;
}

export function rowKeyOf(id: string): RowKey {
  const bodySealed = id.startsWith(SEALED);
  return { keyId: bodySealed ? id.slice(SEALED.length) : id, bodySealed };
}
