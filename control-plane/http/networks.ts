/** Networks as people type them (CIDR), and whether an address is in one. Pure. */
import { BlockList, isIP } from 'node:net';

const BITS = { 4: 32, 6: 128 } as const;

/**
 * `10.1.0.0/16`, `2001:db8::/32`, or an address alone: in the one way that it is stored, with its
 * prefix. Undefined: no network, or one whose address has bits behind its prefix.
 */
export function parseExactNetwork(text: string): string | undefined {
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

/** An IPv4 address as a socket of both families shows it. */
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/** False for what is no address. @param networks as parseExactNetwork writes them */
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
