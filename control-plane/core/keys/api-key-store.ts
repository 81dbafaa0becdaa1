/** API keys: made and shown once, stored as a hash; and their changes, each made once. */
import { randomUUID } from 'node:crypto';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { isAsciiWord, isInserted, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import { ofAccount, requireName } from '../accounts/account-store.ts';
import { type Actor, type AuditValues, requireAuthority } from '../accounts/audit.ts';
import {
  type ApiKeyToken,
  capFromRow,
  createApiKeyToken,
  hashSecret,
  type KeyUse,
  KnownKeys,
  POLICY_COLUMNS,
  policyColumns,
  policyFromRow,
  publicPrefix,
  writeKeyUses,
} from './authenticate.ts';
import {
  capCountAt,
  capReached,
  capResetsAtMs,
  countOfNewCap,
  type KeyCap,
  type KeyPolicy,
  NO_POLICY,
  takeOfCap,
} from './key-policy.ts';

export type ApiKeyStore = ReturnType<typeof createApiKeyStore>;

export function createApiKeyStore(database: Database) {
  const known = new KnownKeys(database);
  /** What this replica remembers of a key ends with its change. */
  const changing = <T>(apiKeyId: string, change: Promise<T>) =>
    change.finally(() => known.forget(apiKeyId));
  return {
    create: (accountId: string, name: string, asked: NewKey = {}) =>
      createApiKey(database, accountId, name, asked),
    createBy: (accountId: string, name: string, asked: NewKeyBy) =>
      createApiKeyBy(database, accountId, name, asked),
    /** A change of a key is seen within API_KEY_MEMORY_MS by every replica. */
    authenticate: known.authenticate,
    /** What is remembered of a key, without asking the database; undefined: nothing of this secret. */
    recall: known.recall,
    revoke: (id: string, by?: ChangedBy) => changing(id, revokeApiKey(database, id, by)),
    rotate: (id: string, by: ChangedBy & { readonly overlapMs: number }) =>
      changing(id, rotateApiKey(database, id, by)),
    change: (id: string, by: ChangedBy, change: KeyChange) =>
      changing(id, changeApiKey(database, id, by, change)),
    list: (accountId?: string) => listApiKeys(database, accountId),
    listNewest: (accountId: string, limit: number, after?: KeyCursor) =>
      listNewestApiKeys(database, accountId, limit, after),
    find: (id: string, accountId?: string) =>
      query(database, db => findApiKey(database, db, id, accountId)),
    noteUses: (uses: readonly KeyUse[]) => writeKeyUses(database, uses),
  };
}

export type ApiKey = ReturnType<typeof apiKeyFromRow>;

const LISTED_COLUMNS = [
  'id',
  'account_id',
  'name',
  'created_at',
  'revoked_at',
  'expires_at',
  'last_used_at',
  'previous_expires_at',
  'previous_last_used_at',
  'cap_window_start',
  'cap_used',
  'made_by',
  ...POLICY_COLUMNS,
] as const;

/** Those that people made; `db` is the database or a transaction of it. */
export function selectApiKeys(database: Database, db: Db) {
  return db
    .selectFrom('api_keys')
    .select(LISTED_COLUMNS)
    .select(database.nowMs.as('read_at'))
    .where('purpose', 'is', null);
}

type ListedRow = Pick<Schema['api_keys'], (typeof LISTED_COLUMNS)[number]> & {
  readonly read_at: number;
};

export function apiKeyFromRow(row: ListedRow) {
  const policy = policyFromRow(row);
  const endsAtMs = row.previous_expires_at;
  return {
    id: row.id,
    accountId: row.account_id,
    prefix: publicPrefix(row.id),
    name: row.name,
    createdAtMs: row.created_at,
    revokedAtMs: row.revoked_at,
    expiresAtMs: row.expires_at,
    /** By either secret; behind by a minute at most. null: never. */
    lastUsedAtMs: row.last_used_at,
    /** The secret from before the last rotation, while it goes on. */
    previousSecret:
      endsAtMs === null || endsAtMs <= row.read_at
        ? null
        : { endsAtMs, lastUsedAtMs: row.previous_last_used_at },
    policy,
    capUse: policy.cap === undefined ? null : capUseOf(policy.cap, row),
    /** The person who was shown its secret last; null: the operator. */
    madeBy: row.made_by,
    state: stateOf(row),
  };
}

function stateOf({ revoked_at, expires_at, read_at }: ListedRow) {
  if (revoked_at !== null) return 'revoked';
  return expires_at !== null && expires_at <= read_at ? 'expired' : 'active';
}

function capUseOf(cap: KeyCap, row: ListedRow) {
  const count = { windowStartMs: row.cap_window_start, used: row.cap_used ?? 0 };
  return {
    used: capCountAt(cap, count, row.read_at).used,
    resetsAtMs: capResetsAtMs(cap.period, row.read_at),
  };
}

/** Keys of one statement. */
const KEYS_PAGE_ROWS = 500;

export type KeyCursor = Pick<ApiKey, 'id' | 'createdAtMs'>;

/** Oldest first, read in pages; all accounts' without one. Never the service's own. */
export async function listApiKeys(database: Database, accountId?: string): Promise<ApiKey[]> {
  if (accountId !== undefined && !isAsciiWord(accountId)) return [];
  const keys: ApiKey[] = [];
  for (let more = true; more; ) {
    const last = keys.at(-1);
    const page = await query(database, db =>
      accountId === undefined
        ? selectPage(database, db, last)
        : selectPageOf(database, db, accountId, last),
    );
    keys.push(...page.map(apiKeyFromRow));
    more = page.length === KEYS_PAGE_ROWS;
  }
  // Those of all accounts are read by id: no index has them by age.
  return keys.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1));
}

