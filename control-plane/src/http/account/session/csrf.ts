/**
 * The token that a form goes with: made of the secret in the session's cookie, so that nothing is
 * stored, and no other site can know it, and over the account that the page was made for: a form
 * changes no other. A form before sign-in goes with the visitor's cookie.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';

export const CSRF_FIELD = 'csrf';

/**
 * 43 characters.
 * @param secret what the cookie holds
 * @param accountId absent: nobody is signed in
 */
export function csrfTokenOf(secret: string, accountId?: string): string {
  const form = `a form of the account area${accountId === undefined ? '' : ` for ${accountId}`}`;
  return createHmac('sha256', secret).update(form).digest('base64url');
}

export function isCsrfToken(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
