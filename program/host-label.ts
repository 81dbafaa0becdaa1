import { createHash } from 'node:crypto';
import { hostname } from 'node:os';

const HASH_DIGITS = 12;

/**
 * The host's name in A-Z, a-z, 0-9, ".", "_" and "-". A longer name, or one with other characters,
 * ends with a hash of the whole: names of a set's pods may differ only at the end.
 */
export function hostLabel(lengthMax: number, name = hostname()): string {
  const plain = name.replaceAll(/[^A-Za-z0-9._-]/g, '-');
  if (plain === name && plain.length <= lengthMax) return name;
  const hash = createHash('sha256').update(name).digest('hex').slice(0, HASH_DIGITS);
  return `${plain.slice(0, lengthMax - HASH_DIGITS - 1)}-${hash}`;
}
