/** People and their memberships of accounts. The last owner of an account stays its owner. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../domain/account/actor.ts';
import { mailKeyOf } from '../../domain/account/mail-address.ts';
import type { Role } from '../../domain/account/roles.ts';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';
import type { MemberSource } from '../database/schema-people.ts';
import { query, transact } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import { insertAuditEntry } from './audit.ts';
import { lockAccount, MEMBERS_MAX } from './member-rows.ts';
import { endOtherSessions } from './session-store.ts';

export interface Person {
  readonly userId: string;
  readonly mail: string;
  readonly language: string | null;
  /** Null: none was set. */
  readonly passwordHash: string | null;
  /** Whether a password can be set: not for those known by an identity provider alone. */
  readonly hasMailKey: boolean;
}

export interface Member {
  readonly userId: string;
  readonly mail: string;
  readonly role: Role;
  readonly source: MemberSource;
  readonly createdAtMs: number;
}

/** Who changes something, and the id of its audit entry, made outside of what is repeated. */
export interface ChangedBy {
  readonly actor: Actor;
  readonly entryId: string;
}

export type MemberChange =
  | 'changed'
  /** No such member of this account. */
  | 'unknown'
  /** The account would be nobody's. */
  | 'last-owner'
  /** By a group of the identity provider, where it is changed. */
  | 'by-group';

export interface PeopleStore {
  /** By the mail that they sign in with; nobody who was disabled. */
  findByMail(mail: string): Promise<Person | undefined>;
  find(userId: string): Promise<Person | undefined>;
  /** By their mails. */
  listMembers(accountId: string): Promise<Member[]>;
  /**
   * Ends every other session of theirs too. False: they cannot have one.
   * @param of.accountId whose log tells of it
   */
  setPassword(
    of: { userId: string; passwordHash: string; sessionId: string; accountId: string },
    by: ChangedBy,
  ): Promise<boolean>;
  setLanguage(userId: string, language: string): Promise<void>;
  changeRole(accountId: string, userId: string, role: Role, by: ChangedBy): Promise<MemberChange>;
  /** Ends their sessions for this account too. */
  removeMember(accountId: string, userId: string, by: ChangedBy): Promise<MemberChange>;
}

export function createPeopleStore(database: Database): PeopleStore {
  return {
    findByMail: mail =>
      query(database, async db => {
        const row = await selectPeople(db)
          .where('mail_key', '=', mailKeyOf(mail))
          .executeTakeFirst();
        return row && personFromRow(row);
      }),
    find: userId =>
      query(database, async db => {
        const row = await selectPeople(db).where('id', '=', userId).executeTakeFirst();
        return row && personFromRow(row);
      }),
    listMembers: accountId => query(database, db => listMembers(db, accountId)),
    setPassword: (of, by) => transact(database, tx => setPassword(database, tx, of, by)),
    async setLanguage(userId, language) {
      await query(database, db =>
        db.updateTable('users').set({ language }).where('id', '=', userId).execute(),
      );
    },
    changeRole: (accountId, userId, role, by) =>
      transact(database, tx => changeMember(database, tx, { accountId, userId, role }, by)),
    removeMember: (accountId, userId, by) =>
      transact(database, tx => changeMember(database, tx, { accountId, userId, role: null }, by)),
  };
}

function selectPeople(db: Kysely<Schema>) {
  return db
    .selectFrom('users')
    .select(['id', 'mail', 'mail_key', 'language', 'password_hash'])
    .where('disabled_at', 'is', null);
}

function personFromRow(
  row: Pick<Schema['users'], 'id' | 'mail' | 'mail_key' | 'language' | 'password_hash'>,
): Person {
  return {
    userId: row.id,
    mail: row.mail,
    language: row.language,
    passwordHash: row.password_hash,
    hasMailKey: row.mail_key !== null,
  };
}

async function listMembers(db: Kysely<Schema>, accountId: string): Promise<Member[]> {
  if (!isAsciiWord(accountId)) return [];
  const rows = await db
    .selectFrom('members')
    .innerJoin('users', 'users.id', 'members.user_id')
    .select(['members.user_id', 'members.role', 'members.source', 'members.created_at'])
    .select('users.mail')
    .where('members.account_id', '=', accountId)
    .limit(MEMBERS_MAX)
    .execute();
  return rows
    .map(row => ({
      userId: row.user_id,
      mail: row.mail,
      role: row.role,
      source: row.source,
      createdAtMs: row.created_at,
    }))
    .sort((a, b) => (a.mail < b.mail ? -1 : 1));
}

async function setPassword(
  database: Database,
  tx: Kysely<Schema>,
  of: { userId: string; passwordHash: string; sessionId: string; accountId: string },
  { actor, entryId }: ChangedBy,
): Promise<boolean> {
  const person = await selectPeople(tx).where('id', '=', of.userId).executeTakeFirst();
  if (person === undefined || person.mail_key === null) return false;
  await tx
    .updateTable('users')
    .set({ password_hash: of.passwordHash })
    .where('id', '=', of.userId)
    .execute();
  await endOtherSessions(tx, of.userId, of.sessionId);
  await insertAuditEntry(database, tx, {
    id: entryId,
    accountId: of.accountId,
    actor,
    action: 'password.changed',
    subject: person.mail,
  });
  return true;
}

/** @param change.role null: the membership ends */
async function changeMember(
  database: Database,
  tx: Kysely<Schema>,
  change: { accountId: string; userId: string; role: Role | null },
  { actor, entryId }: ChangedBy,
): Promise<MemberChange> {
  const { accountId, userId, role } = change;
  if (!isAsciiWord(userId)) return 'unknown';
  await lockAccount(database, tx, accountId);
  const members = await listMembers(tx, accountId);
  const member = members.find(one => one.userId === userId);
  if (member === undefined) return (await wasDone(tx, entryId)) ? 'changed' : 'unknown';
  if (member.role === role) return 'changed';
  if (member.source === 'oidc') return 'by-group';
  const owners = members.filter(one => one.role === 'owner');
  if (member.role === 'owner' && owners.length === 1) return 'last-owner';
  if (role === null) await endMembership(tx, accountId, userId);
  else {
    await tx
      .updateTable('members')
      .set({ role })
      .where('account_id', '=', accountId)
      .where('user_id', '=', userId)
      .execute();
  }
  await insertAuditEntry(database, tx, {
    id: entryId,
    accountId,
    actor,
    action: role === null ? 'person.removed' : 'person.role-changed',
    subject: member.mail,
    before: { role: member.role },
    after: role === null ? undefined : { role },
  });
  return 'changed';
}

/** The answer to a first try was lost. */
async function wasDone(tx: Kysely<Schema>, entryId: string): Promise<boolean> {
  const row = await tx
    .selectFrom('audit_entries')
    .select('id')
    .where('id', '=', entryId)
    .executeTakeFirst();
  return row !== undefined;
}

/** With every session that acts for that account. */
export async function endMembership(
  tx: Kysely<Schema>,
  accountId: string,
  userId: string,
): Promise<boolean> {
  await tx
    .deleteFrom('sessions')
    .where('user_id', '=', userId)
    .where('account_id', '=', accountId)
    .execute();
  const { numDeletedRows } = await tx
    .deleteFrom('members')
    .where('account_id', '=', accountId)
    .where('user_id', '=', userId)
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}
