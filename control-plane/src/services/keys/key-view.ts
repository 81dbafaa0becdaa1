/** An API key as programs read it. */

import { type CapPeriod, KEY_SCOPES, type KeyScope } from '../../domain/account/key-policy.ts';
import { isoTime } from '../../domain/time-format.ts';
import type { ApiKey } from '../../store/accounts/api-key-store.ts';

/** Nothing in it can be used as a key. Times are ISO 8601 UTC. */
export interface KeyView {
  /** The part of the key that is no secret. */
  readonly prefix: string;
  readonly name: string;
  readonly created_at: string;
  readonly revoked_at: string | null;
  readonly expires_at: string | null;
  readonly last_used_at: string | null;
  /** Set while an old secret goes on beside the new one. */
  readonly previous_secret_ends_at: string | null;
  readonly cap: {
    readonly credits: number;
    readonly period: CapPeriod;
    readonly used: number;
    readonly resets_at: string | null;
  } | null;
  readonly submissions_per_minute: number | null;
  readonly scopes: readonly KeyScope[];
  readonly networks: readonly string[] | null;
}

export function keyView(key: ApiKey): KeyView {
  const { cap, submissionsPerMinute, scopes, networks } = key.policy;
  return {
    prefix: key.prefix,
    name: key.name,
    created_at: isoTime(key.createdAtMs),
    revoked_at: isoTime(key.revokedAtMs),
    expires_at: isoTime(key.expiresAtMs),
    last_used_at: isoTime(key.lastUsedAtMs),
    previous_secret_ends_at: isoTime(key.previousSecret?.endsAtMs ?? null),
    cap:
      cap === undefined || key.capUse === null
        ? null
        : { ...cap, used: key.capUse.used, resets_at: isoTime(key.capUse.resetsAtMs) },
    submissions_per_minute: submissionsPerMinute ?? null,
    scopes: scopes ?? KEY_SCOPES,
    networks: networks ?? null,
  };
}
