import { readFileSync } from 'node:fs';

/** A problem of the machine, not of the program. */
class ListenError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'ListenError';
  }
}

interface ListenAddress {
  readonly variable: string;
  readonly host: string;
  readonly port: number;
}

/** @throws ListenError instead of `listen`'s error */
export async function listening<T>(address: ListenAddress, listen: () => Promise<T>): Promise<T> {
  const { variable, host, port } = address;
  try {
    return await listen();
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    // grpc-js has no code, only the system's text.
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

/** Node raises the soft limit to the hard one, so they are equal. */
const LIMIT = /^Max open files\s+(\d+)\s/m;

/** @returns the limit of this process; undefined: unknown */
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
 * Keeps a port's connections within the limit of open files.
 * @param share fraction of the limit
 */
export function connectionsWithin(
  wanted: number,
  share: number,
  filesMax = openFilesMax() ?? Number.POSITIVE_INFINITY,
): number {
  return Math.max(1, Math.min(wanted, Math.floor(filesMax * share)));
}
