/**
 * Rights without a key by the caller's address (rembg's interface, /metrics, /info). An address
 * identifies a caller only if the caller itself chose to send the request. Two kinds of callers can
 * be led here by others:
 *
 * | caller                                    | recognised by                                   |
 * |-------------------------------------------|-------------------------------------------------|
 * | a service like this one, which requests   | its User-Agent, which begins with OWN_AGENT     |
 * | the URLs of its callers                   |                                                 |
 * | a browser on a page whose name resolves   | that name, as Host                              |
 * | to us (DNS rebinding)                     |                                                 |
 *
 * OWN_AGENT is public: it removes rights and gives none.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { hostOf, isPrivateName } from './addresses.ts';

export const OWN_AGENT = 'matting-service/1';
/** Any version. */
const OF_SERVICES = /^\s*matting-service\b/i;
const HOST = /^(\[[\da-f:.]+\]|[^\s:/\\@?#[\]]+)(?::\d{1,5})?$/i;

export function isSentByService({ 'user-agent': agent }: IncomingHttpHeaders): boolean {
  return OF_SERVICES.test(agent ?? '');
}

/**
 * Nobody else can serve a page under this Host: an address, a private name, or the operator's own.
 * @param own as hostOf returns them
 */
export function isOwnHost(text: string, own: readonly string[]): boolean {
  const host = hostIn(text);
  return host !== undefined && (isIP(host) !== 0 || isPrivateName(host) || own.includes(host));
}

/** @returns the host of a Host header or of an address with a port; undefined: another form */
export function hostIn(text: string): string | undefined {
  const url = HOST.test(text) ? URL.parse(`http://${text}`) : null;
  return url === null ? undefined : hostOf(url);
}
