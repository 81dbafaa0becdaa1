/**
 * All variables of the product (`make generate` lists them). A start uses them to find misspelt
 * ones; it ignores variables of other programs.
 */
import { editDistance } from './edit-distance.ts';
import names from './variable-names.json' with { type: 'json' };

const PREFIX = 'MATTING_';
/** The project's tests and benches use these. */
const OF_TESTS = /^MATTING_(TEST|CHAOS|BENCH|SOAK)_/;

export const MATTING_VARIABLES: readonly string[] = names;

/** Removed settings and their replacements. A start refuses them. */
export const LEFT_VARIABLES: Readonly<Record<string, string>> = {
  MATTING_DIRECT_STORAGE:
    'files of nodes go through the control planes (docs/scaling.md says how many a fleet needs)',
  MATTING_DIRECT_STORAGE_ENDPOINTS:
    'nodes no longer read from a bucket or write there, and need no way to it',
  MATTING_ENGINE_GOAL: 'MATTING_ENGINES with the number of cores makes most images a second',
  MATTING_FOREGROUND_ESTIMATION: 'nodes always do it; a caller by gRPC can switch it off',
  MATTING_LOG_SAMPLING:
    'failures that repeat are counted in any case; MATTING_LOG_LEVEL=warn leaves out the rest',
  MATTING_MODELS_FETCH:
    'MATTING_MODEL names what a node serves, MATTING_MODELS_OFFERED what is fetched beside it',
  MATTING_MODEL_IDLE_MS: 'MATTING_PROFILE=small unloads models that had no work for 5 minutes',
  MATTING_MODEL_INPUT_SIZE: 'a plan of your own has an inputSize (models/README.md)',
  MATTING_NODE_CALLER_IMAGES_MAX: 'a direct caller can use half of a node’s image slots',
  MATTING_NODE_CALLER_TOKENS:
    'MATTING_NODE_CALLER_TOKENS_FILE names a file with the same, name:token in each line',
  MATTING_NODE_MEGAPIXELS_MAX: 'MATTING_NODE_MEMORY_PERCENT is a node’s part of the memory',
  MATTING_NODE_TOKEN_ACCEPTED:
    'MATTING_NODE_TOKEN_FILE names a file with both tokens, one a line (docs/operate.md)',
  MATTING_OIDC_NAME: 'the button of the provider says SSO',
  MATTING_REFINEMENT: 'nodes always do it; a caller by gRPC can switch it off',
  MATTING_REMOVEBG_DEFAULT_SIZE:
    'a request of /v1.0 without a size has auto: let callers send size',
  MATTING_REMOVEBG_WAIT_MS:
    'requests of /v1.0 wait 18 s, or MATTING_SYNC_WAIT_MS if that is shorter',
  MATTING_SPOOL_DIR: 'TMPDIR names the directory of files on their way to a bucket',
};

/** Most edits between a known name and a misspelt one. */
const EDITS_MAX = 3;

function unknownVariables(env: Readonly<Record<string, string | undefined>>) {
  const known = new Set(MATTING_VARIABLES);
  return Object.keys(env)
    .filter(name => name.startsWith(PREFIX) && !known.has(name) && !OF_TESTS.test(name))
    .filter(name => !Object.hasOwn(LEFT_VARIABLES, name))
    .sort()
    .map(variable => ({ variable, suggestion: nearest(variable) }));
}

const SECRET_NAME = /^MATTING_.*(KEY|TOKEN|SECRET)/;
/** Placeholders from documentation and habit. */
const PLACEHOLDER =
  /change.?me|placeholder|example|password|secret|random.?token|hexadecimal|0123456789|abcdef0123|qwerty|letmein/i;

/** @returns log lines without values, which may be secret */
export function warnOfVariables(env: Readonly<Record<string, string | undefined>>): string[] {
  const placeholders = Object.keys(env).filter(
    name => SECRET_NAME.test(name) && !name.endsWith('_FILE') && PLACEHOLDER.test(env[name] ?? ''),
  );
  return [
    ...warnOfUnknownVariables(env),
    ...placeholders.map(name => `${name} contains a placeholder: take openssl rand -hex 32`),
  ];
}

function warnOfUnknownVariables(env: Readonly<Record<string, string | undefined>>): string[] {
  const unknown = unknownVariables(env);
  if (unknown.length === 0) return [];
  const names = unknown.map(({ variable, suggestion }) =>
    suggestion === undefined ? variable : `${variable} (${suggestion}?)`,
  );
  return [`variables that nothing reads: ${names.join(', ')}`];
}

function nearest(variable: string): string | undefined {
  const [near] = MATTING_VARIABLES.map(known => ({ known, edits: editDistance(variable, known) }))
    .filter(({ edits }) => edits <= EDITS_MAX)
    .sort((a, b) => a.edits - b.edits);
  return near?.known;
}
