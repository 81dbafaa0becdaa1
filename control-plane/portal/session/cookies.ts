/**
 * `__Host-` makes browsers take cookies from this host alone, over TLS (or from this machine), for
 * every path: no other host of the domain can plant one.
 *
 * | cookie  | holds                                             | until                        |
 * |---------|---------------------------------------------------|------------------------------|
 * | session | 256 random bits; the database has their hash      | sign-out, the bounds         |
 * | visitor | 256 random bits that forms before sign-in go with | sign-in, the browser's end   |
 * | device  | that a person signed in here with their password  | KNOWN_S after the last time  |
 * | flow    | what a sign-in at the identity provider began with | FLOW_S                      |
 */
import type { FastifyReply, FastifyRequest } from 'fastify';

const NAMES = {
  session: '__Host-matting-session',
  visitor: '__Host-matting-visitor',
  device: '__Host-matting-device',
  flow: '__Host-matting-flow',
} as const;

type CookieName = keyof typeof NAMES;

/** Browsers keep 4096 bytes of a cookie. */
const VALUE_LENGTH_MAX = 2048;

/** Undefined: the browser sent no such cookie, or a longer one than the service sets. */
export function readCookie(request: FastifyRequest, name: CookieName): string | undefined {
  const value = request.cookies[NAMES[name]];
  return value === undefined || value.length > VALUE_LENGTH_MAX ? undefined : value;
}

/** @param maxAgeS absent: the cookie lasts until the browser ends */
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
