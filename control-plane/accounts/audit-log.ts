/** Decides who may change an account, and keeps its log: an entry commits with its change. */

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

/** A person who is signed in. The transaction of the change asks once more whether they may. */
export interface ActingPerson extends NamedPerson {
  /** Resolves in the change's transaction with why they may not (any more). Undefined: they may. */
  readonly refusal: (
    database: Database,
    tx: Db,
    change: {
      readonly accountId: string;
      readonly endsRight: boolean;
      /** How long ago the person made each of their latest changes of the account. */
      readonly agesMs: (withinMs: number, limit: number) => Promise<readonly number[]>;
    },
  ) => Promise<Error | undefined>;
}

export type ServiceActor =
  | { readonly kind: 'operator' }
  | { readonly kind: 'payment' }
  | { readonly kind: 'system' };

export type Actor = ActingPerson | ServiceActor;

/** Lists and people read these values: they are flat and small, and hold no secret. */
export type AuditValues = Readonly<Record<string, string | number | boolean | null>>;

export interface AuditEntry<By extends Actor = Actor> {
  /** A random UUID that the caller makes outside of what is repeated: it is entered once. */
  readonly id: string;
  readonly accountId: string;
  readonly actor: By;
  /** `<thing>.<what happened>`: `key.created`. */
  readonly action: string;
  /** The subject names what was changed in words that its owner knows: a name, a prefix, a mail. */
  readonly subject: string;
  readonly before?: AuditValues | undefined;
  readonly after?: AuditValues | undefined;
}

type AuditRecord = ReturnType<typeof recordFromRow>;

type AuditCursor = Pick<AuditRecord, 'atMs' | 'id'>;

const SUBJECT_LENGTH_MAX = 254;

declare const asked: unique symbol;

/** Such an actor may make the change that is under way, until its transaction ends (audit.ts). */
type Authorized = (ActingPerson & { readonly [asked]: true }) | ServiceActor;

/**
 * The actor comes from `requireAuthority`, or is somebody without a session whom the change lets
 * in.
 */
interface AllowedEntry extends Omit<AuditEntry, 'actor'> {
  readonly actor: Authorized | (NamedPerson & { readonly refusal?: never });
}

export async function insertAuditEntry(
  database: Database,
  tx: Db,
  { id, accountId, actor, action, subject, before, after }: AllowedEntry,
): Promise<void> {
  const person = actor.kind === 'person' ? actor : undefined;
  if (await isEntered(tx, id)) return;
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

/** Finds whether the change was made: the answer to a first try may have been lost. */
export async function isEntered(tx: Db, entryId: string): Promise<boolean> {
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

/** `mail` and `address` are those of a person; null: it was nobody signed in. */
function recordFromRow({ value_before, value_after, ...entry }: AuditRow) {
  return { ...entry, before: valuesOf(value_before), after: valuesOf(value_after) };
}

function valuesOf(json: string | null): AuditValues | null {
  return json === null ? null : (JSON.parse(json) as AuditValues);
}

/**
 * The change's transaction checks the right again: it may be lost since the door, at any replica.
 */

interface AskedChange {
  readonly accountId: string;
  readonly actor: Actor;
  /** Id of the change's audit entry. If the entry exists, the change was allowed. */
  readonly entryId: string;
  /** True if the change takes away a right. A right ends once. */
  readonly endsRight?: boolean;
}

/**
 * Called first in a transaction. It takes the account's row, so that what is counted of the account
 * stays so until the end.
 * @throws what the actor's `refusal` resolves with
 */
export async function requireAuthority(database: Database, tx: Db, change: AskedChange) {
  const { accountId, actor: by, entryId } = change;
  await lockAccount(database, tx, accountId);
  const error = by.kind === 'person' ? await refusalOf(database, tx, by, change) : undefined;
  if (error !== undefined && !(await isEntered(tx, entryId))) throw error;
  const actor = by as Authorized;
  return {
    actor,
    /** Enters the change in the account's log, once, however often it is tried. */
    log: (entry: Pick<AuditEntry, 'action' | 'subject' | 'before' | 'after'>) =>
      insertAuditEntry(database, tx, { id: entryId, accountId, actor, ...entry }),
  };
}

function refusalOf(
  database: Database,
  tx: Db,
  person: ActingPerson,
  { accountId, endsRight = false }: AskedChange,
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

/** Waits for other changes of the account: what is counted then stays so until the end. */
export async function lockAccount(database: Database, tx: Db, accountId: string): Promise<void> {
  if (database.engine.conflicts === 'certification') {
    await takeAccount(database, tx, accountId);
    return;
  }
  const account = tx.selectFrom('accounts').select('id').where('id', '=', accountId);
  // SQLite runs one writing transaction at a time.
  await (database.dialect === 'sqlite' ? account : account.forUpdate()).execute();
}
