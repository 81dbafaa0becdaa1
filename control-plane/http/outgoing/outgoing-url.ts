import { isIP } from 'node:net';
import { hostOf, isPrivateName } from '@matting/program/ports/addresses.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { type AddressPolicy, isOpenAddress } from './open-addresses.ts';

/** allowPrivateAddresses also allows any port. */
export interface OutgoingPolicy extends AddressPolicy {
  /** All allowed ports, including those of http and https. */
  readonly fetchPorts: readonly number[];
  /** Shown to the owners of fetched files. */
  readonly fetchContact?: string | undefined;
}

/** The message is safe for callers. */
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

export const NOT_PUBLIC =
  'the host is not a public address. To allow it, the operator sets MATTING_ALLOWED_NETWORKS';

export const TOO_LONG = `it is over ${URL_LENGTH_MAX} characters`;

/** RFC 6761: never resolved. */
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
 * If the operator allowed networks, private names pass: their addresses are checked before any
 * connection.
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
 * @param base the URL that redirected, for a relative Location
 * @throws ForbiddenUrlError
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
  // The host first: another port would not help a refused host.
  requirePublicHost(host, policy);
  if (!policy.allowPrivateAddresses) requirePort(url, policy);
  return url;
}

/** Longer than any DNS name. */
const DESTINATION_LENGTH_MAX = 300;

/** `<host>:<port>` of an accepted URL. Empty: not a URL. */
export function destinationOf(text: string): string {
  const url = URL.parse(text);
  if (url === null) return '';
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.hostname.replace(/\.$/, '')}:${port}`.slice(0, DESTINATION_LENGTH_MAX);
}
