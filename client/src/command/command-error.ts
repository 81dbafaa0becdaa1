/** An error that the user can fix. Exit codes are from sysexits.h. */
export class CommandError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode = 1) {
    super(message);
    this.name = 'CommandError';
    this.exitCode = exitCode;
  }
}

export const USAGE_EXIT_CODE = 64;
export const NO_INPUT_EXIT_CODE = 66;
export const CANNOT_CREATE_EXIT_CODE = 73;

export function misuse(message: string): CommandError {
  return new CommandError(message, USAGE_EXIT_CODE);
}
