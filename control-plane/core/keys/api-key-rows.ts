/**
 * The form of an API key: `mk_<id>_<secret><check>`.
 *
 * | part   | characters | what                                                                 |
 * |--------|------------|----------------------------------------------------------------------|
 * | mk_    | 3          | tells scanners of leaked secrets whose key it is                     |
 * | id     | 12         | base62; no secret: it finds the row and is shown in lists            |
 * | secret | 43         | base62, 256 bits; only its SHA-256 is stored                         |
 * | check  | 6          | base62 of the CRC-32 of all that precedes: a typing error or a       |
 * |        |            | look-alike is told from a key without asking the database            |
 *
 * A plain hash is enough: nobody can search 256 random bits, so there is nothing to slow down.
 */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Db, Schema } from '../database/schema.ts';
import { query } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import {
  capCountAt,
  capResetsAtMs,
  isKeyScope,
  type KeyCap,
  type KeyPolicy,
} from './key-policy.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BASE = BigInt(ALPHABET.length);
const ID_LENGTH = 12;
/** 62^43 is just over 2^256. */
const SECRET_LENGTH = 43;
const SECRET_BYTES = 32;
/** 62^6 is over 2^32. */
const CHECK_LENGTH = 6;
const FORM = /^(mk_([0-9A-Za-z]{12})_([0-9A-Za-z]{43}))([0-9A-Za-z]{6})$/;

export interface ApiKeyToken {
  readonly id: string;
  readonly secret: string;
  /** The whole key, as its owner keeps it. */
  readonly text: string;
}

/** @param of the id of a key that gets another secret; a new one unless given */
export function createApiKeyToken(of?: string): ApiKeyToken {
  // 72 random bits are more than 12 characters hold; the surplus is cut, none is preferred.
  const id = of ?? base62(randomBytes(9), ID_LENGTH + 1).slice(1);
  const secret = base62(randomBytes(SECRET_BYTES), SECRET_LENGTH);
  const head = `${publicPrefix(id)}_${secret}`;
  return { id, secret, text: head + checkOf(head) };
}

/** Undefined: not a key of this service. */
export function parseApiKeyToken(text: string): Omit<ApiKeyToken, 'text'> | undefined {
  const [, head, id, secret, check] = FORM.exec(text) ?? [];
  if (head === undefined || id === undefined || secret === undefined) return undefined;
  if (check !== checkOf(head)) return undefined;
  return { id, secret };
}

/** What lists show of a key. */
export function publicPrefix(id: string): string {
  return `mk_${id}`;
}

/** The id in what an operator types: an id, a prefix, or a whole key. */
export function apiKeyIdOf(typed: string): string {
  return /^(?:mk_)?([0-9A-Za-z]{12})(?:_.*)?$/.exec(typed)?.[1] ?? typed;
}

/** Hexadecimal. */
export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** In the same time wherever they differ. */
export function secretMatches(secret: string, storedHash: string): boolean {
  const given = Buffer.from(hashSecret(secret), 'hex');
  const stored = Buffer.from(storedHash, 'hex');
  return given.length === stored.length && timingSafeEqual(given, stored);
}

function checkOf(head: string): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(head));
  return base62(bytes, CHECK_LENGTH);
}

/** The bytes as one number, most significant digit first, padded to `length`. */
function base62(bytes: Uint8Array, length: number): string {
  let rest = BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  let text = '';
  while (rest > 0n) {
    text = ALPHABET[Number(rest % BASE)] + text;
    rest /= BASE;
  }
  return text.padStart(length, '0');
}

/* Rows of API keys as values, and back. */

export type ApiKey = ReturnType<typeof apiKeyFromRow>;

type PolicyColumns = Pick<
  Schema['api_keys'],
  'cap_credits' | 'cap_period' | 'submissions_per_minute' | 'scopes' | 'networks'
>;

export const POLICY_COLUMNS = [
  'cap_credits',
  'cap_period',
  'submissions_per_minute',
  'scopes',
  'networks',
] as const satisfies readonly (keyof PolicyColumns)[];

/** A scope that this version does not know gives nothing. */
export function policyFromRow(row: PolicyColumns): KeyPolicy {
  const cap = capFromRow(row);
  return {
    ...(cap === undefined ? {} : { cap }),
    ...(row.submissions_per_minute === null
      ? {}
      : { submissionsPerMinute: row.submissions_per_minute }),
    ...(row.scopes === null ? {} : { scopes: row.scopes.split(',').filter(isKeyScope) }),
    ...(row.networks === null ? {} : { networks: row.networks.split(',') }),
  };
}

export function capFromRow(row: Pick<PolicyColumns, 'cap_credits' | 'cap_period'>) {
  const { cap_credits: credits, cap_period: period } = row;
  return credits === null || period === null ? undefined : { credits, period };
}

export function policyColumns(policy: KeyPolicy): PolicyColumns {
  const { cap, submissionsPerMinute, scopes, networks } = policy;
  return {
    cap_credits: cap?.credits ?? null,
    cap_period: cap?.period ?? null,
    submissions_per_minute: submissionsPerMinute ?? null,
    scopes: scopes?.join(',') ?? null,
    networks: networks?.join(',') ?? null,
  };
}

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
    /** `mk_<id>`: what may be shown. */
    prefix: publicPrefix(row.id),
    name: row.name,
    createdAtMs: row.created_at,
    revokedAtMs: row.revoked_at,
    /** From then on it is refused; null: never. */
    expiresAtMs: row.expires_at,
    /** By either secret; behind by a minute at most. null: never. */
    lastUsedAtMs: row.last_used_at,
    /** The secret from before the last rotation, while it goes on. */
    previousSecret:
      endsAtMs === null || endsAtMs <= row.read_at
        ? null
        : { endsAtMs, lastUsedAtMs: row.previous_last_used_at },
    policy,
    /** What the policy's cap counts now; null: it has none. */
    capUse: policy.cap === undefined ? null : capUseOf(policy.cap, row),
    /** The person who was shown its secret last; null: the operator. */
    madeBy: row.made_by,
    /** Whether it may be used, by the database's clock. */
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

/** Behind which key a page begins. */
export type KeyPlace = Pick<ApiKey, 'id' | 'createdAtMs'>;

/** Oldest first, read in pages; all accounts' without one. */
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

/** Newest first. @param limit at least 1 */
export async function listNewestApiKeys(
  database: Database,
  accountId: string,
  limit: number,
  after?: KeyPlace,
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
