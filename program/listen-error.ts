/**
 * A port that cannot be listened on, told in one line: a fault of the machine, not of the program.
 */

export class ListenError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'ListenError';
  }
}

export interface ListenPlace {
  /** The variable that sets the port. */
  readonly variable: string;
  readonly host: string;
  readonly port: number;
}

/** @throws ListenError in place of whatever `listen` rejects with. */
export async function listening<T>(place: ListenPlace, listen: () => Promise<T>): Promise<T> {
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
