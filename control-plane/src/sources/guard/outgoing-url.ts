/**
 * What the text of a URL shows of where it leads, before a name is resolved. Every URL this service
 * requests for somebody else passes here, on submission and on every redirect.
 */
import { isIP } from 'node:net';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { type AddressPolicy, isOpenAddress } from './allowed-address.ts';

/** allowPrivateAddresses opens any port too. */
export interface OutgoingPolicy extends AddressPolicy {
  /** The only ports that are requested, those of http and https to be named too. */
  readonly fetchPorts: readonly number[];
}

/** The URL or an address it leads to is not to be requested. The message is fit for callers. */
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

/** Names that lead inside, by RFC 6761, 6762, 8375 and 9476 or by habit. */
const INSIDE_SUFFIXES = [
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

function leadsInside(host: string): boolean {
  // A name without a dot is completed by the resolver's search list.
  if (!host.includes('.')) return true;
  return INSIDE_SUFFIXES.some(suffix => host.endsWith(`.${suffix}`));
}

function requirePort(url: URL, policy: OutgoingPolicy): void {
  const port = url.port === '' ? DEFAULT_PORTS.get(url.protocol) : Number(url.port);
  if (port !== undefined && policy.fetchPorts.includes(port)) return;
  throw new ForbiddenUrlError(`the port is not one of ${policy.fetchPorts.join(', ')}`);
}

/**
 * A literal must be public, a name must not lead inside. Where the operator allowed networks a name
 * may: its addresses decide then, which are checked before any is connected to.
 * @param host of hostOf
 */
export function requirePublicHost(host: string, policy: AddressPolicy): void {
  if (policy.allowPrivateAddresses) return;
  const insideNames = (policy.allowedNetworks ?? []).length > 0;
  const isOpen = isIP(host) === 0 ? insideNames || !leadsInside(host) : isOpenAddress(host, policy);
  if (!isOpen) throw new ForbiddenUrlError('the host is not a public address');
}

/**
 * Parses once; the object, never the text, is used from here on. Throws ForbiddenUrlError.
 * @param base the URL that redirected, for a relative Location
 */
export function requireOutgoingUrl(text: string, policy: OutgoingPolicy, base?: URL): URL {
  if (text.length > URL_LENGTH_MAX) {
    throw new ForbiddenUrlError(`the URL is over ${URL_LENGTH_MAX} characters`);
  }
  const url = URL.parse(text, base?.href);
  if (url === null) throw new ForbiddenUrlError('the text is no URL');
  if (!DEFAULT_PORTS.has(url.protocol)) {
    throw new ForbiddenUrlError('only http and https are requested');
  }
  if (url.username !== '' || url.password !== '') {
    throw new ForbiddenUrlError('a user name or password in the URL is not taken');
  }
  const host = hostOf(url);
  if (host === '') throw new ForbiddenUrlError('the URL has no host');
  if (!policy.allowPrivateAddresses) requirePort(url, policy);
  requirePublicHost(host, policy);
  return url;
}
