import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';

export interface CallbackPolicy {
  readonly allowHttpCallbacks: boolean;
}

/** Up to an "@" before the host. The URL parser drops an empty user name without a trace. */
const USERINFO = /^ *https?:[/\\]*[^/\\?#]*@/i;
const CONTROL_CHARACTER = /\p{Cc}/u;

/** Follows "callback_url: ". undefined: the URL is valid. */
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
