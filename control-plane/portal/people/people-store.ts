/** People and their memberships of accounts. An account's last owner cannot leave. */
import { type Actor, isLogged, requireAuthority } from '@matting/accounts/audit-log.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { isAsciiWord } from '@matting/database/statements.ts';
import { mailKeyOf } from '../mails/mail-address.ts';
import type { Role } from '../session/roles.ts';
import { endOtherSessions, MEMBERS_MAX, takePerson } from '../session/session-store.ts';
import { endLinksOf } from './link-store.ts';

export type Member = Awaited<ReturnType<typeof listMembers>>[number];

interface PasswordSet {
  readonly userId: string;
  readonly passwordHash: string;
  /** The hash that the current password matched. null: not checked (session by a link). */
  readonly verifiedHash: string | null;
  readonly sessionId: string;
  readonly accountId: string;
}

type PasswordSetOutcome =
  | 'set'
  /** Only an identity provider knows the person. */
  | 'impossible'
  /** The session has ended, or the password changed since its check. */
  | 'overtaken';

/** The audit entry's id is made outside of the transaction, which may repeat. */
interface ChangedBy {
  readonly actor: Actor;
  readonly entryId: string;
}

export type MemberChange =
  | 'changed'
  | 'unknown'
  | 'last-owner'
  /** A group of the identity provider grants the membership, which can change only there. */
  | 'by-group';

export type PeopleStore = ReturnType<typeof createPeopleStore>;

export function createPeopleStore(database: Database) {
  return {
    /** Finds a person by their mail for sign-in, unless they are disabled. */
    findByMail: (mail: string) =>
      query(database, async db => {
        const row = await selectPeople(db)
          .where('mail_key', '=', mailKeyOf(mail))
          .executeTakeFirst();
        return row && personFromRow(row);
      }),
    find: (userId: string) =>
      query(database, async db => {
        const row = await selectPeople(db).where('id', '=', userId).executeTakeFirst();
        return row && personFromRow(row);
      }),
    listMembers: (accountId: string) => query(database, db => listMembers(db, accountId)),
    /** Also ends every other session of the person. */
    setPassword: (of: PasswordSet, by: ChangedBy) =>
      transact(database, tx => setPassword(database, tx, of, by)),
    async setLanguage(userId: string, language: string): Promise<void> {
      await query(database, db =>
        db.updateTable('users').set({ language }).where('id', '=', userId).execute(),
      );
    },
    changeRole: (accountId: string, userId: string, role: Role, by: ChangedBy) =>
      transact(database, tx => changeMember(database, tx, { accountId, userId, role }, by)),
    /** Also ends their sessions and links for this account, as does a role below owner. */
    removeMember: (accountId: string, userId: string, by: ChangedBy) =>
      transact(database, tx => changeMember(database, tx, { accountId, userId, role: null }, by)),
  };
}

function selectPeople(db: Db) {
  return db
    .selectFrom('users')
    .select(['id as userId', 'mail', 'language', 'password_hash as passwordHash'])
    .select(['mail_key', 'proven_at'])
    .where('disabled_at', 'is', null);
}

type PersonRow = Awaited<ReturnType<ReturnType<typeof selectPeople>['executeTakeFirstOrThrow']>>;

function personFromRow({ mail_key, proven_at, ...person }: PersonRow) {
  return {
    ...person,
    /** False: only an identity provider knows the person, who cannot have a password. */
    hasMailKey: mail_key !== null,
    isProven: mail_key === null || proven_at !== null,
  };
}

async function listMembers(db: Db, accountId: string) {
  if (!isAsciiWord(accountId)) return [];
  const rows = await db
    .selectFrom('members')
    .innerJoin('users', 'users.id', 'members.user_id')
    .select(['members.user_id as userId', 'members.role', 'members.source'])
    .select(['users.mail', 'users.mail_key', 'users.proven_at'])
    .select('members.created_at as createdAtMs')
    .where('members.account_id', '=', accountId)
    .limit(MEMBERS_MAX)
    .execute();
  return rows
    .map(({ mail_key, proven_at, ...member }) => ({
      ...member,
      isProven: mail_key === null || proven_at !== null,
    }))
    .sort((a, b) => (a.mail < b.mail ? -1 : 1));
}

