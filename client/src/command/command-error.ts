/** Something whoever typed the command can mend; `message` says how, the codes are sysexits.h's. */
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
