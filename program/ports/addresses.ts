/** The network of an address or a host name, and who can reach it. */
import { isIPv6 } from 'node:net';

/** An IPv4 address as a socket of both families shows it. */
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/** Undefined: the text is no IPv4 address in the form of an IPv6 one. */
export function mappedIpv4(address: string): string | undefined {
  return MAPPED.exec(address)?.[1];
}

/** IPv6 compressed and in lower case, as RFC 5952 has it. @param address without a zone */
export function canonicalIpv6(address: string): string {
  return new URL(`http://[${address}]/`).hostname.slice(1, -1);
}

/** The eight groups of 16 bits, in hexadecimal digits. @param address an IPv6 one without a zone */
export function ipv6Groups(address: string): string[] {
  const [before = [], after = []] = canonicalIpv6(address)
    .split('::')
    .map(part => part.split(':').filter(group => group !== ''));
  const zeros = Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after];
}

/** Groups of 16 bits that one host has to itself. */
const NETWORK_GROUPS = 4;

/**
 * The network that bounds by address count, one customer's: an IPv4 address, or the first 64 bits
 * of an IPv6 one. What is no address is returned as it is.
 */
export function networkOf(address: string): string {
  const mapped = mappedIpv4(address);
  if (mapped !== undefined) return mapped;
  const [plain = ''] = address.split('%');
  if (!isIPv6(plain)) return address;
  return ipv6Groups(plain).slice(0, NETWORK_GROUPS).join(':');
}

/** Where this machine asks a listener on that host. */
export function httpBaseOf(host: string, port: number): string {
  const dialled = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  return `http://${dialled.includes(':') ? `[${dialled}]` : dialled}:${port}`;
}

/** Whether only this machine reaches a listener on that host. A name but localhost is not looked up. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** Names of private networks, by RFC 6761, 6762, 8375 and 9476 or by habit. */
const PRIVATE_SUFFIXES = [
  'localhost',
  'local',
  'internal',
  'intranet',
  'lan',
  'home.arpa',
  'corp',
  'home',
  'private',
  'alt',
];

/** The host as resolvers and sockets take it: no brackets, no trailing dot. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}

/** No public resolver answers for it. @param host of hostOf */
export function isPrivateName(host: string): boolean {
  // A name without a dot is completed by the resolver's search list.
  if (!host.includes('.')) return true;
  return PRIVATE_SUFFIXES.some(suffix => host.endsWith(`.${suffix}`));
}
