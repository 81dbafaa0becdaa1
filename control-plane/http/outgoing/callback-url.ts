/** Checks a callback_url's text: at submission and again before each delivery. */

import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';

export interface CallbackPolicy {
  readonly allowHttpCallbacks: boolean;
}

/** Up to the "@" in front of the host: the parser drops an empty user name without a trace. */
const USERINFO = /^ *https?:[/\\]*[^/\\?#]*@/i;
const CONTROL_CHARACTER = /\p{Cc}/u;

/** The mistake in the text, to follow "callback_url: ". Undefined: there is none. */
export function wrongWithCallbackUrl(
  text: string,
  { allowHttpCallbacks }: CallbackPolicy,
): string | undefined {
  if (text.length > URL_LENGTH_MAX) return `must be at most ${URL_LENGTH_MAX} characters`;
  const url = CONTROL_CHARACTER.test(text) ? null : URL.parse(text);
  if (url?.protocol === 'http:' && !allowHttpCallbacks) {
    const own = 'MATTING_ALLOWED_NETWORKS for a receiver in its own network';
    return `must be https. To allow http, the operator sets MATTING_ALLOW_HTTP_CALLBACKS=true, and ${own}`;
  }
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    return `must be an absolute URL, such as https://example.com/hook`;
  }
  if (USERINFO.test(text)) return 'must have no user name or password';
  // An empty fragment leaves no trace in url.hash.
  if (text.includes('#')) return 'must have no fragment';
  return undefined;
}
