/**
 * Every variable of the product, so that a misspelt one is told from one that another program
 * reads: an environment is often shared. A test holds the list equal to what the programs read.
 */

const PREFIX = 'MATTING_';
/** Read by the project's own tests and benches. */
const NOT_OURS = /^MATTING_(TEST|CHAOS|BENCH|SOAK)_/;

export const MATTING_VARIABLES: readonly string[] = [
  'MATTING_ACCOUNT_AREA',
  'MATTING_ACCOUNT_MAILS',
  'MATTING_ADDED_MODELS_DIR',
  'MATTING_ALLOWED_NETWORKS',
  'MATTING_ALLOW_HTTP_CALLBACKS',
  'MATTING_ALLOW_PRIVATE_ADDRESSES',
  'MATTING_API_KEY',
  'MATTING_ATTEMPT_TIMEOUT_MS',
  'MATTING_BASE_URL',
  'MATTING_BATCH_MAX',
  'MATTING_BRAND_COLOUR',
  'MATTING_BRAND_LOGO_FILE',
  'MATTING_BRAND_NAME',
  'MATTING_COMMERCIAL_USE',
  'MATTING_COMPAT',
  'MATTING_COMPAT_REMBG_ACCOUNT',
  'MATTING_DATABASE_URL',
  'MATTING_DATA_DIR',
  'MATTING_DIRECT_STORAGE',
  'MATTING_DIRECT_STORAGE_ENDPOINTS',
  'MATTING_ENGINES',
  'MATTING_ENGINE_GOAL',
  'MATTING_ENGINE_THREADS',
  'MATTING_EXECUTION_PROVIDER',
  'MATTING_FETCH_PORTS',
  'MATTING_FOREGROUND_ESTIMATION',
  'MATTING_GPU_DEVICES',
  'MATTING_HEIF',
  'MATTING_HOST',
  'MATTING_JOBS_IN_FLIGHT_MAX',
  'MATTING_JOB_RETENTION_DAYS',
  'MATTING_LOG_LEVEL',
  'MATTING_LOG_SAMPLING',
  'MATTING_MAIL_FROM',
  'MATTING_MCP',
  'MATTING_METRICS_HOST',
  'MATTING_METRICS_PORT',
  'MATTING_MODEL',
  'MATTING_MODEL_DIR',
  'MATTING_MODEL_IDLE_MS',
  'MATTING_MODEL_INPUT_SIZE',
  'MATTING_MODELS_FETCH',
  'MATTING_MODELS_OFFERED',
  'MATTING_NODES_MAX',
  'MATTING_NODES_MIN',
  'MATTING_NODES_ON_DEMAND',
  'MATTING_NODE_ADVERTISE_ADDRESS',
  'MATTING_NODE_CALLER_IMAGES_MAX',
  'MATTING_NODE_CALLER_TOKENS',
  'MATTING_NODE_HTTP_PORT',
  'MATTING_NODE_ID',
  'MATTING_NODE_MEGAPIXELS_MAX',
  'MATTING_NODE_PORT',
  'MATTING_NODE_TOKEN',
  'MATTING_NODE_TOKEN_ACCEPTED',
  'MATTING_NO_NODE_GRACE_MS',
  'MATTING_OIDC_CLIENT_ID',
  'MATTING_OIDC_CLIENT_SECRET',
  'MATTING_OIDC_GROUPS',
  'MATTING_OIDC_GROUPS_CLAIM',
  'MATTING_OIDC_ISSUER',
  'MATTING_OIDC_NAME',
  'MATTING_OIDC_SCOPES',
  'MATTING_OPERATOR_KEY',
  'MATTING_PAYMENT_INSTRUCTIONS',
  'MATTING_PAYMENT_SECRET',
  'MATTING_PICTURE_WORKERS',
  'MATTING_PLAYGROUND_IMAGES',
  'MATTING_PORT',
  'MATTING_PRECISION',
  'MATTING_PRICE_LIST',
  'MATTING_PROVIDER_DIR',
  'MATTING_QUALITY',
  'MATTING_QUEUE_MEGAPIXELS_MAX',
  'MATTING_QUEUE_WAIT_TARGET_S',
  'MATTING_READS_PER_MINUTE',
  'MATTING_READS_REQUIRE_IDEMPOTENCY_KEY',
  'MATTING_REFINEMENT',
  'MATTING_REGISTRY_ADDRESS',
  'MATTING_REGISTRY_HOST',
  'MATTING_REGISTRY_PORT',
  'MATTING_REMOVEBG_API',
  'MATTING_REMOVEBG_CORS',
  'MATTING_REMOVEBG_DEFAULT_SIZE',
  'MATTING_REMOVEBG_WAIT_MS',
  'MATTING_RESULT_DOWNLOADS',
  'MATTING_RESULT_TTL_MS',
  'MATTING_SECRETS_KEY',
  'MATTING_SECRETS_KEY_PREVIOUS',
  'MATTING_SMTP_URL',
  'MATTING_SPOOL_DIR',
  'MATTING_STORAGE_FALLBACK_URL',
  'MATTING_STORAGE_URL',
  'MATTING_SUBMISSIONS_PER_MINUTE',
  'MATTING_SYNC_WAIT_MS',
  'MATTING_TLS_CERT_FILE',
  'MATTING_TLS_CLIENT_CA_FILE',
  'MATTING_TLS_KEY_FILE',
  'MATTING_TLS_SERVER_CA_FILE',
  'MATTING_TLS_SERVER_NAME',
  'MATTING_TRUSTED_PROXIES',
  'MATTING_WEBHOOK_SCHEDULE_MS',
  'MATTING_WEIGHTS_DIR',
];

/** Edits that lead from what was meant to what was written, at most. */
const EDITS_MAX = 3;

export interface UnknownVariable {
  readonly variable: string;
  readonly meant: string | undefined;
}

/** Names that begin as ours do and that no program reads. Never a value: it may be a secret. */
export function unknownVariables(
  env: Readonly<Record<string, string | undefined>>,
): readonly UnknownVariable[] {
  const known = new Set(MATTING_VARIABLES);
  return Object.keys(env)
    .filter(name => name.startsWith(PREFIX) && !known.has(name) && !NOT_OURS.test(name))
    .sort()
    .map(variable => ({ variable, meant: nearest(variable) }));
}

/** One line for the log; undefined where every name is known. */
export function warnOfUnknownVariables(
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  const unknown = unknownVariables(env);
  if (unknown.length === 0) return undefined;
  const names = unknown.map(({ variable, meant }) =>
    meant === undefined ? variable : `${variable} (${meant}?)`,
  );
  return `variables that nothing reads: ${names.join(', ')}`;
}

function nearest(variable: string): string | undefined {
  let found: string | undefined;
  let editsMin = EDITS_MAX + 1;
  for (const known of MATTING_VARIABLES) {
    const edits = editDistance(variable, known);
    if (edits >= editsMin) continue;
    editsMin = edits;
    found = known;
  }
  return found;
}

/** Levenshtein's: letters put in, left out or replaced. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= to.length; j += 1) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[to.length]!;
}
