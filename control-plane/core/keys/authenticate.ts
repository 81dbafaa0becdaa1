/**
 * Whose request it is, and whether it may be made, by the API key that it shows: `mk_<id>_<secret><check>`.
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
import { type Database, query, type Schema } from '@matting/database/database.ts';
import { isIpInNetworks } from '@matting/http/networks.ts';
import { forgetOldest } from '@matting/program/remembered.ts';
import { noteRequestAccount, noteRequestSecret } from '@matting/program/request-owner.ts';
import { sql } from 'kysely';
import { isKeyScope, type KeyPolicy, type KeyScope } from './key-policy.ts';

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

export function publicPrefix(id: string): string {
  return `mk_${id}`;
}

/** The id in what an operator types: an id, a prefix, or a whole key. */
export function apiKeyIdOf(typed: string): string {
  return /^(?:mk_)?([0-9A-Za-z]{12})(?:_.*)?$/.exec(typed)?.[1] ?? typed;
}

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

function base62(bytes: Uint8Array, length: number): string {
  let rest = BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  let text = '';
  while (rest > 0n) {
    text = ALPHABET[Number(rest % BASE)] + text;
    rest /= BASE;
  }
  return text.padStart(length, '0');
}

/* A policy as its row has it. */

export const POLICY_COLUMNS = [
  'cap_credits',
  'cap_period',
  'submissions_per_minute',
  'scopes',
  'networks',
  'models',
] as const satisfies readonly (keyof Schema['api_keys'])[];

type PolicyColumns = Pick<Schema['api_keys'], (typeof POLICY_COLUMNS)[number]>;

export function capFromRow(row: Pick<PolicyColumns, 'cap_credits' | 'cap_period'>) {
  const { cap_credits: credits, cap_period: period } = row;
  return credits === null || period === null ? undefined : { credits, period };
}

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
    ...(row.models === null ? {} : { models: row.models.split(',') }),
  };
}

export function policyColumns(policy: KeyPolicy): PolicyColumns {
  const { cap, submissionsPerMinute, scopes, networks, models } = policy;
  return {
    cap_credits: cap?.credits ?? null,
    cap_period: cap?.period ?? null,
    submissions_per_minute: submissionsPerMinute ?? null,
    scopes: scopes?.join(',') ?? null,
    networks: networks?.join(',') ?? null,
    models: models?.join(',') ?? null,
  };
}

/*
 * What is remembered of a key's row. A key has one secret, or two while it is rotated. One that goes
 * on is answered from a fresh memory without a statement; anything else of the form of a key is
 * answered by its row, since a secret that was made a moment ago is in no memory.
 */

export interface ApiKeyOwner {
  readonly apiKeyId: string;
  readonly accountId: string;
  /** Absent: it may do what its account may. */
  readonly policy?: KeyPolicy;
  readonly byPreviousSecret?: true;
}

interface EndedSecret {
  /** expired: the whole key. replaced: this secret, by a rotation. */
  readonly kind: 'expired' | 'replaced';
  readonly atMs: number;
}

type Authentication = ApiKeyOwner | EndedSecret | 'malformed' | 'unknown';

function isEnded(found: ApiKeyOwner | EndedSecret): found is EndedSecret {
  return 'kind' in found;
}

interface RecalledKey {
  readonly owner: ApiKeyOwner;
  readonly isFresh: boolean;
}

/** Callers poll ten times a second. Half of what a revocation may take to every replica. */
export const API_KEY_MEMORY_MS = 500;
/** Keys remembered, and uses noted, at once; the oldest go first. */
const API_KEYS_REMEMBERED_MAX = 10_000;
/** Compared where a key has one secret, so that the time does not show how many there are. */
const NO_SECRET = hashSecret('');

interface Secret {
  readonly hash: string;
  readonly is: ApiKeyOwner | EndedSecret;
}

interface KnownKey {
  /** The current secret, and the one before it; or no such key. */
  readonly secrets: readonly Secret[];
  /** By performance.now(): the memory's end, or that of one of the secrets. */
  readonly freshUntilMs: number;
}

const UNKNOWN: KnownKey = { secrets: [], freshUntilMs: 0 };

