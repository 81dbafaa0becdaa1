/** Checks who may change an account, and keeps its log. An entry commits with its change. */

import { type Database, type Db, query, type Schema } from '@matting/database/database.ts';
import {
  addressText,
  isAsciiWord,
  nowPlusMs,
  ofAccount,
  removeOldRows,
} from '@matting/database/statements.ts';
import type { Selection } from 'kysely';
import { takeAccount } from './account-store.ts';

interface NamedPerson {
  readonly kind: 'person';
  readonly userId: string;
  readonly mail: string;
  readonly address: string;
}

/** A signed-in person. The change's transaction checks their right again. */
export interface ActingPerson extends NamedPerson {
  /** @returns why the person may not make the change; undefined: they may */
  readonly refusal: (
    database: Database,
    tx: Db,
    change: {
      readonly accountId: string;
      readonly endsRight: boolean;
      /** Ages of the person's latest changes of the account. */
      readonly agesMs: (withinMs: number, limit: number) => Promise<readonly number[]>;
    },
  ) => Promise<Error | undefined>;
}

export type ServiceActor =
  | { readonly kind: 'operator' }
  | { readonly kind: 'payment' }
  | { readonly kind: 'system' };

export type Actor = ActingPerson | ServiceActor;

/** Lists show these values: keep them flat, small, and without secrets. */
export type AuditValues = Readonly<Record<string, string | number | boolean | null>>;

export interface AuditEntry<By extends Actor = Actor> {
  /** A random UUID. Create it outside the repeated part, so the log gets one entry. */
  readonly id: string;
  readonly accountId: string;
  readonly actor: By;
  /** `<thing>.<event>`, such as `key.created`. */
  readonly action: string;
  /** The changed thing in words that its owner knows: a name, a prefix, a mail address. */
  readonly subject: string;
  readonly before?: AuditValues | undefined;
  readonly after?: AuditValues | undefined;
}

type AuditRecord = ReturnType<typeof recordFromRow>;

type AuditCursor = Pick<AuditRecord, 'atMs' | 'id'>;

const SUBJECT_LENGTH_MAX = 254;

declare const authorized: unique symbol;

/** An actor that may make the current change until its transaction ends. */
type Authorized = (ActingPerson & { readonly [authorized]: true }) | ServiceActor;

/** The actor comes from `requireAuthority`, or the change admits somebody without a session. */
interface AllowedEntry extends Omit<AuditEntry, 'actor'> {
  readonly actor: Authorized | (NamedPerson & { readonly refusal?: never });
}

export async function insertAuditEntry(
  database: Database,
  tx: Db,
  { id, accountId, actor, action, subject, before, after }: AllowedEntry,
): Promise<void> {
  const person = actor.kind === 'person' ? actor : undefined;
  if (await isLogged(tx, id)) return;
  await tx
    .insertInto('audit_entries')
    .values({
      id,
      account_id: accountId,
      created_at: database.nowMs,
      actor_kind: actor.kind,
      actor_user_id: person?.userId ?? null,
      actor_mail: person?.mail ?? null,
      address: person === undefined ? null : addressText(person.address),
      action,
      subject: [...subject.toWellFormed()].slice(0, SUBJECT_LENGTH_MAX).join(''),
      value_before: before === undefined ? null : JSON.stringify(before),
      value_after: after === undefined ? null : JSON.stringify(after),
    })
    .execute();
}

/** Whether an earlier try made the change: its answer may have been lost. */
export async function isLogged(tx: Db, entryId: string): Promise<boolean> {
  const entry = await tx
    .selectFrom('audit_entries')
    .select('id')
    .where('id', '=', entryId)
    .executeTakeFirst();
  return entry !== undefined;
}

