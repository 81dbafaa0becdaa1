/** The network of an address or a host name, and who can reach it. */
import { isIPv6 } from 'node:net';

/** An IPv4 address as a socket of both families shows it. */
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;
/** Groups of 16 bits that one host has to itself. */
const NETWORK_GROUPS = 4;

/**
 * The network that bounds by address count, one customer's: an IPv4 address, or the first 64 bits
 * of an IPv6 one. What is no address is returned as it is.
 */
export function networkOf(address: string): string {
  const mapped = MAPPED.exec(address);
  if (mapped !== null) return mapped[1]!;
  const [plain = ''] = address.split('%');
  if (!isIPv6(plain)) return address;
  // Writes the address in one form, since a proxy can use another.
  const compressed = new URL(`http://[${plain}]/`).hostname.slice(1, -1);
  const [head = '', tail] = compressed.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const between = tail === undefined ? 0 : Math.max(0, 8 - before.length - after.length);
  const groups = [...before, ...Array<string>(between).fill('0'), ...after];
  return groups.slice(0, NETWORK_GROUPS).join(':');
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
