/** An account's API keys, without those of packages, for its people and the operator. */

import { isoTime } from '@matting/program/iso-time.ts';
import { isName } from '../account-store.ts';
import type { Actor } from '../audit-log.ts';
import type { ApiKeyStore } from './api-key-store.ts';
import type { KeyChange, NewKey } from './change-api-keys.ts';
import {
  KEY_SCOPES,
  KEYS_ALIVE_MAX,
  KEYS_EVER_MAX,
  ROTATION_OVERLAPS,
  type RotationOverlap,
} from './key-policy.ts';
import type { ApiKey, KeyCursor } from './read-api-keys.ts';

export type { ApiKey };

const KEYS_PAGE = 50;

export class ManageKeys {
  readonly #apiKeys: ApiKeyStore;

  constructor(apiKeys: ApiKeyStore) {
    this.#apiKeys = apiKeys;
  }

  /** Newest first, at most KEYS_PAGE. `next`: cursor of the next page. */
  async list(accountId: string, after?: KeyCursor) {
    const rows = await this.#apiKeys.listNewest(accountId, KEYS_PAGE + 1, after);
    const keys = rows.slice(0, KEYS_PAGE);
    return { keys, next: rows.length > KEYS_PAGE ? keys.at(-1) : undefined };
  }

  find(accountId: string, apiKeyId: string): Promise<ApiKey | undefined> {
    return this.#apiKeys.find(apiKeyId, accountId);
  }

  create(
    accountId: string,
    { name, ...settings }: NewKey & { readonly name: string },
    actor: Actor,
  ) {
    const bounds = { aliveMax: KEYS_ALIVE_MAX, everMax: KEYS_EVER_MAX };
    return this.#apiKeys.createBy(accountId, name, { ...settings, ...bounds, actor });
  }

  rotate(accountId: string, apiKeyId: string, overlap: RotationOverlap, actor: Actor) {
    const overlapMs = ROTATION_OVERLAPS[overlap];
    return this.#apiKeys.rotate(apiKeyId, { accountId, actor, overlapMs });
  }

  change(accountId: string, apiKeyId: string, change: KeyChange, actor: Actor) {
    return this.#apiKeys.change(apiKeyId, { accountId, actor }, change);
  }

  revoke(accountId: string, apiKeyId: string, actor: Actor): Promise<ApiKey | undefined> {
    return this.#apiKeys.revoke(apiKeyId, { accountId, actor });
  }

  /** Active keys whose latest secret this person created, oldest first. */
  async listMadeBy(accountId: string, userId: string): Promise<ApiKey[]> {
    const keys = await this.#apiKeys.list(accountId);
    return keys.filter(({ madeBy, state }) => madeBy === userId && state === 'active');
  }

  /**
   * Revokes all of `listMadeBy`. A second call continues after an interruption. False: there were
   * none.
   */
  async revokeMadeBy(accountId: string, userId: string, actor: Actor): Promise<boolean> {
    const keys = await this.listMadeBy(accountId, userId);
    for (const { id } of keys) await this.revoke(accountId, id, actor);
    return keys.length > 0;
  }
}

export function parseKeyName(text: string): string | undefined {
  const name = text.trim().normalize('NFC');
  return isName(name) ? name : undefined;
}

/** Contains no secret. Times are ISO 8601 UTC. */
export function keyView(key: ApiKey) {
  const { cap, submissionsPerMinute, scopes, networks, models } = key.policy;
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
    models: models ?? null,
  };
}
