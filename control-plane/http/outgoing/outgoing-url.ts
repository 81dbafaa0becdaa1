/**
 * Which URLs and addresses this service requests for callers. Pure but for this machine's own.
 *
 * Which addresses are the public internet: an allow-list that fails closed. IPv4: all but the
 * special registries (RFC 6890 and its IANA registry). IPv6: global unicast 2000::/3 alone, less
 * the special registries inside it; so mapped, compatible, NAT64, 6to4 and Teredo forms need no
 * parsing of what they embed.
 */

import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { hostOf, isPrivateName } from '@matting/program/ports/addresses.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';

const SPECIAL_IPV4: readonly (readonly [net: string, prefix: number])[] = [
  ['0.0.0.0', 8], // this network
  ['10.0.0.0', 8], // private
  ['100.64.0.0', 10], // carrier-grade NAT
  ['127.0.0.0', 8], // loopback
  ['169.254.0.0', 16], // link-local, and the clouds' metadata
  ['172.16.0.0', 12], // private
  ['192.0.0.0', 24], // protocol assignments
  ['192.0.2.0', 24], // documentation
  ['192.88.99.0', 24], // 6to4 relays
  ['192.168.0.0', 16], // private
  ['198.18.0.0', 15], // benchmarks
  ['198.51.100.0', 24], // documentation
  ['203.0.113.0', 24], // documentation
  ['224.0.0.0', 4], // multicast
  ['240.0.0.0', 4], // reserved, broadcast
  ['168.63.129.16', 32], // Azure's host, in a public range
];

const SPECIAL_IPV6: readonly (readonly [net: string, prefix: number])[] = [
  ['2001::', 23], // protocol assignments: Teredo, ORCHID, benchmarks
  ['2001:db8::', 32], // documentation
  ['2002::', 16], // 6to4
  ['3fff::', 20], // documentation
];

const specialIpv4 = new BlockList();
for (const [net, prefix] of SPECIAL_IPV4) specialIpv4.addSubnet(net, prefix, 'ipv4');
const globalIpv6 = new BlockList();
globalIpv6.addSubnet('2000::', 3, 'ipv6');
const specialIpv6 = new BlockList();
for (const [net, prefix] of SPECIAL_IPV6) specialIpv6.addSubnet(net, prefix, 'ipv6');

/** @param address a literal in its usual spelling; anything else, zone ids too, is not public */
export function isPublicAddress(address: string): boolean {
  if (address.includes('%')) return false;
  switch (isIP(address)) {
    case 4:
      return !specialIpv4.check(address, 'ipv4');
    case 6:
      return globalIpv6.check(address, 'ipv6') && !specialIpv6.check(address, 'ipv6');
    default:
      return false;
  }
}

/* Addresses that callers' URLs may reach: public ones, and the operator's exceptions. */

interface AddressPolicy {
  /** Allows any address, for tests and trusted networks. */
  readonly allowPrivateAddresses: boolean;
  /** CIDR blocks of parseNetwork that may be reached though they are not public. */
  readonly allowedNetworks?: readonly string[];
}

const PREFIX_MAX = { 4: 32, 6: 128 } as const;

/** `10.1.0.0/16`, `fd00:1::/32`. Undefined for text of any other form. */
export function parseNetwork(text: string): string | undefined {
  const [, address = '', digits = ''] = /^([^/%]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address) as 0 | 4 | 6;
  if (family === 0 || Number(digits) > PREFIX_MAX[family]) return undefined;
  return `${address.toLowerCase()}/${Number(digits)}`;
}

export function isAllowedNetwork(address: string, { allowedNetworks }: AddressPolicy): boolean {
  const family = isIP(address);
  if (family === 0 || address.includes('%') || allowedNetworks === undefined) return false;
  const list = new BlockList();
  for (const network of allowedNetworks) {
    const [net = '', prefix] = network.split('/');
    list.addSubnet(net, Number(prefix), isIP(net) === 4 ? 'ipv4' : 'ipv6');
  }
  return list.check(address, family === 4 ? 'ipv4' : 'ipv6');
}

