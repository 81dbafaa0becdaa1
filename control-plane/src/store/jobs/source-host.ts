/** The host of an image_url as the jobs table keeps it: comparable, and not the URL's text. */
import { createHash } from 'node:crypto';
import { destinationOf } from '../../domain/url-destination.ts';

/** 128 bits: two hosts with the same hash cannot be found. */
export const SOURCE_HOST_LENGTH = 32;

/** Hexadecimal; the same for every URL of one host and port. */
export function sourceHostOf(imageUrl: string): string {
  const hash = createHash('sha256').update(destinationOf(imageUrl)).digest('hex');
  return hash.slice(0, SOURCE_HOST_LENGTH);
}
