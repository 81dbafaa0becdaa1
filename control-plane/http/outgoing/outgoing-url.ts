/**
 * Checks the text of a URL that this service requests for a caller, before its name is resolved: at
 * submission and on every redirect.
 */

import { isIP } from 'node:net';
import { hostOf, isPrivateName } from '@matting/program/ports/addresses.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { type AddressPolicy, isOpenAddress } from './open-addresses.ts';

/** allowPrivateAddresses opens any port too. */
export interface OutgoingPolicy extends AddressPolicy {
  /** The only ports that are requested, those of http and https to be named too. */
  readonly fetchPorts: readonly number[];
  /** The operator's contact, for the owners of what is fetched. */
  readonly fetchContact?: string | undefined;
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

/** The text names the setting, and never its value. */
export const NOT_PUBLIC =
  'the host is not a public address. To allow it, the operator sets MATTING_ALLOWED_NETWORKS';

export const TOO_LONG = `it is over ${URL_LENGTH_MAX} characters`;

/** RFC 6761: such a name is this machine, and no resolver is asked. */
export function isLocalhost(host: string): boolean {
  return host === 'localhost' || host.endsWith('.localhost');
}

function requirePort(url: URL, policy: OutgoingPolicy): void {
  const port = url.port === '' ? DEFAULT_PORTS.get(url.protocol) : Number(url.port);
  if (port !== undefined && policy.fetchPorts.includes(port)) return;
  const wrong = `the port must be one of ${policy.fetchPorts.join(', ')}`;
  throw new ForbiddenUrlError(`${wrong}. To allow it, the operator sets MATTING_FETCH_PORTS`);
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
    throw new ForbiddenUrlError(TOO_LONG);
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

/** Longer than any name of the DNS. */
const DESTINATION_LENGTH_MAX = 300;

/** `<host>:<port>` of a URL that was accepted; empty where the text is none. Pure. */
export function destinationOf(text: string): string {
  const url = URL.parse(text);
  if (url === null) return '';
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.hostname.replace(/\.$/, '')}:${port}`.slice(0, DESTINATION_LENGTH_MAX);
}
