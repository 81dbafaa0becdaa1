/** Faults of a program's configuration: every variable at once, and none of its values. */

export interface EnvProblem {
  readonly variable: string;
  /** Reads on after "must be ". */
  readonly expected: string;
}

/** Thrown by a `parse` that knows more than its form. The message reads on after "must be ". */
export class Unusable extends Error {
  override readonly name = 'Unusable';
}

/** Thrown by `requireValid` with every problem found; main.ts prints its message and exits. */
export class ConfigError extends Error {
  readonly problems: readonly EnvProblem[];

  constructor(problems: readonly EnvProblem[]) {
    const lines = problems.map(({ variable, expected }) => `  ${variable} must be ${expected}`);
    super(['the configuration is not valid:', ...lines].join('\n'));
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

/** A program exits with it where a setting is wrong: EX_CONFIG of sysexits.h. */
export const CONFIG_EXIT_CODE = 78;

/** The system's refusals that another start meets as well: rights, a read-only file system, a file in a folder's place. */
const LASTING = new Set(['EACCES', 'EPERM', 'EROFS', 'ENOTDIR']);

/** 78 if the settings name something that cannot be used, else 1, as when a server is away. */
export function startExitCode(error: unknown): number {
  for (let each = error; each instanceof Error; each = each.cause) {
    const { code } = each as NodeJS.ErrnoException;
    if (each instanceof ConfigError || LASTING.has(code ?? '')) return CONFIG_EXIT_CODE;
  }
  return 1;
}
