/** The Idempotency-Key: the same bytes with the same options are charged once. */
import { createHash } from 'node:crypto';
import type { RemoveOptions } from './options.ts';

/** Change it together with a key's content. */
const KEY_VERSION = 1;

/** @param sha256 of the file, hexadecimal */
export function keyOf(
  sha256: string,
  { fieldsText, run }: Pick<RemoveOptions, 'fieldsText' | 'run'>,
): string {
  const content = JSON.stringify([KEY_VERSION, sha256, run, fieldsText]);
  return `remove-${createHash('sha256').update(content).digest('hex')}`;
}
