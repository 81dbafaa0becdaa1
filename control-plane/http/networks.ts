import { BlockList, isIP } from 'node:net';
import { canonicalIpv6, ipv6Groups, mappedIpv4 } from '@matting/program/ports/addresses.ts';

const BITS = { 4: 32, 6: 128 } as const;

/**
 * `10.1.0.0/16`, `2001:db8::/32` or a single address, in the stored form with its prefix.
 * undefined: not a network, or its address has bits after the prefix.
 */
export function parseExactNetwork(text: string): string | undefined {
  const [, address = '', digits] = /^([^/%]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  // Callers' addresses are compared as IPv4, so a mapped network would match nobody.
  if ((family !== 4 && family !== 6) || /^::ffff:/i.test(address)) return undefined;
  const prefix = digits === undefined ? BITS[family] : Number(digits);
  if (prefix > BITS[family]) return undefined;
  const hostBits = (1n << BigInt(BITS[family] - prefix)) - 1n;
  const bits = family === 4 ? ipv4Bits(address) : ipv6Bits(address);
  return (bits & hostBits) === 0n ? `${canonical(address)}/${prefix}` : undefined;
}

function canonical(address: string): string {
  return isIP(address) === 4 ? address : canonicalIpv6(address);
}

function ipv4Bits(address: string): bigint {
  return address.split('.').reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
}

function ipv6Bits(address: string): bigint {
  return ipv6Groups(address).reduce((bits, group) => (bits << 16n) | BigInt(`0x${group}`), 0n);
}

/** @param networks as parseExactNetwork writes them */
export function isIpInNetworks(address: string, networks: readonly string[]): boolean {
  return isInNetworks(mappedIpv4(address) ?? address.replace(/%.*$/, ''), networks);
}

/** False for an address with a zone. @param networks CIDR blocks */
export function isInNetworks(address: string, networks: readonly string[]): boolean {
  if (address.includes('%') || isIP(address) === 0) return false;
  const list = new BlockList();
  for (const network of networks) {
    const [net = '', prefix] = network.split('/');
    list.addSubnet(net, Number(prefix), isIP(net) === 4 ? 'ipv4' : 'ipv6');
  }
  return list.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6');
}
