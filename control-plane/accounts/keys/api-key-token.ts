/**
 * The text of an API key: `mk_<id>_<secret><check>`.
 *
 * | part   | characters | meaning                                                              |
 * |--------|------------|----------------------------------------------------------------------|
 * | mk_    | 3          | lets scanners of leaked secrets name the service                     |
 * | id     | 12         | base62, public: it finds the row and is shown in lists               |
 * | secret | 43         | base62, 256 bits; only its SHA-256 is stored                         |
 * | check  | 6          | base62 of the CRC-32 of the rest: finds typing errors without the    |
 * |        |            | database                                                             |
 *
 * A plain hash suffices: nobody can search 256 random bits.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BASE = BigInt(ALPHABET.length);
const ID_LENGTH = 12;
/** 62^43 is just over 2^256. */
const SECRET_LENGTH = 43;
const SECRET_BYTES = 32;
/** 62^6 is over 2^32. */
const CHECK_LENGTH = 6;
const FORM = /^(mk_([0-9A-Za-z]{12})_([0-9A-Za-z]{43}))([0-9A-Za-z]{6})$/;

export interface ApiKeyToken {
  readonly id: string;
  readonly secret: string;
  readonly text: string;
}

/** @param existingId the id of a key that gets another secret; absent: a new id */
export function createApiKeyToken(existingId?: string): ApiKeyToken {
  // 9 bytes take 13 characters. The first would be 0 or 1, so it is cut off.
  const id = existingId ?? base62(randomBytes(9), ID_LENGTH + 1).slice(1);
  const secret = base62(randomBytes(SECRET_BYTES), SECRET_LENGTH);
  const head = `${publicPrefix(id)}_${secret}`;
  return { id, secret, text: head + checkOf(head) };
}

/** @returns undefined: the text is not a key of this service */
export function parseApiKeyToken(text: string): Omit<ApiKeyToken, 'text'> | undefined {
  const [, head, id, secret, check] = FORM.exec(text) ?? [];
  if (head === undefined || id === undefined || secret === undefined) return undefined;
  if (check !== checkOf(head)) return undefined;
  return { id, secret };
}

export function publicPrefix(id: string): string {
  return `mk_${id}`;
}

/** Finds the id in an id, a prefix, or a whole key. */
export function apiKeyIdOf(text: string): string {
  return /^(?:mk_)?([0-9A-Za-z]{12})(?:_.*)?$/.exec(text)?.[1] ?? text;
}

export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** Compares in constant time. */
export function secretMatches(secret: string, storedHash: string): boolean {
  const given = Buffer.from(hashSecret(secret), 'hex');
  const stored = Buffer.from(storedHash, 'hex');
  return given.length === stored.length && timingSafeEqual(given, stored);
}

function checkOf(head: string): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(head));
  return base62(bytes, CHECK_LENGTH);
}

function base62(bytes: Uint8Array, length: number): string {
  let rest = BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  let text = '';
  while (rest > 0n) {
    text = ALPHABET[Number(rest % BASE)] + text;
    rest /= BASE;
  }
  return text.padStart(length, '0');
}
