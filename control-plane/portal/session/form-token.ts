import { createHmac } from 'node:crypto';

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
