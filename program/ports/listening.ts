/** Listening on a port: why it fails, in one line, and how many connections there are files for. */
import { readFileSync } from 'node:fs';

/** A fault of the machine, not of the program. */
class ListenError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'ListenError';
  }
}

interface ListenAddress {
  /** The variable that sets the port. */
  readonly variable: string;
  readonly host: string;
  readonly port: number;
}

/** @throws ListenError in place of whatever `listen` rejects with. */
export async function listening<T>(place: ListenAddress, listen: () => Promise<T>): Promise<T> {
  const { variable, host, port } = place;
  try {
    return await listen();
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    // grpc-js gives no code, only the text of the error beneath.
    if (message.includes('EADDRINUSE')) {
      const what = `port ${port} of ${host} is in use`;
      const advice = `stop what listens there or set ${variable} to a free port`;
      throw new ListenError(`${what}: ${advice}`, error);
    }
    const reason = /E[A-Z]{3,}/.exec(message)?.[0] ?? message;
    const advice = `set ${variable} or its host to another`;
    throw new ListenError(`cannot listen on ${host}:${port} (${reason}): ${advice}`, error);
  }
}

/** Node raises the soft limit to the hard one as it starts, so both are one number. */
const LIMIT = /^Max open files\s+(\d+)\s/m;

/** How many files and sockets this process may have open; undefined: no limit is known. */
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
 * Bounds a port's connections by the files there are: without it no newcomer would find one.
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
