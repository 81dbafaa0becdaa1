/**
 * The token that a form goes with: made of the secret in the session's cookie, so that nothing is
 * stored, and no other site can know it. A form before sign-in goes with the visitor's cookie.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';

export const CSRF_FIELD = 'csrf';
/** For requests of scripts whose body is no form. */
export const CSRF_HEADER = 'x-csrf-token';

/** 43 characters. @param secret what the cookie holds */
export function csrfTokenOf(secret: string): string {
  return createHmac('sha256', secret).update('a form of the account area').digest('base64url');
}

export function isCsrfToken(given: string | undefined, secret: string): boolean {
  const expected = Buffer.from(csrfTokenOf(secret));
  const shown = Buffer.from(given ?? '');
  return shown.length === expected.length && timingSafeEqual(shown, expected);
}
