/**
 * `__Host-` makes browsers accept cookies only from this host over TLS (or from this machine), for
 * every path, so that no other host of the domain can set one.
 *
 * | cookie  | holds                                              | until                        |
 * |---------|----------------------------------------------------|------------------------------|
 * | session | 256 random bits; the database has their hash       | sign-out, the bounds         |
 * | visitor | 256 random bits for the forms before sign-in       | sign-in, the browser's end   |
 * | device  | that a person signed in here with their password   | KNOWN_S after the last time  |
 * | flow    | the start of a sign-in at the identity provider    | FLOW_S                       |
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

export function readCookie(request: FastifyRequest, name: CookieName): string | undefined {
  const value = request.cookies[NAMES[name]];
  return value === undefined || value.length > VALUE_LENGTH_MAX ? undefined : value;
}

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
