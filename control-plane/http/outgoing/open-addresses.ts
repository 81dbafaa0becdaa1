/**
 * Addresses that callers' URLs may reach: public ones, and the operator's exceptions. IPv4: all but
 * the special registries (RFC 6890 and its IANA registry). IPv6: global unicast 2000::/3 without
 * its special registries. So mapped, compatible, NAT64, 6to4 and Teredo addresses need no parsing.
 */

import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { isInNetworks } from '../networks.ts';

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

/** False for any other text, also one with a zone id. */
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

export interface AddressPolicy {
  /** Allows any address, for tests and trusted networks. */
  readonly allowPrivateAddresses: boolean;
  /** CIDR blocks, as parseNetwork writes them. */
  readonly allowedNetworks?: readonly string[];
}

const PREFIX_MAX = { 4: 32, 6: 128 } as const;

/** `10.1.0.0/16`, `fd00:1::/32`. undefined: any other form. */
export function parseNetwork(text: string): string | undefined {
  const [, address = '', digits = ''] = /^([^/%]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address) as 0 | 4 | 6;
  if (family === 0 || Number(digits) > PREFIX_MAX[family]) return undefined;
  return `${address.toLowerCase()}/${Number(digits)}`;
}

export function isAllowedNetwork(
  address: string,
  { allowedNetworks = [] }: AddressPolicy,
): boolean {
  return isInNetworks(address, allowedNetworks);
}

export function isOpenAddress(address: string, policy: AddressPolicy): boolean {
  return isPublicAddress(address) || isAllowedNetwork(address, policy);
}

export function interfaceAddresses(): Set<string> {
  const interfaces = Object.values(networkInterfaces()).flatMap(list => list ?? []);
  return new Set(interfaces.map(entry => entry.address));
}
