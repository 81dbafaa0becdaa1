/**
 * How many files and sockets this process may have open (RLIMIT_NOFILE), and what of them the
 * connections of a port may take: without a bound below it, no newcomer would find one.
 */
import { readFileSync } from 'node:fs';

/** Node raises the soft limit to the hard one as it starts, so both are one number. */
const LIMIT = /^Max open files\s+(\d+)\s/m;

/** Undefined where the system has no such file or no limit. */
export function openFilesMax(): number | undefined {
  try {
    const [, soft] = LIMIT.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * @param wanted connections where there are files enough
 * @param share fraction of all files that they may take
 */
export function connectionsWithin(
  wanted: number,
  share: number,
  filesMax = openFilesMax() ?? Number.POSITIVE_INFINITY,
): number {
  return Math.max(1, Math.min(wanted, Math.floor(filesMax * share)));
}
