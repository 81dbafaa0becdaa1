/** One line for a person whose port cannot be listened on. */

/**
 * A fault of the machine the node was started on, not of the program: told in one line, no stack.
 */
export class ListenError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'ListenError';
  }
}

export function listenError(
  variable: string,
  host: string,
  port: number,
  cause: Error,
): ListenError {
  const where = `${host}:${port}`;
  // grpc-js gives no code, only the text of the error beneath.
  if (cause.message.includes('EADDRINUSE')) {
    const what = `port ${port} of ${host} is in use`;
    return new ListenError(
      `${what}: stop what listens there or set ${variable} to a free port`,
      cause,
    );
  }
  const reason = /E[A-Z]{3,}/.exec(cause.message)?.[0] ?? cause.message;
  return new ListenError(
    `cannot listen on ${where} (${reason}): set MATTING_HOST or ${variable}`,
    cause,
  );
}
