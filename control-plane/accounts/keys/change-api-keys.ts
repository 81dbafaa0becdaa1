import { randomUUID } from 'node:crypto';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  transact,
} from '@matting/database/database.ts';
import { isAsciiWord, isInserted, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { requireName } from '../account-store.ts';
import {
  type Actor,
  type AuditValues,
  type insertAuditEntry,
  requireAuthority,
} from '../audit-log.ts';
import { type ApiKeyToken, createApiKeyToken, hashSecret } from './api-key-token.ts';
import { countOfNewCap, type KeyPolicy, NO_POLICY } from './key-policy.ts';
import { policyColumns } from './policy-columns.ts';
import { type ApiKey, apiKeyFromRow, findApiKey, selectApiKeys } from './read-api-keys.ts';

const SYSTEM = { kind: 'system' } as const;

export interface NewKey {
  readonly policy?: KeyPolicy;
  /** Absent: the key does not expire. */
  readonly expiresInMs?: number;
}

export interface NewKeyBy extends NewKey {
  readonly actor: Actor;
  readonly aliveMax: number;
  readonly everMax: number;
}

export interface ChangedBy {
  readonly accountId: string;
  readonly actor: Actor;
}

/** Ends what a package does with a key, in the transaction that revokes the key. */
export type KeyRevokedStep = (
  database: Database,
  tx: Db,
  revoked: Pick<Parameters<typeof insertAuditEntry>[2], 'accountId' | 'actor'> & {
    readonly apiKeyId: string;
  },
) => Promise<void>;

/** The change leaves absent members as they are. */
export interface KeyChange {
  readonly name?: string;
  readonly expires?: 'never' | { readonly inMs: number };
  /** Replaces the whole policy. */
  readonly policy?: KeyPolicy;
}

interface MadeKey {
  readonly key: ApiKey;
  readonly token: string;
}

export async function createApiKey(
  database: Database,
  accountId: string,
  name: string,
  settings: NewKey,
): Promise<MadeKey> {
  // Created outside the repeated part, so a lost answer leaves no second key.
  const newToken = createApiKeyToken();
  const insert = query(database, db =>
    insertApiKey(database, db, accountId, name, newToken, settings),
  );
  await isInserted(insert);
  const key = await query(database, db => readCreated(database, db, newToken));
  if (key === undefined) throw new Error(`another API key has the id ${newToken.id}`);
  return { key, token: newToken.text };
}

/** Creates a key and logs it. 'too-many': the account reached a bound. */
export async function createApiKeyBy(
  database: Database,
  accountId: string,
  name: string,
  { actor: by, aliveMax, everMax, ...settings }: NewKeyBy,
): Promise<MadeKey | 'too-many'> {
  const newToken = createApiKeyToken();
  const entryId = randomUUID();
  return transact(database, async tx => {
    const change = { accountId, actor: by, entryId };
    const { actor, log } = await requireAuthority(database, tx, change);
    // An earlier round created the key and lost the answer.
    const existing = await readCreated(database, tx, newToken);
    if (existing !== undefined) return { key: existing, token: newToken.text };
    const { alive, ever } = await countApiKeys(tx, accountId, everMax);
    if (alive >= aliveMax || ever >= everMax) return 'too-many';
    await insertApiKey(database, tx, accountId, name, newToken, { ...settings, actor });
    const key = await requireKey(database, tx, newToken.id);
    await log(entryOf('key.created', key, undefined, key));
    return { key, token: newToken.text };
  });
}

async function readCreated(
  database: Database,
  db: Db,
  newToken: ApiKeyToken,
): Promise<ApiKey | undefined> {
  const row = await selectApiKeys(database, db)
    .where('id', '=', newToken.id)
    .where('secret_hash', '=', hashSecret(newToken.secret))
    .executeTakeFirst();
  return row && apiKeyFromRow(row);
}

/**
 * Revoking again changes nothing. `steps` end what packages began with the key (docs/adr/0055).
 * @returns the current key; undefined: no such key
 */
export async function revokeApiKey(
  database: Database,
  apiKeyId: string,
  steps: readonly KeyRevokedStep[],
  by?: ChangedBy,
): Promise<ApiKey | undefined> {
  const entryId = randomUUID();
  return transact(database, async tx => {
    const request = by && { ...by, entryId, endsRight: true };
    const change = request && (await requireAuthority(database, tx, request));
    const before = await findApiKey(database, tx, apiKeyId, by?.accountId);
    if (before === undefined || before.revokedAtMs !== null) return before;
    await tx
      .updateTable('api_keys')
      .set({ revoked_at: database.nowMs })
      .where('id', '=', apiKeyId)
      .where('revoked_at', 'is', null)
      .execute();
    await change?.log(entryOf('key.revoked', before, before));
    const { accountId } = before;
    const revoked = { apiKeyId, accountId, actor: change?.actor ?? SYSTEM };
    for (const step of steps) await step(database, tx, revoked);
    return requireKey(database, tx, apiKeyId);
  });
}

/**
 * The old secret stays valid for `overlapMs`; an even older one expires.
 * @returns undefined: no such key, or it is revoked
 */
export async function rotateApiKey(
  database: Database,
  apiKeyId: string,
  by: ChangedBy & { readonly overlapMs: number },
): Promise<MadeKey | undefined> {
  if (!isAsciiWord(apiKeyId)) return undefined;
  const newToken = createApiKeyToken(apiKeyId);
  const secretHash = hashSecret(newToken.secret);
  const entryId = randomUUID();
  return transact(database, async tx => {
    const { actor, log } = await requireAuthority(database, tx, { ...by, entryId });
    const before = await findApiKey(database, tx, apiKeyId, by.accountId);
    if (before === undefined || before.revokedAtMs !== null) return undefined;
    const rotated = await matchesOne(
      tx
        .updateTable('api_keys')
        .set(eb => ({
          // The order matters: MySQL computes a column from the new values of the columns before
          // it.
          previous_secret_hash: eb.ref('secret_hash'),
          previous_expires_at: nowPlusMs(database.nowMs, by.overlapMs),
          previous_last_used_at: null,
          secret_hash: secretHash,
          made_by: personOf(actor),
        }))
        .where('id', '=', apiKeyId)
        .where('revoked_at', 'is', null)
        // An earlier round may have written the row and lost its answer.
        .where('secret_hash', '<>', secretHash),
    );
    const key = await requireKey(database, tx, apiKeyId);
    if (key.revokedAtMs !== null) return undefined;
    if (rotated) await log(entryOf('key.rotated', key, before, key));
    return { key, token: newToken.text };
  });
}

/** @returns the current key; undefined: no such key, or it is revoked */
export async function changeApiKey(
  database: Database,
  apiKeyId: string,
  by: ChangedBy,
  change: KeyChange,
): Promise<ApiKey | undefined> {
  if (change.name !== undefined) requireName(change.name);
  const entryId = randomUUID();
  return transact(database, async tx => {
    const { log } = await requireAuthority(database, tx, { ...by, entryId });
    const before = await findApiKey(database, tx, apiKeyId, by.accountId);
    if (before === undefined || before.revokedAtMs !== null) return undefined;
    await writeChange(database, tx, before, change);
    const after = await requireKey(database, tx, apiKeyId);
    const changed = JSON.stringify(auditValues(before)) !== JSON.stringify(auditValues(after));
    if (changed) await log(entryOf('key.changed', after, before, after));
    return after;
  });
}

async function writeChange(
  database: Database,
  tx: Db,
  before: ApiKey,
  { name, expires, policy }: KeyChange,
): Promise<void> {
  const { id } = before;
  const columns = {
    ...(name === undefined ? {} : { name }),
    ...(policy === undefined ? {} : policyColumns(policy)),
    ...(expires === undefined
      ? {}
      : { expires_at: expires === 'never' ? null : nowPlusMs(database.nowMs, expires.inMs) }),
  };
  if (Object.keys(columns).length > 0) {
    await tx.updateTable('api_keys').set(columns).where('id', '=', id).execute();
  }
  if (policy?.cap === undefined || policy.cap.period === before.policy.cap?.period) return;
  const row = await tx
    .selectFrom('api_keys')
    .select(['cap_window_start', 'cap_used', database.nowMs.as('now')])
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  const counted = { windowStartMs: row.cap_window_start, used: row.cap_used ?? 0 };
  const next = countOfNewCap(before.policy.cap, policy.cap, counted, row.now);
  const begun = await matchesOne(
    tx
      .updateTable('api_keys')
      .set({ cap_window_start: next.windowStartMs, cap_used: next.used })
      .where('id', '=', id)
      .where('cap_window_start', row.cap_window_start === null ? 'is' : '=', row.cap_window_start),
  );
  if (!begun) throw new OvertakenError('a job began another count of the API key');
}

export async function insertApiKey(
  database: Database,
  db: Db,
  accountId: string,
  name: string,
  newToken: ApiKeyToken,
  { policy = NO_POLICY, expiresInMs, actor }: NewKey & { readonly actor?: Actor } = {},
): Promise<void> {
  requireName(name);
  await db
    .insertInto('api_keys')
    .values({
      id: newToken.id,
      account_id: accountId,
      name,
      secret_hash: hashSecret(newToken.secret),
      created_at: database.nowMs,
      expires_at: expiresInMs === undefined ? null : nowPlusMs(database.nowMs, expiresInMs),
      made_by: personOf(actor),
      ...policyColumns(policy),
    })
    .execute();
}

/** @throws ContractError INVALID_API_KEY: the key was revoked */
export async function requireUnrevoked(tx: Db, apiKeyId: string): Promise<void> {
  const key = await tx
    .selectFrom('api_keys')
    .select('revoked_at')
    .where('id', '=', apiKeyId)
    .executeTakeFirst();
  if (key?.revoked_at != null) {
    throw new ContractError('INVALID_API_KEY', 'The API key was revoked. Send another key.');
  }
}

/**
 * Creates a key for the jobs of a package and discards its secret. Lists leave the key out.
 * @returns the key's id
 */
export async function insertInternalKey(
  database: Database,
  tx: Db,
  accountId: string,
  purpose: string,
): Promise<string> {
  const { id, secret } = createApiKeyToken();
  const names = { name: purpose, purpose };
  await tx
    .insertInto('api_keys')
    .values({
      ...{ id, account_id: accountId, ...names },
      secret_hash: hashSecret(secret),
      created_at: database.nowMs,
    })
    .execute();
  return id;
}

function personOf(actor: Actor | undefined): string | null {
  return actor?.kind === 'person' ? actor.userId : null;
}

async function countApiKeys(tx: Db, accountId: string, limit: number) {
  const rows = await tx
    .selectFrom('api_keys')
    .select('revoked_at')
    .where('account_id', '=', accountId)
    .limit(limit)
    .execute();
  const alive = rows.filter(row => row.revoked_at === null).length;
  return { ever: rows.length, alive };
}

async function requireKey(database: Database, tx: Db, id: string): Promise<ApiKey> {
  const key = await findApiKey(database, tx, id);
  if (key === undefined) throw new Error(`API key ${id} is gone within its transaction`);
  return key;
}

function entryOf(action: string, key: ApiKey, before?: ApiKey, after?: ApiKey) {
  return {
    action,
    subject: `${key.name} (${key.prefix})`,
    before: before && auditValues(before),
    after: after && auditValues(after),
  };
}

function auditValues({ name, policy, expiresAtMs, previousSecret }: ApiKey): AuditValues {
  const { cap, submissionsPerMinute, scopes, networks, models } = policy;
  const time = (ms: number | undefined | null) => (ms ? new Date(ms).toISOString() : null);
  return {
    name,
    expires: time(expiresAtMs),
    cap: cap === undefined ? null : `${cap.credits} ${cap.period}`,
    submissions_per_minute: submissionsPerMinute ?? null,
    scopes: scopes?.join(', ') ?? null,
    networks: networks?.join(', ') ?? null,
    models: models?.join(', ') ?? null,
    previous_secret_ends: time(previousSecret?.endsAtMs),
  };
}
