/** The host's name as part of another name, in which not every character may stand. */
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';

const HASH_DIGITS = 12;

/**
 * The name in A-Z, a-z, 0-9, ".", "_" and "-". If it is longer or has another character, its end is
 * a hash of the whole: pods of one set differ at the end of their names alone.
 */
export function hostLabel(lengthMax: number, name = hostname()): string {
  const plain = name.replaceAll(/[^A-Za-z0-9._-]/g, '-');
  if (plain === name && plain.length <= lengthMax) return name;
  const hash = createHash('sha256').update(name).digest('hex').slice(0, HASH_DIGITS);
  return `${plain.slice(0, lengthMax - HASH_DIGITS - 1)}-${hash}`;
}
