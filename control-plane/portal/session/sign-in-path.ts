export const SIGN_IN_PATH = '/account/sign-in';

export function signInPathTo(back: string | undefined, path = SIGN_IN_PATH): string {
  return back === undefined ? path : `${path}?to=${encodeURIComponent(back)}`;
}

/** Only paths of the area in the characters of our own pages, never another host. */
const RETURN_PATH = /^\/account(?:\/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.:-]*)?$/;
const RETURN_LENGTH_MAX = 500;

export function returnPathOf(text: unknown): string | undefined {
  if (typeof text !== 'string' || text.length > RETURN_LENGTH_MAX) return undefined;
  return RETURN_PATH.test(text) && !text.startsWith(SIGN_IN_PATH) ? text : undefined;
}