export class KnownKeys {
  readonly #database: Database;
  /** Keys that were good, in the order they were read; whose they were is known after that time. */
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
    if (owner === undefined || isEnded(owner)) return undefined;
    return { owner, isFresh: performance.now() < known.freshUntilMs };
  };

  /** Of a key that changed: the next one who shows it reads its row. */
  forget(apiKeyId: string): void {
    this.#remembered.delete(apiKeyId);
  }

  async #read(id: string): Promise<KnownKey> {
    let beganMs = 0;
    const { nowMs } = this.#database;
    const row = await query(this.#database, db => {
      beganMs = performance.now();
      return db
        .selectFrom('api_keys')
        .select(['account_id', 'secret_hash', 'expires_at'])
        .select(['previous_secret_hash', 'previous_expires_at'])
        .select(POLICY_COLUMNS)
        .select(nowMs.as('read_at'))
        .where('id', '=', id)
        .where('revoked_at', 'is', null)
        .where('purpose', 'is', null)
        .executeTakeFirst();
    });
    // Behind those that were read before it.
    this.#remembered.delete(id);
    if (row === undefined) return UNKNOWN;
    const known = knownFromRow(id, row, beganMs);
    if (known.freshUntilMs <= beganMs) return known;
    this.#remembered.set(id, known);
    forgetOldest(this.#remembered, API_KEYS_REMEMBERED_MAX);
    return known;
  }
}

type KeyRow = Parameters<typeof policyFromRow>[0] & {
  readonly account_id: string;
  readonly secret_hash: string;
  readonly expires_at: number | null;
  readonly previous_secret_hash: string | null;
  readonly previous_expires_at: number | null;
  readonly read_at: number;
};

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
    const isReplaced = previousLeftMs <= 0;
    const is = leftMs > 0 || isReplaced ? ofPrevious : expired;
    secrets.push({ hash: row.previous_secret_hash, is });
  }
  const trustedMs = Math.min(
    API_KEY_MEMORY_MS,
    leftMs,
    previousLeftMs > 0 ? previousLeftMs : API_KEY_MEMORY_MS,
  );
  return { secrets, freshUntilMs: beganMs + trustedMs };
}

/** Always two comparisons. */
function ofSecret(known: KnownKey, secret: string): ApiKeyOwner | EndedSecret | undefined {
  const [current, previous] = known.secrets;
  const isCurrent = secretMatches(secret, current?.hash ?? NO_SECRET);
  const isPrevious = secretMatches(secret, previous?.hash ?? NO_SECRET);
  if (isCurrent) return current?.is;
  return isPrevious ? previous?.is : undefined;
}

/** Requests with one key share one read of its row, in the share of its account. */
export class Authenticate {
  readonly #apiKeys: Pick<KnownKeys, 'recall' | 'authenticate'>;
  readonly #readings = new Map<string, { answer: Promise<Authentication>; askedAtMs: number }>();

  constructor(apiKeys: Pick<KnownKeys, 'recall' | 'authenticate'>) {
    this.#apiKeys = apiKeys;
  }

  async authenticate(token: string): Promise<Authentication> {
    const known = this.#apiKeys.recall(token);
    if (known === 'malformed') return known;
    if (known === undefined) noteRequestSecret(token);
    else noteRequestAccount(known.owner.accountId);
    if (known?.isFresh) return known.owner;
    const answer = await this.#read(token);
    if (typeof answer === 'object' && 'accountId' in answer) noteRequestAccount(answer.accountId);
    return answer;
  }

  #read(token: string): Promise<Authentication> {
    const shared = this.#readings.get(token);
    // An answer that hangs is shared no longer than a remembered key is trusted.
    if (shared && performance.now() - shared.askedAtMs < API_KEY_MEMORY_MS) return shared.answer;
    const answer = this.#apiKeys.authenticate(token).finally(() => {
      if (this.#readings.get(token) === reading) this.#readings.delete(token);
    });
    const reading = { answer, askedAtMs: performance.now() };
    this.#readings.set(token, reading);
    return answer;
  }
}

/** Why a key may not do what it is used for; undefined: it may. */
export function refusalOfKey(
  { scopes, networks }: KeyPolicy,
  scope: KeyScope | undefined,
  address: string,
): string | undefined {
  if (networks !== undefined && !isIpInNetworks(address, networks)) {
    return `The API key does not allow requests from ${address || 'an unknown address'}. Add it to the networks of the key, or use another key.`;
  }
  if (scope !== undefined && scopes !== undefined && !scopes.includes(scope)) {
    return `The API key does not have the scope ${scope}. Use a key that has it, or add it to this one.`;
  }
  return undefined;
}

