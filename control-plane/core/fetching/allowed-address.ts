/** Addresses that callers' URLs may reach: public ones, and the operator's exceptions. */
import { BlockList, isIP } from 'node:net';
import { isPublicAddress } from './public-address.ts';

export interface AddressPolicy {
  /** For tests and trusted networks: any address. */
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

/** True for a literal inside one of the operator's networks. */
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

/** True for a literal that is public, or allowed by the operator. */
export function isOpenAddress(address: string, policy: AddressPolicy): boolean {
  return isPublicAddress(address) || isAllowedNetwork(address, policy);
}
