export interface EnvProblem {
  readonly variable: string;
  /** The text after "must be ". */
  readonly expected: string;
}

/** A `parse` throws it for an unusable value of the right form. The message follows "must be ". */
export class Unusable extends Error {
  override readonly name = 'Unusable';
}

/** Lists every problem. It must not contain a value of a variable. */
export class ConfigError extends Error {
  readonly problems: readonly EnvProblem[];

  constructor(problems: readonly EnvProblem[]) {
    const lines = problems.map(({ variable, expected }) => `  ${variable} must be ${expected}`);
    super(['the configuration is not valid:', ...lines].join('\n'));
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

/** EX_CONFIG of sysexits.h. */
export const CONFIG_EXIT_CODE = 78;

/** System errors that another start would meet again. */
const LASTING = new Set(['EACCES', 'EPERM', 'EROFS', 'ENOTDIR']);

/** @returns 78 if a setting names something unusable, else 1 */
export function startExitCode(error: unknown): number {
  for (let each = error; each instanceof Error; each = each.cause) {
    const { code } = each as NodeJS.ErrnoException;
    if (each instanceof ConfigError || LASTING.has(code ?? '')) return CONFIG_EXIT_CODE;
  }
  return 1;
}
