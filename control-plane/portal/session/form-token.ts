import { createHmac } from 'node:crypto';

export const CSRF_FIELD = 'csrf';

/**
 * 43 characters. Binds a form to the account of its page.
 * @param secret the cookie's value
 * @param accountId absent: a form of a visitor, or of the operator
 */
export function csrfTokenOf(secret: string, accountId?: string): string {
  const form = `a form of the account area${accountId === undefined ? '' : ` for ${accountId}`}`;
  return createHmac('sha256', secret).update(form).digest('base64url');
}
