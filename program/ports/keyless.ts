/**
 * Rights of a request without a key, by the address that it comes from or goes to: rembg's
 * interface where a key stands in, /metrics and /info. An address identifies a caller only if the
 * caller chose to send the request. Somebody else can lead two kinds of callers here:
 *
 * | who                                       | what it cannot hide                             |
 * |-------------------------------------------|-------------------------------------------------|
 * | a service like this one, which requests   | its User-Agent, which begins with OWN_AGENT     |
 * | the URLs of its callers                   |                                                 |
 * | a browser with a page whose own name      | that name, as Host                              |
 * | leads here (DNS rebinding)                |                                                 |
 *
 * OWN_AGENT is public. It takes rights away and gives none.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { hostOf, isPrivateName } from './addresses.ts';

/** Begins the User-Agent of every request that this service sends by itself. */
export const OWN_AGENT = 'matting-service/1';
/** Matches every version. */
const OF_SERVICES = /^\s*matting-service\b/i;
/** A host, and its port. */
const HOST = /^(\[[\da-f:.]+\]|[^\s:/\\@?#[\]]+)(?::\d{1,5})?$/i;

export function isSentByService({ 'user-agent': agent }: IncomingHttpHeaders): boolean {
  return OF_SERVICES.test(agent ?? '');
}

/**
 * Whether nobody else can have a page under that Host: an address, a private name or one of the
 * operator's own.
 * @param own hosts of hostOf
 */
export function isOwnHost(text: string, own: readonly string[]): boolean {
  const host = hostIn(text);
  return host !== undefined && (isIP(host) !== 0 || isPrivateName(host) || own.includes(host));
}

/** The host in a Host header or an address with a port. Undefined: the text has another form. */
export function hostIn(text: string): string | undefined {
  const url = HOST.test(text) ? URL.parse(`http://${text}`) : null;
  return url === null ? undefined : hostOf(url);
}
