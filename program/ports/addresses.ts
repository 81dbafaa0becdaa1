import { isIPv6 } from 'node:net';

/** An IPv4 address on a dual-stack socket. */
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/** @returns undefined: the address is not an IPv4-mapped IPv6 address */
export function mappedIpv4(address: string): string | undefined {
  return MAPPED.exec(address)?.[1];
}

/**
 * @returns the address compressed and in lower case (RFC 5952)
 * @param address without a zone
 */
export function canonicalIpv6(address: string): string {
  return new URL(`http://[${address}]/`).hostname.slice(1, -1);
}

/**
 * @returns eight groups of 16 bits, in hexadecimal
 * @param address IPv6 without a zone
 */
export function ipv6Groups(address: string): string[] {
  const [before = [], after = []] = canonicalIpv6(address)
    .split('::')
    .map(part => part.split(':').filter(group => group !== ''));
  const zeros = Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after];
}

const NETWORK_GROUPS = 4;

/**
 * The network of one customer, for bounds by address: an IPv4 address, or the first 64 bits of an
 * IPv6 one. Returns other texts unchanged.
 */
export function networkOf(address: string): string {
  const mapped = mappedIpv4(address);
  if (mapped !== undefined) return mapped;
  const [plain = ''] = address.split('%');
  if (!isIPv6(plain)) return address;
  return ipv6Groups(plain).slice(0, NETWORK_GROUPS).join(':');
}

/** The URL by which this machine reaches a listener on that host. */
export function httpBaseOf(host: string, port: number): string {
  const dialled = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  return `http://${dialled.includes(':') ? `[${dialled}]` : dialled}:${port}`;
}

/** Whether only this machine reaches the host. Resolves no name but localhost. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** Private by RFC 6761, 6762, 8375 or 9476, or by habit. */
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

export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}

/**
 * Whether public resolvers cannot know the name.
 * @param host as hostOf returns it
 */
export function isPrivateName(host: string): boolean {
  // Resolvers add their search list to a name without a dot.
  if (!host.includes('.')) return true;
  return PRIVATE_SUFFIXES.some(suffix => host.endsWith(`.${suffix}`));
}
