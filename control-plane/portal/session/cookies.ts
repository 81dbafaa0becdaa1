/**
 * The cookies of the account area. `__Host-` makes browsers take them from this host alone, over TLS
 * (or from this machine), for every path: no other host of the domain can plant one.
 *
 * | cookie  | holds                                             | until                        |
 * |---------|---------------------------------------------------|------------------------------|
 * | session | 256 random bits; the database has their hash      | sign-out, the bounds         |
 * | visitor | 256 random bits that forms before sign-in go with | sign-in, the browser's end   |
 * | device  | that a person signed in here with their password  | KNOWN_S after the last time  |
 * | flow    | what a sign-in at the identity provider began with | FLOW_S                      |
 *
 * A form goes with a token that is made of the secret in a cookie: nothing is stored, and no other
 * site can know it.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';

const NAMES = {
  session: '__Host-matting-session',
  visitor: '__Host-matting-visitor',
  device: '__Host-matting-device',
  flow: '__Host-matting-flow',
} as const;

export type CookieName = keyof typeof NAMES;

const SECRET_BYTES = 32;
const SECRET = /^[A-Za-z0-9_-]{43}$/;
/** Browsers keep 4096 bytes of a cookie. */
const VALUE_LENGTH_MAX = 2048;

/** 256 random bits, as a cookie or a link holds them. */
export function createSecret(): string {
  return randomBytes(SECRET_BYTES).toString('base64url');
}

export function isSecret(text: string): boolean {
  return SECRET.test(text);
}

/** Undefined: the browser sent none, or more than we ever set. */
export function readCookie(request: FastifyRequest, name: CookieName): string | undefined {
  const value = request.cookies[NAMES[name]];
  return value === undefined || value.length > VALUE_LENGTH_MAX ? undefined : value;
}

/** @param maxAgeS absent: until the browser ends */
export function setCookie(
  reply: FastifyReply,
  name: CookieName,
  value: string,
  maxAgeS?: number,
): void {
  reply.setCookie(NAMES[name], value, {
    path: '/',
    secure: true,
    httpOnly: true,
    sameSite: 'lax',
    ...(maxAgeS === undefined ? {} : { maxAge: maxAgeS }),
  });
}

export function clearCookie(reply: FastifyReply, name: CookieName): void {
  setCookie(reply, name, '', 0);
}

export const CSRF_FIELD = 'csrf';

/**
 * 43 characters. Over the account that the page was made for: its form changes no other.
 * @param secret what the cookie holds
 * @param accountId absent: the form of a visitor, or of the operator
 */
export function csrfTokenOf(secret: string, accountId?: string): string {
  const form = `a form of the account area${accountId === undefined ? '' : ` for ${accountId}`}`;
  return createHmac('sha256', secret).update(form).digest('base64url');
}

/** Compares as long for two texts that differ early as for two that differ late. */
export function isSameText(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