export function isOpenAddress(address: string, policy: AddressPolicy): boolean {
  return isPublicAddress(address) || isAllowedNetwork(address, policy);
}

export function interfaceAddresses(): Set<string> {
  const interfaces = Object.values(networkInterfaces()).flatMap(list => list ?? []);
  return new Set(interfaces.map(entry => entry.address));
}

/* Checks of a URL's text, before its name is resolved: at submission and on every redirect. */

/** allowPrivateAddresses opens any port too. */
export interface OutgoingPolicy extends AddressPolicy {
  /** The only ports that are requested, those of http and https to be named too. */
  readonly fetchPorts: readonly number[];
}

/** The URL or one of its addresses must not be requested. Callers may read the message. */
export class ForbiddenUrlError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ForbiddenUrlError';
  }
}

const DEFAULT_PORTS = new Map([
  ['http:', 80],
  ['https:', 443],
]);

export const NOT_PUBLIC = 'the host is not a public address';

/** RFC 6761: such a name is this machine, and no resolver is asked. */
export function isLocalhost(host: string): boolean {
  return host === 'localhost' || host.endsWith('.localhost');
}

function requirePort(url: URL, policy: OutgoingPolicy): void {
  const port = url.port === '' ? DEFAULT_PORTS.get(url.protocol) : Number(url.port);
  if (port !== undefined && policy.fetchPorts.includes(port)) return;
  throw new ForbiddenUrlError(`the port must be one of ${policy.fetchPorts.join(', ')}`);
}

/**
 * An address must be public, a name must not be one of a private network. Where the operator
 * allowed networks such names are taken: their addresses are checked before any connection.
 * @param host of hostOf
 */
export function requirePublicHost(host: string, policy: AddressPolicy): void {
  if (policy.allowPrivateAddresses) return;
  const privateNames = (policy.allowedNetworks ?? []).length > 0;
  const isOpen =
    isIP(host) === 0 ? privateNames || !isPrivateName(host) : isOpenAddress(host, policy);
  if (!isOpen) throw new ForbiddenUrlError(NOT_PUBLIC);
}

/**
 * Parses the text once; from here on only the URL object is used. Throws ForbiddenUrlError.
 * @param base the URL that redirected, for a relative Location
 */
export function requireOutgoingUrl(text: string, policy: OutgoingPolicy, base?: URL): URL {
  if (text.length > URL_LENGTH_MAX) {
    throw new ForbiddenUrlError(`it is over ${URL_LENGTH_MAX} characters`);
  }
  const url = URL.parse(text, base?.href);
  if (url === null) throw new ForbiddenUrlError('it is not an absolute URL');
  if (!DEFAULT_PORTS.has(url.protocol)) {
    throw new ForbiddenUrlError('the scheme must be http or https');
  }
  if (url.username !== '' || url.password !== '') {
    throw new ForbiddenUrlError('it must have no user name or password');
  }
  const host = hostOf(url);
  if (host === '') throw new ForbiddenUrlError('it has no host');
  // The host first: another port would not help where that is refused.
  requirePublicHost(host, policy);
  if (!policy.allowPrivateAddresses) requirePort(url, policy);
  return url;
}

/* Checks of a callback_url's text: at submission and again before each delivery. */

export interface CallbackPolicy {
  readonly allowHttpCallbacks: boolean;
}

/** Up to the "@" in front of the host: the parser drops an empty user name without a trace. */
const USERINFO = /^ *https?:[/\\]*[^/\\?#]*@/i;
const CONTROL_CHARACTER = /\p{Cc}/u;

/** The mistake in the text, to follow "callback_url: ". Undefined: there is none. */
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

/** Longer than any name of the DNS. */
const DESTINATION_LENGTH_MAX = 300;

/** `<host>:<port>` of a URL that was accepted; empty where the text is none. Pure. */
export function destinationOf(text: string): string {
  const url = URL.parse(text);
  if (url === null) return '';
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.hostname.replace(/\.$/, '')}:${port}`.slice(0, DESTINATION_LENGTH_MAX);
}