export async function listNewestApiKeys(
  database: Database,
  accountId: string,
  limit: number,
  after?: KeyCursor,
): Promise<ApiKey[]> {
  if (!isAsciiWord(accountId) || (after !== undefined && !isAsciiWord(after.id))) return [];
  const rows = await query(database, db => {
    const newest = selectApiKeys(database, db)
      .where(ofAccount(database.dialect, accountId))
      .orderBy('account_id', 'desc')
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit);
    if (after === undefined) return newest.execute();
    return newest
      .where('created_at', '<=', after.createdAtMs)
      .where(eb => eb.or([eb('created_at', '<', after.createdAtMs), eb('id', '<', after.id)]))
      .execute();
  });
  return rows.map(apiKeyFromRow);
}

/** Undefined: no such key. @param accountId another's key is none; any account's without one */
export async function findApiKey(
  database: Database,
  db: Db,
  apiKeyId: string,
  accountId?: string,
): Promise<ApiKey | undefined> {
  if (!isAsciiWord(apiKeyId)) return undefined;
  const row = await selectApiKeys(database, db).where('id', '=', apiKeyId).executeTakeFirst();
  if (row === undefined) return undefined;
  return accountId === undefined || row.account_id === accountId ? apiKeyFromRow(row) : undefined;
}

function selectPage(database: Database, db: Db, last: ApiKey | undefined) {
  return selectApiKeys(database, db)
    .where('id', '>', last?.id ?? '')
    .orderBy('id')
    .limit(KEYS_PAGE_ROWS)
    .execute();
}

function selectPageOf(database: Database, db: Db, accountId: string, last: ApiKey | undefined) {
  const { createdAtMs = 0, id = '' } = last ?? {};
  return selectApiKeys(database, db)
    .where(ofAccount(database.dialect, accountId))
    .where('created_at', '>=', createdAtMs)
    .where(eb => eb.or([eb('created_at', '>', createdAtMs), eb('id', '>', id)]))
    .orderBy('account_id')
    .orderBy('created_at')
    .orderBy('id')
    .limit(KEYS_PAGE_ROWS)
    .execute();
}

