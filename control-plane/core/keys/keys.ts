/** Other packages use these of keys: what a key may do, its text, who calls by it. */
export { createApiKeyToken, hashSecret, publicPrefix } from './api-key-token.ts';
export type { Caller } from './caller.ts';
export {
  CAP_PERIODS,
  isCapPeriod,
  KEY_EXPIRY_PRESETS_DAYS,
  KEY_NETWORKS_MAX,
  KEY_RATE_MAX,
  KEY_SCOPES,
  type KeyPolicy,
  type KeyScope,
  parseCapCredits,
  parseKeyModels,
  parseKeyNetworks,
  parseKeyRate,
  parseKeyScopes,
  ROTATION_OVERLAPS,
  type RotationOverlap,
} from './key-policy.ts';
export { parseKeyName } from './manage-keys.ts';
export type { ApiKey } from './read-api-keys.ts';