export function createAuditStore(database: Database) {
  return {
    async list(
      accountId: string,
      { limit, after }: { readonly limit: number; readonly after?: AuditCursor | undefined },
    ): Promise<AuditRecord[]> {
      if (!isAsciiWord(accountId)) return [];
      const rows = await query(database, db => {
        const newest = db
          .selectFrom('audit_entries')
          .select(AUDIT_COLUMNS)
          .where(ofAccount(database.dialect, accountId))
          .orderBy('account_id', 'desc')
          .orderBy('created_at', 'desc')
          .orderBy('id', 'desc')
          .limit(limit);
        if (after === undefined) return newest.execute();
        return newest
          .where('created_at', '<=', after.atMs)
          .where(eb => eb.or([eb('created_at', '<', after.atMs), eb('id', '<', after.id)]))
          .execute();
      });
      return rows.map(recordFromRow);
    },
    removeOld(keptMs: number, limit: number): Promise<number> {
      const before = nowPlusMs(database.nowMs, -keptMs);
      const entries = { table: 'audit_entries', key: 'id', time: 'created_at', before } as const;
      return removeOldRows(database, entries, limit);
    },
  };
}

const AUDIT_COLUMNS = [
  'id',
  'created_at as atMs',
  'actor_kind as actorKind',
  'actor_mail as mail',
  'address',
  'action',
  'subject',
  'value_before',
  'value_after',
] as const;

type AuditRow = Selection<Schema, 'audit_entries', (typeof AUDIT_COLUMNS)[number]>;

/** The columns `mail` and `address` (IP) name the person; null: nobody was signed in. */
function recordFromRow({ value_before, value_after, ...entry }: AuditRow) {
  return { ...entry, before: valuesOf(value_before), after: valuesOf(value_after) };
}

function valuesOf(json: string | null): AuditValues | null {
  return json === null ? null : (JSON.parse(json) as AuditValues);
}

interface RequestedChange {
  readonly accountId: string;
  readonly actor: Actor;
  /** Id of the change's audit entry. If the log has it, the change was allowed. */
  readonly entryId: string;
  /** The change takes away a right, which can happen only once, so no rate limits it. */
  readonly endsRight?: boolean;
}

/**
 * Call it first in a transaction: the person may have lost the right since the request began. It
 * locks the account's row, so counts of the account stay valid until the end.
 * @throws the error that the actor's `refusal` returns
 */
export async function requireAuthority(database: Database, tx: Db, change: RequestedChange) {
  const { accountId, actor: by, entryId } = change;
  await lockAccount(database, tx, accountId);
  const error = by.kind === 'person' ? await refusalOf(database, tx, by, change) : undefined;
  if (error !== undefined && !(await isLogged(tx, entryId))) throw error;
  const actor = by as Authorized;
  return {
    actor,
    /** Logs the change once, however often the transaction repeats. */
    log: (entry: Pick<AuditEntry, 'action' | 'subject' | 'before' | 'after'>) =>
      insertAuditEntry(database, tx, { id: entryId, accountId, actor, ...entry }),
  };
}

function refusalOf(
  database: Database,
  tx: Db,
  person: ActingPerson,
  { accountId, endsRight = false }: RequestedChange,
): Promise<Error | undefined> {
  const agesMs = async (withinMs: number, limit: number) => {
    const rows = await tx
      .selectFrom('audit_entries')
      .select(['created_at', database.nowMs.as('now')])
      .where(ofAccount(database.dialect, accountId))
      .where('created_at', '>', nowPlusMs(database.nowMs, -withinMs))
      .where('actor_user_id', '=', person.userId)
      .orderBy('account_id', 'desc')
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit)
      .execute();
    return rows.map(({ created_at: atMs, now }) => now - atMs);
  };
  return person.refusal(database, tx, { accountId, endsRight, agesMs });
}

/**
 * Waits for other changes of the account, so counts of it stay valid until the transaction ends.
 */
export async function lockAccount(database: Database, tx: Db, accountId: string): Promise<void> {
  if (database.engine.conflicts === 'certification') {
    await takeAccount(database, tx, accountId);
    return;
  }
  const account = tx.selectFrom('accounts').select('id').where('id', '=', accountId);
  // SQLite runs one writing transaction at a time.
  await (database.dialect === 'sqlite' ? account : account.forUpdate()).execute();
}
