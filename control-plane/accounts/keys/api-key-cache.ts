/**
 * A cache of API keys' rows. A key has one secret, or two during a rotation. A fresh entry answers
 * a valid secret without a statement. Any other well-formed text reads the row, because a new
 * secret is in no cache.
 */

import { type Database, query } from '@matting/database/database.ts';
import { keepStatement } from '@matting/database/statements.ts';
import { forgetOldest } from '@matting/program/caches.ts';
import type { InferResult } from 'kysely';
import { hashSecret, parseApiKeyToken, secretMatches } from './api-key-token.ts';
import type { KeyPolicy } from './key-policy.ts';
import { POLICY_COLUMNS, policyFromRow } from './policy-columns.ts';

export interface ApiKeyOwner {
  readonly apiKeyId: string;
  readonly accountId: string;
  /** Absent: the key may do all that its account may. */
  readonly policy?: KeyPolicy;
  readonly byPreviousSecret?: true;
}

interface EndedSecret {
  /** expired: the whole key. replaced: a rotation ended this secret. */
  readonly kind: 'expired' | 'replaced';
  readonly atMs: number;
}

export type Authentication = ApiKeyOwner | EndedSecret | 'malformed' | 'unknown';

interface RecalledOwner {
  readonly owner: ApiKeyOwner;
  readonly isFresh: boolean;
}

/** Callers poll ten times a second. A revocation reaches every replica within twice this time. */
export const API_KEY_CACHE_MS = 500;
/** Bounds cached keys and recorded uses. At the bound the oldest goes. */
export const API_KEYS_CACHED_MAX = 10_000;
/** A comparison with it hides that a key has only one secret. */
const NO_SECRET = hashSecret('');

interface Secret {
  readonly hash: string;
  readonly owner: ApiKeyOwner | EndedSecret;
}

interface CachedKey {
  /** The current secret and the one before it; empty: no such key. */
  readonly secrets: readonly Secret[];
  /** By performance.now(): when the entry becomes stale or a secret expires. */
  readonly freshUntilMs: number;
}

const UNKNOWN: CachedKey = { secrets: [], freshUntilMs: 0 };

export class ApiKeyCache {
  readonly #database: Database;
  /** Valid keys in the order of their reads. A stale entry still names the account. */
  readonly #cached = new Map<string, CachedKey>();

  constructor(database: Database) {
    this.#database = database;
  }

  readonly authenticate = async (token: string): Promise<Authentication> => {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const recalled = this.recall(token);
    if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;
    return ownerOfSecret(await this.#read(parsed.id), parsed.secret) ?? 'unknown';
  };

  readonly recall = (token: string): RecalledOwner | 'malformed' | undefined => {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const key = this.#cached.get(parsed.id);
    if (key === undefined) return undefined;
    const owner = ownerOfSecret(key, parsed.secret);
    if (owner === undefined || 'kind' in owner) return undefined;
    return { owner, isFresh: performance.now() < key.freshUntilMs };
  };

  /** The next request with the key reads its row. */
  forget(apiKeyId: string): void {
    this.#cached.delete(apiKeyId);
  }

  async #read(id: string): Promise<CachedKey> {
    let startedMs = 0;
    const { rows } = await query(this.#database, db => {
      startedMs = performance.now();
      return db.executeQuery(IN_USE(this.#database, { id }));
    });
    const [row] = rows;
    // Moves the key to the end of the eviction order.
    this.#cached.delete(id);
    if (row === undefined) return UNKNOWN;
    const key = cachedKeyFromRow(id, row, startedMs);
    if (key.freshUntilMs <= startedMs) return key;
    this.#cached.set(id, key);
    forgetOldest(this.#cached, API_KEYS_CACHED_MAX);
    return key;
  }
}

const selectInUse = ({ kysely, nowMs }: Database, { id }: { id: string }) =>
  kysely
    .selectFrom('api_keys')
    .select(['account_id', 'secret_hash', 'expires_at'])
    .select(['previous_secret_hash', 'previous_expires_at'])
    .select(POLICY_COLUMNS)
    .select(nowMs.as('read_at'))
    .where('id', '=', id)
    .where('revoked_at', 'is', null)
    .where('purpose', 'is', null);
const IN_USE = keepStatement(selectInUse);
type KeyRow = InferResult<ReturnType<typeof selectInUse>>[number];

/** @param startedMs performance.now() before the row was read */
function cachedKeyFromRow(id: string, row: KeyRow, startedMs: number): CachedKey {
  const policy = policyFromRow(row);
  const hasPolicy = Object.keys(policy).length > 0;
  const owner: ApiKeyOwner = {
    apiKeyId: id,
    accountId: row.account_id,
    ...(hasPolicy ? { policy } : {}),
  };
  const leftMs = (row.expires_at ?? Number.POSITIVE_INFINITY) - row.read_at;
  const previousLeftMs = (row.previous_expires_at ?? 0) - row.read_at;
  const expired: EndedSecret = { kind: 'expired', atMs: row.expires_at ?? 0 };
  const replaced: EndedSecret = { kind: 'replaced', atMs: row.previous_expires_at ?? 0 };
  const ofPrevious: ApiKeyOwner | EndedSecret =
    previousLeftMs > 0 ? { ...owner, byPreviousSecret: true } : replaced;
  const secrets: Secret[] = [{ hash: row.secret_hash, owner: leftMs > 0 ? owner : expired }];
  if (row.previous_secret_hash !== null) {
    const previousOwner = leftMs > 0 || previousLeftMs <= 0 ? ofPrevious : expired;
    secrets.push({ hash: row.previous_secret_hash, owner: previousOwner });
  }
  const previousMs = previousLeftMs > 0 ? previousLeftMs : API_KEY_CACHE_MS;
  const trustedMs = Math.min(API_KEY_CACHE_MS, leftMs, previousMs);
  return { secrets, freshUntilMs: startedMs + trustedMs };
}

/** Always makes two comparisons, so the time is constant. */
function ownerOfSecret(key: CachedKey, secret: string): ApiKeyOwner | EndedSecret | undefined {
  const [current, previous] = key.secrets;
  const isCurrent = secretMatches(secret, current?.hash ?? NO_SECRET);
  const isPrevious = secretMatches(secret, previous?.hash ?? NO_SECRET);
  if (isCurrent) return current?.owner;
  return isPrevious ? previous?.owner : undefined;
}
