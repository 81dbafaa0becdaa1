/** The environment as a whole, for commands that look at all of it: the CLI's only file to read it. */
import type { Environment } from '../../config.ts';

/** @param given undefined: the process's own. */
export function wholeEnvironment(given: Environment | undefined): Environment {
  return given ?? process.env;
}
