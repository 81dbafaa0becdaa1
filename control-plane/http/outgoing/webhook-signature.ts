/**
 * Standard Webhooks, symmetric scheme v1 (github.com/standard-webhooks/standard-webhooks, spec
 * 1.0.0).
 */
import { createHmac, timingSafeEqual } from 'node:crypto';

/**
 * All libraries of Standard Webhooks decode standard Base64 after the prefix, some also without
 * padding. A library that takes a secret of this form always gets the same bytes.
 */
const PREFIX = 'whsec_';
const PREFIXED = /^whsec_((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?)$/;
const PREFIXED_BYTES_MIN = 24;
const PREFIXED_BYTES_MAX = 64;

/** Follows the name of a field or an option. */
export const UNREADABLE_SECRET =
  'cannot be read: after whsec_ send the Base64 of 24 to 64 bytes, ' +
  'such as the output of openssl rand -base64 32';

export function isReadableSecret(secret: string): boolean {
  return keyBytes(secret) !== undefined;
}

/** Decodes Base64 after `whsec_`; any other text is its own bytes. @throws Error: unreadable */
export function signingKeyOf(secret: string): Buffer {
  const key = keyBytes(secret);
  if (key === undefined) throw new Error('a whsec_ secret was taken that cannot be read');
  return key;
}

function keyBytes(secret: string): Buffer | undefined {
  if (!secret.startsWith(PREFIX)) return Buffer.from(secret, 'utf8');
  const base64 = PREFIXED.exec(secret)?.[1];
  if (base64 === undefined) return undefined;
  const key = Buffer.from(base64, 'base64');
  const isInBounds = key.length >= PREFIXED_BYTES_MIN && key.length <= PREFIXED_BYTES_MAX;
  return isInBounds ? key : undefined;
}

/** Receivers refuse a message whose time differs by more. */
const TIMESTAMP_TOLERANCE_S = 300;

interface SignedMessage {
  /** Equal in every attempt. */
  readonly id: string;
  /** Unix time of this attempt. */
  readonly timestampS: number;
  readonly body: Uint8Array;
}

export function signMessage(key: Uint8Array, message: SignedMessage) {
  const { id, timestampS } = message;
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestampS),
    'webhook-signature': `v1,${digestOf(key, message).toString('base64')}`,
  };
}

function digestOf(key: Uint8Array, { id, timestampS, body }: SignedMessage): Buffer {
  return createHmac('sha256', key).update(`${id}.${timestampS}.`).update(body).digest();
}

/** undefined: the message is valid. @param headers lower-case names */
export function wrongWithSignature(
  key: Uint8Array,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  body: Uint8Array,
  nowS: number,
): string | undefined {
  const [id, timestamp, signatures] = ['id', 'timestamp', 'signature'].map(
    name => headers[`webhook-${name}`],
  );
  if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signatures !== 'string') {
    return 'a webhook- header is missing';
  }
  if (!/^\d{1,12}$/.test(timestamp)) return 'webhook-timestamp is not a number of seconds';
  const timestampS = Number(timestamp);
  if (Math.abs(nowS - timestampS) > TIMESTAMP_TOLERANCE_S) {
    return `webhook-timestamp is over ${TIMESTAMP_TOLERANCE_S} s off`;
  }
  const expected = digestOf(key, { id, timestampS, body });
  // Several signatures, separated by blanks, while a secret is changed.
  const holds = signatures.split(' ').some(one => {
    const [version, base64 = ''] = one.split(',');
    const given = Buffer.from(base64, 'base64');
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
  return holds ? undefined : 'no signature matches';
}
