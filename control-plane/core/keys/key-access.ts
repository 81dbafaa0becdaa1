/** Whether an API key may do what it is used for, and what people ask of one, as they type it. */
import { BlockList, isIP } from 'node:net';
import { isName } from '../accounts/account-store.ts';
import { CREDITS_AMOUNT_MAX } from '../ledger/ledger.ts';
import {
  isKeyScope,
  KEY_EXPIRY_DAYS_MAX,
  KEY_RATE_MAX,
  KEY_SCOPES,
  type KeyPolicy,
  type KeyScope,
} from './key-policy.ts';

/** Networks of one key. */
export const KEY_NETWORKS_MAX = 32;

const BITS = { 4: 32, 6: 128 } as const;
/** An IPv4 address as a socket of both families shows it. */
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/**
 * `10.1.0.0/16`, `2001:db8::/32`, or an address alone: in the one way that it is stored, with its
 * prefix. Undefined: no network, or one whose address has bits behind its prefix.
 */
export function parseKeyNetwork(text: string): string | undefined {
  const [, address = '', digits] = /^([^/%]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  // Callers are compared as IPv4 then, so a network of this form would match nobody.
  if ((family !== 4 && family !== 6) || /^::ffff:/i.test(address)) return undefined;
  const prefix = digits === undefined ? BITS[family] : Number(digits);
  if (prefix > BITS[family]) return undefined;
  const behind = (1n << BigInt(BITS[family] - prefix)) - 1n;
  const bits = family === 4 ? ipv4Bits(address) : ipv6Bits(address);
  return (bits & behind) === 0n ? `${canonical(address)}/${prefix}` : undefined;
}

/** Why a key may not do what it is used for; undefined: it may. */
export function refusalOfKey(
  { scopes, networks }: KeyPolicy,
  scope: KeyScope,
  address: string,
): string | undefined {
  if (networks !== undefined && !isIpInNetworks(address, networks)) {
    return `the API key may not be used from ${address || 'an unknown address'}`;
  }
  if (scopes !== undefined && !scopes.includes(scope)) {
    return `the API key does not have the scope ${scope}`;
  }
  return undefined;
}

/** False for what is no address. @param networks as parseKeyNetwork writes them */
export function isIpInNetworks(address: string, networks: readonly string[]): boolean {
  const plain = MAPPED.exec(address)?.[1] ?? address.replace(/%.*$/, '');
  const family = isIP(plain);
  if (family === 0) return false;
  const list = new BlockList();
  for (const network of networks) {
    const [net = '', prefix] = network.split('/');
    list.addSubnet(net, Number(prefix), isIP(net) === 4 ? 'ipv4' : 'ipv6');
  }
  return list.check(plain, family === 4 ? 'ipv4' : 'ipv6');
}

/** IPv6 compressed and in lower case, as RFC 5952 has it. */
function canonical(address: string): string {
  return isIP(address) === 4 ? address : new URL(`http://[${address}]/`).hostname.slice(1, -1);
}

function ipv4Bits(address: string): bigint {
  return address.split('.').reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
}

function ipv6Bits(address: string): bigint {
  const [before = '', after] = canonical(address).split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0');
  return [...head, ...zeros, ...tail].reduce(
    (bits, part) => (bits << 16n) | BigInt(`0x${part}`),
    0n,
  );
}

/** In Unicode's composed form, without blanks around it. */
export function parseKeyName(text: string): string | undefined {
  const name = text.trim().normalize('NFC');
  return isName(name) ? name : undefined;
}

export const parseCapCredits = (text: string) => wholeIn(text, CREDITS_AMOUNT_MAX);
export const parseKeyRate = (text: string) => wholeIn(text, KEY_RATE_MAX);
export const parseExpiryDays = (text: string) => wholeIn(text, KEY_EXPIRY_DAYS_MAX);

/** In their order, each once; 'all' where every one is named. */
export function parseKeyScopes(names: readonly string[]): readonly KeyScope[] | 'all' | undefined {
  if (names.length === 0 || !names.every(isKeyScope)) return undefined;
  const scopes = KEY_SCOPES.filter(scope => names.includes(scope));
  return scopes.length === KEY_SCOPES.length ? 'all' : scopes;
}

/** Separated by blanks, commas or line ends; each once. An empty list is 'any'. */
export function parseKeyNetworks(
  text: string,
): { readonly networks: readonly string[] | 'any' } | { readonly wrong: string } {
  const words = text.split(/[\s,]+/).filter(word => word !== '');
  const networks = new Set<string>();
  for (const word of words) {
    const network = parseKeyNetwork(word);
    if (network === undefined || networks.size >= KEY_NETWORKS_MAX) return { wrong: word };
    networks.add(network);
  }
  return { networks: networks.size === 0 ? 'any' : [...networks] };
}

/** 1 to `max`, in digits. */
function wholeIn(text: string, max: number): number | undefined {
  const value = /^[0-9]{1,12}$/.test(text) ? Number(text) : 0;
  return value >= 1 && value <= max ? value : undefined;
}
