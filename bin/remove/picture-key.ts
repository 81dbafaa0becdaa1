/** The Idempotency-Key of a picture: the same bytes, asked for the same, are paid once. */
import { createHash } from 'node:crypto';
import type { RemoveOptions } from './options.ts';

/** Changes with what goes into a key. */
const KEY_VERSION = 1;

/** @param sha256 of the file, hexadecimal. */
export function keyOf(
  sha256: string,
  { fields, run }: Pick<RemoveOptions, 'fields' | 'run'>,
): string {
  const asked = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const content = JSON.stringify([KEY_VERSION, sha256, run, asked]);
  return `remove-${createHash('sha256').update(content).digest('hex')}`;
}