async function setPassword(
  database: Database,
  tx: Db,
  { userId, passwordHash, verifiedHash, sessionId, accountId }: PasswordSet,
  by: ChangedBy,
): Promise<PasswordSetOutcome> {
  const { log } = await requireAuthority(database, tx, { accountId, ...by });
  const person = await takePerson(database, tx, userId);
  if (person === undefined || person.mailKey === null) return 'impossible';
  // An earlier try set this password, and its answer was lost.
  if (person.passwordHash === passwordHash) return 'set';
  const session = await tx
    .selectFrom('sessions')
    .select('method')
    .where('id', '=', sessionId)
    .where('user_id', '=', userId)
    .executeTakeFirst();
  if (session === undefined) return 'overtaken';
  const isTheirs =
    verifiedHash === null ? session.method === 'link' : verifiedHash === person.passwordHash;
  if (!isTheirs) return 'overtaken';
  await tx
    .updateTable('users')
    .set({ password_hash: passwordHash })
    .where('id', '=', userId)
    .execute();
  // A session that began by a link may set a password once without the current password.
  await tx
    .updateTable('sessions')
    .set({ method: 'password' })
    .where('id', '=', sessionId)
    .execute();
  await endOtherSessions(tx, userId, sessionId);
  await log({ action: 'password.changed', subject: person.mail });
  return 'set';
}

/** @param change.role null: ends the membership */
async function changeMember(
  database: Database,
  tx: Db,
  change: { accountId: string; userId: string; role: Role | null },
  by: ChangedBy,
): Promise<MemberChange> {
  const { accountId, userId, role } = change;
  if (!isAsciiWord(userId)) return 'unknown';
  const { log } = await requireAuthority(database, tx, { accountId, ...by });
  const members = await listMembers(tx, accountId);
  const member = members.find(one => one.userId === userId);
  if (member === undefined) return (await isLogged(tx, by.entryId)) ? 'changed' : 'unknown';
  if (member.role === role) return 'changed';
  if (member.source === 'oidc') return 'by-group';
  const owners = members.filter(one => one.role === 'owner');
  if (member.role === 'owner' && owners.length === 1) return 'last-owner';
  if (role === null) {
    await endMembership(tx, accountId, userId);
    await forgetUnproven(tx, userId);
  } else {
    await tx
      .updateTable('members')
      .set({ role })
      .where('account_id', '=', accountId)
      .where('user_id', '=', userId)
      .execute();
  }
  const isLess = role === null || member.role === 'owner';
  const ended = isLess ? await endLinksOf(database, tx, accountId, member) : 0;
  const linksEnded = ended === 0 ? {} : { links_ended: ended };
  await log({
    action: role === null ? 'person.removed' : 'person.role-changed',
    subject: member.mail,
    before: { role: member.role },
    after: role === null && ended === 0 ? undefined : { ...(role && { role }), ...linksEnded },
  });
  return 'changed';
}

/**
 * An unproven mail identifies a person only in the account where it was typed. With the last
 * membership the person is removed, so that the mail can start again.
 */
async function forgetUnproven(tx: Db, userId: string): Promise<void> {
  const isMember = await tx
    .selectFrom('members')
    .select('account_id')
    .where('user_id', '=', userId)
    .limit(1)
    .executeTakeFirst();
  if (isMember !== undefined) return;
  await tx
    .deleteFrom('users')
    .where('id', '=', userId)
    .where('mail_key', 'is not', null)
    .where('proven_at', 'is', null)
    .execute();
}

/** Also ends every session for that account. */
export async function endMembership(tx: Db, accountId: string, userId: string): Promise<void> {
  await tx
    .deleteFrom('sessions')
    .where('user_id', '=', userId)
    .where('account_id', '=', accountId)
    .execute();
  await tx
    .deleteFrom('members')
    .where('account_id', '=', accountId)
    .where('user_id', '=', userId)
    .execute();
}
