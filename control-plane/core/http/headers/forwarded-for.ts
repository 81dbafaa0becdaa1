/**
 * X-Forwarded-For as proxies write it, before anybody asks whose address a request has: some put a
 * port behind an address (Azure's gateways), some pass on whatever a caller wrote. With a port each
 * connection would be an address of its own, and no bound by address would hold.
 */
import { isIP } from 'node:net';
import type { FastifyRequest } from 'fastify';

/** What RFC 7239 calls an address that nobody names. No network has it. */
export const UNKNOWN_ADDRESS = 'unknown';
/** `203.0.113.9:4711`, `[2001:db8::1]:4711` and `[2001:db8::1]`. */
const WITH_PORT = /^(?:([\d.]+):\d{1,5}|\[([^\]]+)\](?::\d{1,5})?)$/;

/** The onRequest hook, ahead of all others. */
export function readForwardedFor(
  { raw: { headers } }: FastifyRequest,
  _reply: unknown,
  done: () => void,
): void {
  const given = headers['x-forwarded-for'];
  if (given !== undefined) headers['x-forwarded-for'] = addressesOf(String(given));
  done();
}

/** The same list of addresses alone. */
export function addressesOf(text: string): string {
  const entries = text.split(',').map(entry => entry.trim());
  return entries
    .filter(entry => entry !== '')
    .map(addressOf)
    .join(', ');
}

function addressOf(entry: string): string {
  const [, ipv4, ipv6] = WITH_PORT.exec(entry) ?? [];
  const address = ipv4 ?? ipv6 ?? entry;
  return isIP(address) === 0 ? UNKNOWN_ADDRESS : address;
}
