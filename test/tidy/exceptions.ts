/**
 * What does not keep a rule yet. These lists may only shrink: nothing is added, no number rises,
 * and the test fails when an entry is no longer needed.
 */

/** Most lines of the functions that are over the limit, by file and name. */
export const LONG_FUNCTIONS: Readonly<Record<string, number>> = {
  'inference-node/kernels/foreground.ts relax': 71,
};

/** Most lines of the files that are over the limit. */
export const LONG_FILES: Readonly<Record<string, number>> = {};
