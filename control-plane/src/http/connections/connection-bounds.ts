/** How many connections the ports for HTTP take: as many as are wanted, or the files there are. */
import { connectionsWithin } from '#program/open-files.ts';

/** Each may hold a few hundred KiB of buffers, and a file of its picture besides. */
const PUBLIC_MAX = 10_000;
const PUBLIC_SHARE = 0.5;
/** Scrapers and people. */
const OPERATOR_MAX = 128;
const OPERATOR_SHARE = 1 / 16;

export function publicConnectionsMax(filesMax?: number): number {
  return connectionsWithin(PUBLIC_MAX, PUBLIC_SHARE, filesMax);
}

export function operatorConnectionsMax(filesMax?: number): number {
  return connectionsWithin(OPERATOR_MAX, OPERATOR_SHARE, filesMax);
}
