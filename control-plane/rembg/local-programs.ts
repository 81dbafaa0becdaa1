/**
 * Lets programs of this machine or a private network call without a key: a key that the operator
 * chose stands in. The address identifies the caller only if nobody stands between, so this refuses
 * requests
 * - that a proxy passed on;
 * - of browsers: a page of a stranger can reach private addresses, and by DNS rebinding it is even
 * of the same origin and can choose its User-Agent;
 * - of this service: a caller's image_url may name this interface.
 */
import type { CoreServices, CoreStores } from '@matting/core/package.ts';
import { isIpInNetworks } from '@matting/http/networks.ts';
import { hostOf } from '@matting/program/ports/addresses.ts';
import { isOwnHost, isSentByService } from '@matting/program/ports/keyless.ts';
import { noteRequestAccount, noteRequestSecret } from '@matting/program/request-owner.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyRequest } from 'fastify';

const LOOPBACK_AND_PRIVATE = [
  ...['127.0.0.0/8', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'],
  ...['::1/128', 'fc00::/7'],
];
const OF_PROXIES = /^(?:forwarded|via|x-real-ip|x-forwarded-.*)$/;
/**
 * Every browser sends it. Sec-Fetch-Site is not enough: over http browsers send it only to
 * loopback.
 */
const BROWSER = /^Mozilla\//;
const OF_BROWSERS = ['origin', 'referer', 'sec-fetch-site', 'sec-purpose', 'purpose'];

interface Entrance {
  readonly trustedProxies: readonly string[];
  readonly baseUrl: string;
}

/** @throws ContractError MISSING_API_KEY, with the reason why this request needs a key */
export function requireLocalProgram(
  { raw: { socket, headers } }: Pick<FastifyRequest, 'raw'>,
  { trustedProxies, baseUrl }: Entrance,
): void {
  const address = socket.remoteAddress ?? '';
  if (!isIpInNetworks(address, LOOPBACK_AND_PRIVATE)) {
    throw keyWanted('from an address that is not private');
  }
  const isPassedOn = Object.keys(headers).some(name => OF_PROXIES.test(name));
  if (isPassedOn || isIpInNetworks(address, trustedProxies)) throw keyWanted('through a proxy');
  const says = OF_BROWSERS.some(name => headers[name] !== undefined);
  if (says || BROWSER.test(headers['user-agent'] ?? '')) throw keyWanted('from a browser');
  if (isSentByService(headers)) throw keyWanted('that a service like this one sends');
  if (!isOwnHost(headers.host ?? '', [hostOf(new URL(baseUrl))])) {
    throw keyWanted('to a host name that is neither private nor that of MATTING_BASE_URL');
  }
}

function keyWanted(where: string): ContractError {
  const detail = `A request ${where} needs an API key. Send it as X-Api-Key.`;
  return new ContractError('MISSING_API_KEY', detail);
}

/** Stands for the key of a request that sent none. */
export const NO_KEY = '';

/** Reads the key's row each time, so its caps, scopes, models, networks and expiry hold. */
export function standingIn(
  authenticator: CoreServices['authenticator'],
  apiKeys: Pick<CoreStores['apiKeys'], 'find'>,
  keyId: string,
): CoreServices['authenticator'] {
  return {
    authenticate: async token => {
      if (token !== NO_KEY) return await authenticator.authenticate(token);
      noteRequestSecret(keyId);
      const key = await apiKeys.find(keyId);
      if (key === undefined || key.state === 'revoked') return 'unknown';
      const { accountId, policy, expiresAtMs } = key;
      noteRequestAccount(accountId);
      if (key.state === 'expired') return { kind: 'expired', atMs: expiresAtMs ?? 0 };
      return { apiKeyId: key.id, accountId, policy };
    },
  };
}
