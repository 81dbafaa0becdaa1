/** The secrets of cookies and links: 256 random bits. */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

const SECRET_BYTES = 32;
const SECRET = /^[A-Za-z0-9_-]{43}$/;

export function createSecret(): string {
  return randomBytes(SECRET_BYTES).toString('base64url');
}

export function isSecret(text: string): boolean {
  return SECRET.test(text);
}

/** The SHA-256 in hexadecimal. The database stores only this of a secret. */
export function hashOfSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** Takes constant time for texts of one length. */
export function isSameText(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
