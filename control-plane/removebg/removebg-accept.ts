/**
 * What a client of remove.bg takes as its answer. JSON only where it asks for that and nothing else
 * will do: HTTP libraries send `application/json, text/plain, *\/*` of themselves, and the callers
 * of those write the answer to a file. Pure.
 */
import Negotiator from 'negotiator';

/** Browsers send 150 characters; a longer header is ignored. */
const ACCEPT_LENGTH_MAX = 1000;
const PICTURES = ['image/png', 'image/jpeg', 'image/webp', 'application/zip'];

/** @param header all Accept headers of the request, joined by commas */
export function wantsJson(header: string | undefined): boolean {
  if (header === undefined || header.length > ACCEPT_LENGTH_MAX) return false;
  const negotiator = new Negotiator({ headers: { accept: header } });
  if (negotiator.mediaTypes().includes('*/*')) return false;
  const [best] = negotiator.mediaTypes(['application/json', ...PICTURES]);
  return best === 'application/json';
}
