/**
 * A cache of API keys' rows. A key has one secret, or two during a rotation. A valid secret is
 * answered from a fresh entry without a statement. Any other well-formed text reads the row, since
 * a new secret is in no cache.
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
  /** expired: the whole key. replaced: this secret, by a rotation. */
  readonly kind: 'expired' | 'replaced';
  readonly atMs: number;
}

export type Authentication = ApiKeyOwner | EndedSecret | 'malformed' | 'unknown';

interface RecalledKey {
  readonly owner: ApiKeyOwner;
  readonly isFresh: boolean;
}

/**
 * Callers poll ten times a second. Half of the time that a revocation may take to reach every
 * replica.
 */
export const API_KEY_MEMORY_MS = 500;
/** Keys cached, and uses recorded. The oldest are dropped first. */
export const API_KEYS_REMEMBERED_MAX = 10_000;
/** Compared if a key has one secret, so the time does not show how many there are. */
const NO_SECRET = hashSecret('');

interface Secret {
  readonly hash: string;
  readonly is: ApiKeyOwner | EndedSecret;
}

interface KnownKey {
  /** The current secret and the one before it; empty: no such key. */
  readonly secrets: readonly Secret[];
  /** By performance.now(): the end of the entry's freshness or of one of the secrets. */
  readonly freshUntilMs: number;
}

const UNKNOWN: KnownKey = { secrets: [], freshUntilMs: 0 };

export class KnownKeys {
  readonly #database: Database;
  /** Valid keys in the order of their reads. A stale entry still tells the account. */
  readonly #remembered = new Map<string, KnownKey>();

  constructor(database: Database) {
    this.#database = database;
  }

  readonly authenticate = async (token: string): Promise<Authentication> => {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const recalled = this.recall(token);
    if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;
    return ofSecret(await this.#read(parsed.id), parsed.secret) ?? 'unknown';
  };

  readonly recall = (token: string): RecalledKey | 'malformed' | undefined => {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const known = this.#remembered.get(parsed.id);
    if (known === undefined) return undefined;
    const owner = ofSecret(known, parsed.secret);
    if (owner === undefined || 'kind' in owner) return undefined;
    return { owner, isFresh: performance.now() < known.freshUntilMs };
  };

  /** The next request with the key reads its row. */
  forget(apiKeyId: string): void {
    this.#remembered.delete(apiKeyId);
  }

  async #read(id: string): Promise<KnownKey> {
    let beganMs = 0;
    const { rows } = await query(this.#database, db => {
      beganMs = performance.now();
      return db.executeQuery(IN_USE(this.#database, { id }));
    });
    const [row] = rows;
    // Moves the key to the end of the eviction order.
    this.#remembered.delete(id);
    if (row === undefined) return UNKNOWN;
    const known = knownFromRow(id, row, beganMs);
    if (known.freshUntilMs <= beganMs) return known;
    this.#remembered.set(id, known);
    forgetOldest(this.#remembered, API_KEYS_REMEMBERED_MAX);
    return known;
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

/** @param beganMs performance.now() before the row was read */
function knownFromRow(id: string, row: KeyRow, beganMs: number): KnownKey {
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
  const secrets: Secret[] = [{ hash: row.secret_hash, is: leftMs > 0 ? owner : expired }];
  if (row.previous_secret_hash !== null) {
    const is = leftMs > 0 || previousLeftMs <= 0 ? ofPrevious : expired;
    secrets.push({ hash: row.previous_secret_hash, is });
  }
  const previousMs = previousLeftMs > 0 ? previousLeftMs : API_KEY_MEMORY_MS;
  const trustedMs = Math.min(API_KEY_MEMORY_MS, leftMs, previousMs);
  return { secrets, freshUntilMs: beganMs + trustedMs };
}

/** Always makes two comparisons, so the time is constant. */
function ofSecret(known: KnownKey, secret: string): ApiKeyOwner | EndedSecret | undefined {
  const [current, previous] = known.secrets;
  const isCurrent = secretMatches(secret, current?.hash ?? NO_SECRET);
  const isPrevious = secretMatches(secret, previous?.hash ?? NO_SECRET);
  if (isCurrent) return current?.is;
  return isPrevious ? previous?.is : undefined;
}
