/** Checks of a callback_url's text: at submission and again before each delivery. */
import { URL_LENGTH_MAX } from '#contract/limits.ts';

export interface CallbackPolicy {
  readonly allowHttpCallbacks: boolean;
}

/** Up to the "@" in front of the host: the parser drops an empty user name without a trace. */
const USERINFO = /^ *https?:[/\\]*[^/\\?#]*@/i;
const CONTROL_CHARACTER = /\p{Cc}/u;

/** What is wrong with the text, to follow "callback_url: ". Undefined: nothing. */
export function wrongWithCallbackUrl(
  text: string,
  { allowHttpCallbacks }: CallbackPolicy,
): string | undefined {
  if (text.length > URL_LENGTH_MAX) return `must be at most ${URL_LENGTH_MAX} characters`;
  const url = CONTROL_CHARACTER.test(text) ? null : URL.parse(text);
  const schemes = allowHttpCallbacks ? ['https:', 'http:'] : ['https:'];
  if (url === null || !schemes.includes(url.protocol)) {
    return `must be an absolute URL of the scheme ${schemes.join(' or ')}`;
  }
  if (USERINFO.test(text)) return 'must have no user name or password';
  // An empty fragment leaves no trace in url.hash.
  if (text.includes('#')) return 'must have no fragment';
  return undefined;
}