/*
 * When keys were used last: noted in memory, written in batches off the requests' path. What a
 * process loses of it is noted again with the next use.
 */

/** A key that is used all the time is written this often. */
const WRITE_EVERY_MS = 60_000;
/** How late what is due is written. */
const LOOK_EVERY_MS = 5000;

interface Noted {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  usedAtMs: number;
  writtenAtMs: number | undefined;
}

interface KeyUseStore {
  noteUses(uses: readonly KeyUse[]): Promise<void>;
}

export class KeyUses {
  readonly #store: KeyUseStore;
  readonly #keysMax: number;
  readonly #noted = new Map<string, Noted>();
  #onFailed: (error: unknown) => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(store: KeyUseStore, keysMax = API_KEYS_REMEMBERED_MAX) {
    this.#store = store;
    this.#keysMax = keysMax;
  }

  note({ apiKeyId, ...owner }: ApiKeyOwner): void {
    const byPreviousSecret = owner.byPreviousSecret === true;
    const name = byPreviousSecret ? `${apiKeyId} previous` : apiKeyId;
    const usedAtMs = performance.now();
    const known = this.#noted.get(name);
    if (known !== undefined) {
      known.usedAtMs = usedAtMs;
      return;
    }
    this.#noted.set(name, { apiKeyId, byPreviousSecret, usedAtMs, writtenAtMs: undefined });
    forgetOldest(this.#noted, this.#keysMax);
  }

  /** @param onFailed a batch could not be written: it is tried again */
  start(onFailed: (error: unknown) => void): void {
    this.#onFailed = onFailed;
    this.#timer = setInterval(() => void this.write(), LOOK_EVERY_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await this.write(0);
  }

  /** Writes what is due; one batch is under way at most. Never rejects. */
  async write(everyMs = WRITE_EVERY_MS): Promise<void> {
    this.#writing ??= this.#write(everyMs).finally(() => {
      this.#writing = undefined;
    });
    await this.#writing;
  }

  async #write(everyMs: number): Promise<void> {
    const nowMs = performance.now();
    const due: Noted[] = [];
    for (const [name, noted] of this.#noted) {
      const { usedAtMs, writtenAtMs } = noted;
      if (writtenAtMs !== undefined && nowMs - writtenAtMs < everyMs) continue;
      if (writtenAtMs === undefined || usedAtMs > writtenAtMs) due.push(noted);
      else this.#noted.delete(name);
    }
    if (due.length === 0) return;
    const uses = due.map(({ apiKeyId, byPreviousSecret, usedAtMs }) => {
      return { apiKeyId, byPreviousSecret, ageMs: nowMs - usedAtMs };
    });
    try {
      await this.#store.noteUses(uses);
      for (const noted of due) noted.writtenAtMs = nowMs;
    } catch (error) {
      this.#onFailed(error);
    }
  }
}

export interface KeyUse {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  readonly ageMs: number;
}

/** Uses of one statement. */
const USES_MAX = 100;

/** An earlier time than the one that is there changes nothing. */
export async function writeKeyUses(database: Database, uses: readonly KeyUse[]): Promise<void> {
  const ofPrevious = uses.filter(use => use.byPreviousSecret);
  // The key's own column has the uses of both.
  for (const [column, some] of [
    ['last_used_at', uses],
    ['previous_last_used_at', ofPrevious],
  ] as const) {
    for (let from = 0; from < some.length; from += USES_MAX) {
      await writeBatch(database, column, some.slice(from, from + USES_MAX));
    }
  }
}

async function writeBatch(
  database: Database,
  column: 'last_used_at' | 'previous_last_used_at',
  uses: readonly KeyUse[],
): Promise<void> {
  const ageMs = new Map<string, number>();
  for (const use of uses) {
    ageMs.set(use.apiKeyId, Math.min(use.ageMs, ageMs.get(use.apiKeyId) ?? use.ageMs));
  }
  const cases = [...ageMs].map(
    ([id, age]) => sql`when ${id} then ${database.nowMs} - ${Math.max(0, Math.round(age))}`,
  );
  const usedAt = sql<number>`case ${sql.ref('id')} ${sql.join(cases, sql` `)} end`;
  await query(database, db =>
    db
      .updateTable('api_keys')
      .set({ [column]: usedAt })
      .where('id', 'in', [...ageMs.keys()])
      .where(eb => eb.or([eb(column, 'is', null), eb(column, '<', usedAt)]))
      .execute(),
  );
}