export interface NewKey {
  readonly policy?: KeyPolicy;
  /** Absent: it does not expire. */
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

/** What is absent stays. */
export interface KeyChange {
  readonly name?: string;
  readonly expires?: 'never' | { readonly inMs: number };
  /** The whole of it. */
  readonly policy?: KeyPolicy;
}

export interface MadeKey {
  readonly key: ApiKey;
  readonly token: string;
}

export async function createApiKey(
  database: Database,
  accountId: string,
  name: string,
  asked: NewKey,
): Promise<MadeKey> {
  // Made once, however often the insert is tried: an answer that was lost leaves no second key.
  const made = createApiKeyToken();
  const insert = query(database, db => insertApiKey(database, db, accountId, name, made, asked));
  await isInserted(insert);
  const key = await query(database, db => readMade(database, db, made));
  if (key === undefined) throw new Error(`another API key has the id ${made.id}`);
  return { key, token: made.text };
}

/** The same by somebody, in the account's log. 'too-many': the account has as many as it may. */
export async function createApiKeyBy(
  database: Database,
  accountId: string,
  name: string,
  { actor: by, aliveMax, everMax, ...asked }: NewKeyBy,
): Promise<MadeKey | 'too-many'> {
  const made = createApiKeyToken();
  const entryId = randomUUID();
  return transact(database, async tx => {
    const change = { accountId, actor: by, entryId };
    const { actor, log } = await requireAuthority(database, tx, change);
    // By an earlier round whose answer was lost.
    const there = await readMade(database, tx, made);
    if (there !== undefined) return { key: there, token: made.text };
    const { alive, ever } = await countApiKeys(tx, accountId, everMax);
    if (alive >= aliveMax || ever >= everMax) return 'too-many';
    await insertApiKey(database, tx, accountId, name, made, { ...asked, actor });
    const key = await requireKey(database, tx, made.id);
    await log(entryOf('key.created', key, undefined, key));
    return { key, token: made.text };
  });
}

async function readMade(
  database: Database,
  db: Db,
  made: ApiKeyToken,
): Promise<ApiKey | undefined> {
  const row = await selectApiKeys(database, db)
    .where('id', '=', made.id)
    .where('secret_hash', '=', hashSecret(made.secret))
    .executeTakeFirst();
  return row && apiKeyFromRow(row);
}

/** The key as it is now; undefined: no such key. Revoking again changes nothing. */
export async function revokeApiKey(
  database: Database,
  apiKeyId: string,
  by?: ChangedBy,
): Promise<ApiKey | undefined> {
  const entryId = randomUUID();
  return transact(database, async tx => {
    const asked = by && { ...by, entryId, endsRight: true };
    const change = asked && (await requireAuthority(database, tx, asked));
    const before = await findApiKey(database, tx, apiKeyId, by?.accountId);
    if (before === undefined || before.revokedAtMs !== null) return before;
    await tx
      .updateTable('api_keys')
      .set({ revoked_at: database.nowMs })
      .where('id', '=', apiKeyId)
      .where('revoked_at', 'is', null)
      .execute();
    await change?.log(entryOf('key.revoked', before, before));
    return requireKey(database, tx, apiKeyId);
  });
}

/** The old secret goes on for `overlapMs`, an older one ends. Undefined: no such key; revoked. */
export async function rotateApiKey(
  database: Database,
  apiKeyId: string,
  by: ChangedBy & { readonly overlapMs: number },
): Promise<MadeKey | undefined> {
  if (!isAsciiWord(apiKeyId)) return undefined;
  const made = createApiKeyToken(apiKeyId);
  const secretHash = hashSecret(made.secret);
  const entryId = randomUUID();
  return transact(database, async tx => {
    const { actor, log } = await requireAuthority(database, tx, { ...by, entryId });
    const before = await findApiKey(database, tx, apiKeyId, by.accountId);
    if (before === undefined || before.revokedAtMs !== null) return undefined;
    const rotated = await matchesOne(
      tx
        .updateTable('api_keys')
        .set(eb => ({
          // In this order: MySQL gives each what those before it have left.
          previous_secret_hash: eb.ref('secret_hash'),
          previous_expires_at: nowPlusMs(database.nowMs, by.overlapMs),
          previous_last_used_at: null,
          secret_hash: secretHash,
          made_by: personOf(actor),
        }))
        .where('id', '=', apiKeyId)
        .where('revoked_at', 'is', null)
        // By an earlier round whose answer was lost.
        .where('secret_hash', '<>', secretHash),
    );
    const key = await requireKey(database, tx, apiKeyId);
    if (key.revokedAtMs !== null) return undefined;
    if (rotated) await log(entryOf('key.rotated', key, before, key));
    return { key, token: made.text };
  });
}

/** The key as it is now; undefined: no such key, or it is revoked. */
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

/** `db` is the database or a transaction of it; `made` is the caller's, who may try again. */
export async function insertApiKey(
  database: Database,
  db: Db,
  accountId: string,
  name: string,
  made: ApiKeyToken,
  { policy = NO_POLICY, expiresInMs, actor }: NewKey & { readonly actor?: Actor } = {},
): Promise<void> {
  requireName(name);
  await db
    .insertInto('api_keys')
    .values({
      id: made.id,
      account_id: accountId,
      name,
      secret_hash: hashSecret(made.secret),
      created_at: database.nowMs,
      expires_at: expiresInMs === undefined ? null : nowPlusMs(database.nowMs, expiresInMs),
      made_by: personOf(actor),
      ...policyColumns(policy),
    })
    .execute();
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

/*
 * The cap of a key, counted in transactions that reserve and release a job's credit: both take the
 * account's row first. A change of the key is seen by compare-and-set.
 */

/** The cap has nothing left. Thrown, so that the transaction is rolled back. */
export class CapReachedError extends Error {
  readonly detail: string;

  constructor(cap: KeyCap, nowMs: number) {
    super('the cap of the API key is reached');
    this.detail = capReached(cap, capResetsAtMs(cap.period, nowMs));
  }
}

/** Goes back to this count with the job's credit; null: no cap. @throws CapReachedError */
export async function countForCap(
  database: Database,
  tx: Db,
  apiKeyId: string,
  credits: number,
): Promise<number | null> {
  const row = await tx
    .selectFrom('api_keys')
    .select(['cap_credits', 'cap_period', 'cap_window_start', 'cap_used'])
    .select(database.nowMs.as('now'))
    .where('id', '=', apiKeyId)
    .executeTakeFirst();
  const cap = row && capFromRow(row);
  if (row === undefined || cap === undefined) return null;
  const before = { windowStartMs: row.cap_window_start, used: row.cap_used ?? 0 };
  const after = takeOfCap(cap, before, credits, row.now);
  if (after === undefined) throw new CapReachedError(cap, row.now);
  const counted = await matchesOne(
    tx
      .updateTable('api_keys')
      .set({ cap_window_start: after.windowStartMs, cap_used: after.used })
      .where('id', '=', apiKeyId)
      .where('cap_credits', '=', cap.credits)
      .where('cap_period', '=', cap.period)
      .where('cap_window_start', row.cap_window_start === null ? 'is' : '=', row.cap_window_start)
      .where('cap_used', row.cap_used === null ? 'is' : '=', row.cap_used),
  );
  if (!counted) throw new OvertakenError('the cap of the API key was changed');
  return after.windowStartMs;
}

/** Gives back what a job that is released has counted for, where that count still goes on. */
export async function giveBackToCap(
  tx: Db,
  apiKeyId: string,
  windowStartMs: number,
  credits: number,
): Promise<void> {
  await tx
    .updateTable('api_keys')
    .set(eb => ({ cap_used: eb('cap_used', '-', credits) }))
    .where('id', '=', apiKeyId)
    .where('cap_window_start', '=', windowStartMs)
    .where('cap_used', '>=', credits)
    .execute();
}
