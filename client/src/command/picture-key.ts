/** The Idempotency-Key of a picture: the same bytes with the same options cost once. */
import { createHash } from 'node:crypto';
import type { RemoveOptions } from './options.ts';

/** Raise it if the parts of a key change. */
const KEY_VERSION = 1;

/** @param sha256 of the file, hexadecimal. */
export function keyOf(
  sha256: string,
  { asked, run }: Pick<RemoveOptions, 'asked' | 'run'>,
): string {
  const content = JSON.stringify([KEY_VERSION, sha256, run, asked]);
  return `remove-${createHash('sha256').update(content).digest('hex')}`;
}
