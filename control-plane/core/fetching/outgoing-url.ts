/**
 * Checks of a URL's text, before its name is resolved. Every URL that this service requests for a
 * caller passes here, at submission and on every redirect.
 */

import { isIP } from 'node:net';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { type AddressPolicy, isOpenAddress } from './public-address.ts';

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

function isPrivateName(host: string): boolean {
  // A name without a dot is completed by the resolver's search list.
  if (!host.includes('.')) return true;
  return PRIVATE_SUFFIXES.some(suffix => host.endsWith(`.${suffix}`));
}

function requirePort(url: URL, policy: OutgoingPolicy): void {
  const port = url.port === '' ? DEFAULT_PORTS.get(url.protocol) : Number(url.port);
  if (port !== undefined && policy.fetchPorts.includes(port)) return;
  throw new ForbiddenUrlError(`the port is not one of ${policy.fetchPorts.join(', ')}`);
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
  if (!isOpen) throw new ForbiddenUrlError('the host is not a public address');
}

/**
 * Parses the text once; from here on only the URL object is used. Throws ForbiddenUrlError.
 * @param base the URL that redirected, for a relative Location
 */
export function requireOutgoingUrl(text: string, policy: OutgoingPolicy, base?: URL): URL {
  if (text.length > URL_LENGTH_MAX) {
    throw new ForbiddenUrlError(`the URL is over ${URL_LENGTH_MAX} characters`);
  }
  const url = URL.parse(text, base?.href);
  if (url === null) throw new ForbiddenUrlError('the text is not a URL');
  if (!DEFAULT_PORTS.has(url.protocol)) {
    throw new ForbiddenUrlError('only http and https are requested');
  }
  if (url.username !== '' || url.password !== '') {
    throw new ForbiddenUrlError('a user name or password in the URL is not accepted');
  }
  const host = hostOf(url);
  if (host === '') throw new ForbiddenUrlError('the URL has no host');
  if (!policy.allowPrivateAddresses) requirePort(url, policy);
  requirePublicHost(host, policy);
  return url;
}

/* Checks of a callback_url's text: at submission and again before each delivery. */

export interface CallbackPolicy {
  readonly allowHttpCallbacks: boolean;
}

/** Up to the "@" in front of the host: the parser drops an empty user name without a trace. */
const USERINFO = /^ *https?:[/\\]*[^/\\?#]*@/i;
const CONTROL_CHARACTER = /\p{Cc}/u;

/** What is wrong with the text, to follow "callback_url: ". Undefined: nothing. */
export function wrongWithCallbackUrl(
  text: string,
  { allowHttpCallbacks }: CallbackPolicy,
): string | undefined {
  if (text.length > URL_LENGTH_MAX) return `must be at most ${URL_LENGTH_MAX} characters`;
  const url = CONTROL_CHARACTER.test(text) ? null : URL.parse(text);
  const schemes = allowHttpCallbacks ? ['https:', 'http:'] : ['https:'];
  if (url === null || !schemes.includes(url.protocol)) {
    return `must be an absolute URL of the scheme ${schemes.join(' or ')}`;
  }
  if (USERINFO.test(text)) return 'must have no user name or password';
  // An empty fragment leaves no trace in url.hash.
  if (text.includes('#')) return 'must have no fragment';
  return undefined;
}

/** Where a URL leads: one host and port count as one destination of places. */

/** Longer than any name of the DNS. */
const DESTINATION_LENGTH_MAX = 300;

/** `<host>:<port>` of a URL that was accepted; empty where the text is none. Pure. */
export function destinationOf(text: string): string {
  const url = URL.parse(text);
  if (url === null) return '';
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.hostname.replace(/\.$/, '')}:${port}`.slice(0, DESTINATION_LENGTH_MAX);
}
