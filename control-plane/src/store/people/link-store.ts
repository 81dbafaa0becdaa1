/**
 * One-time links: an invitation to an account, or the sign-in that an operator hands out. Only the
 * hash of a link's token is stored; who has the link can use it, once, until it expires.
 */
import type { Kysely } from 'kysely';
import type { Actor } from '../../domain/account/actor.ts';
import { mailKeyOf } from '../../domain/account/mail-address.ts';
import type { Role } from '../../domain/account/roles.ts';
import { insertMail, type NewMail } from '../alerts/mail-rows.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Schema } from '../database/schema.ts';
import type { LinkPurpose, MemberSource } from '../database/schema-people.ts';
import { OvertakenError, query, transact } from '../database/transact.ts';
import { isAsciiWord, matchesOne } from '../database/values.ts';
import { insertAuditEntry } from './audit.ts';
import { lockAccount, MEMBERS_MAX } from './member-rows.ts';
import { insertSession, isSession, type NewSession } from './session-store.ts';

/** Invitations of one account that nobody has accepted yet. */
export const INVITATIONS_OPEN_MAX = 50;

/** Made by the caller, outside of what is repeated. */
export interface NewLink {
  readonly id: string;
  /** SHA-256 of the token, hexadecimal. */
  readonly tokenHash: string;
  readonly purpose: LinkPurpose;
  readonly accountId: string;
  readonly mail: string;
  readonly role: Role;
  readonly lifeMs: number;
  /** Of the audit entry. */
  readonly entryId: string;
  /** Brings the link; absent: nobody sends mail here. */
  readonly letter?: NewMail | undefined;
}

export interface FoundLink {
  readonly accountId: string;
  readonly accountName: string;
  readonly mail: string;
  readonly role: Role;
  /** Somebody is known by that mail already: only they can accept, signed in. */
  readonly personExists: boolean;
}

export interface OpenInvitation {
  readonly id: string;
  readonly mail: string;
  readonly role: Role;
  readonly createdBy: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

export interface LinkUse {
  readonly tokenHash: string;
  readonly purpose: LinkPurpose;
  /** Who accepts, signed in; null: a person that is made now. */
  readonly userId: string | null;
  /** Of a person that is made now; a random UUID. */
  readonly newUserId: string;
  readonly passwordHash: string | null;
  readonly session: NewSession;
  /** The session that the browser had before; null: none. */
  readonly endedIdHash: string | null;
  readonly entryId: string;
}

export type LinkUseOutcome =
  | { readonly kind: 'signed-in'; readonly accountId: string; readonly userId: string }
  /** Used, expired, withdrawn, or never made. */
  | { readonly kind: 'unknown' }
  /** They must sign in first. */
  | { readonly kind: 'person-exists' }
  /** Who is signed in is another than the one invited. */
  | { readonly kind: 'another-person' }
  | { readonly kind: 'account-full' };

export interface LinkStore {
  create(link: NewLink, actor: Actor): Promise<'created' | 'too-many'>;
  find(tokenHash: string, purpose: LinkPurpose): Promise<FoundLink | undefined>;
  /** Invitations that can still be accepted, newest first. */
  listInvitations(accountId: string): Promise<OpenInvitation[]>;
  /** False: the account has no such invitation (any more). */
  withdraw(accountId: string, id: string, by: { actor: Actor; entryId: string }): Promise<boolean>;
  /** Makes the person where they are new, the membership and the session, all of it or nothing. */
  use(use: LinkUse): Promise<LinkUseOutcome>;
}

export function createLinkStore(database: Database): LinkStore {
  return {
    create: (link, actor) => transact(database, tx => insertLink(database, tx, link, actor)),
    find: (tokenHash, purpose) => query(database, db => findLink(database, db, tokenHash, purpose)),
    listInvitations: accountId => query(database, db => listInvitations(database, db, accountId)),
    withdraw: (accountId, id, by) =>
      transact(database, tx => withdrawLink(database, tx, accountId, id, by)),
    use: use => transact(database, tx => useLink(database, tx, use)),
  };
}

async function insertLink(
  database: Database,
  tx: Kysely<Schema>,
  link: NewLink,
  actor: Actor,
): Promise<'created' | 'too-many'> {
  const { nowMs } = database;
  await lockAccount(database, tx, link.accountId);
  const known = await tx
    .selectFrom('one_time_links')
    .select('id')
    .where('id', '=', link.id)
    .executeTakeFirst();
  if (known !== undefined) return 'created';
  if (link.purpose === 'invitation') {
    const open = await listInvitations(database, tx, link.accountId);
    if (open.length >= INVITATIONS_OPEN_MAX) return 'too-many';
  }
  await tx
    .insertInto('one_time_links')
    .values({
      id: link.id,
      token_hash: link.tokenHash,
      purpose: link.purpose,
      account_id: link.accountId,
      mail: link.mail,
      role: link.role,
      created_by: actor.kind === 'person' ? actor.mail : actor.kind,
      created_at: nowMs,
      expires_at: nowPlusMs(nowMs, link.lifeMs),
      used_at: null,
    })
    .execute();
  if (link.letter !== undefined) await insertMail(database, tx, link.letter);
  await insertAuditEntry(database, tx, {
    id: link.entryId,
    accountId: link.accountId,
    actor,
    action: link.purpose === 'invitation' ? 'person.invited' : 'sign-in-link.created',
    subject: link.mail,
    after: { role: link.role },
  });
  return 'created';
}

async function findLink(
  database: Database,
  db: Kysely<Schema>,
  tokenHash: string,
  purpose: LinkPurpose,
): Promise<FoundLink | undefined> {
  const row = await db
    .selectFrom('one_time_links')
    .innerJoin('accounts', 'accounts.id', 'one_time_links.account_id')
    .select(['one_time_links.account_id', 'one_time_links.mail', 'one_time_links.role'])
    .select('accounts.name')
    .where('token_hash', '=', tokenHash)
    .where('purpose', '=', purpose)
    .where('used_at', 'is', null)
    .where('expires_at', '>', database.nowMs)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const person = await findByMailKey(db, mailKeyOf(row.mail));
  return {
    accountId: row.account_id,
    accountName: row.name,
    mail: row.mail,
    role: row.role,
    personExists: person !== undefined,
  };
}

async function listInvitations(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
): Promise<OpenInvitation[]> {
  if (!isAsciiWord(accountId)) return [];
  const rows = await db
    .selectFrom('one_time_links')
    .select(['id', 'mail', 'role', 'created_by', 'created_at', 'expires_at'])
    .where(ofAccount(database.dialect, accountId))
    .where('purpose', '=', 'invitation')
    .where('used_at', 'is', null)
    .where('expires_at', '>', database.nowMs)
    .orderBy('account_id', 'desc')
    .orderBy('created_at', 'desc')
    .limit(INVITATIONS_OPEN_MAX)
    .execute();
  return rows.map(row => ({
    id: row.id,
    mail: row.mail,
    role: row.role,
    createdBy: row.created_by,
    createdAtMs: row.created_at,
    expiresAtMs: row.expires_at,
  }));
}

/** A link that was withdrawn is one that has expired. */
async function withdrawLink(
  database: Database,
  tx: Kysely<Schema>,
  accountId: string,
  id: string,
  { actor, entryId }: { actor: Actor; entryId: string },
): Promise<boolean> {
  if (!isAsciiWord(id)) return false;
  const link = await tx
    .selectFrom('one_time_links')
    .select(['mail', 'role'])
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where('purpose', '=', 'invitation')
    .executeTakeFirst();
  if (link === undefined) return false;
  const withdrawn = await matchesOne(
    tx
      .updateTable('one_time_links')
      .set({ expires_at: database.nowMs })
      .where('id', '=', id)
      .where('used_at', 'is', null)
      .where('expires_at', '>', database.nowMs),
  );
  if (!withdrawn) return false;
  await insertAuditEntry(database, tx, {
    id: entryId,
    accountId,
    actor,
    action: 'invitation.withdrawn',
    subject: link.mail,
    before: { role: link.role },
  });
  return true;
}

async function useLink(
  database: Database,
  tx: Kysely<Schema>,
  use: LinkUse,
): Promise<LinkUseOutcome> {
  const link = await tx
    .selectFrom('one_time_links')
    .selectAll()
    .where('token_hash', '=', use.tokenHash)
    .where('purpose', '=', use.purpose)
    .executeTakeFirst();
  if (link === undefined) return { kind: 'unknown' };
  const accountId = link.account_id;
  await lockAccount(database, tx, accountId);
  const person = await personOf(tx, use, link);
  if ('refused' in person) return { kind: person.refused };
  // The answer to a first try was lost: its session is there.
  if (await isSession(tx, use.session.idHash)) {
    return { kind: 'signed-in', accountId, userId: person.userId };
  }
  const members = await tx
    .selectFrom('members')
    .select('user_id')
    .where('account_id', '=', accountId)
    .limit(MEMBERS_MAX)
    .execute();
  const isMember = members.some(({ user_id }) => user_id === person.userId);
  if (!isMember && members.length >= MEMBERS_MAX) return { kind: 'account-full' };
  const used = await matchesOne(
    tx
      .updateTable('one_time_links')
      .set({ used_at: database.nowMs })
      .where('id', '=', link.id)
      .where('used_at', 'is', null)
      .where('expires_at', '>', database.nowMs),
  );
  if (!used) return { kind: 'unknown' };
  if (person.isNew) await insertUser(database, tx, use, link.mail);
  if (!isMember) {
    const source: MemberSource = use.purpose === 'invitation' ? 'invited' : 'operator';
    await tx
      .insertInto('members')
      .values({
        account_id: accountId,
        user_id: person.userId,
        role: link.role,
        source,
        created_at: database.nowMs,
      })
      .execute();
  }
  if (use.endedIdHash !== null) {
    await tx.deleteFrom('sessions').where('id_hash', '=', use.endedIdHash).execute();
  }
  await insertSession(database, tx, use.session, { userId: person.userId, accountId });
  await insertAuditEntry(database, tx, {
    id: use.entryId,
    accountId,
    actor: {
      kind: 'person',
      userId: person.userId,
      mail: link.mail,
      address: use.session.address,
    },
    action: isMember ? 'person.signed-in-by-link' : 'person.joined',
    subject: link.mail,
    after: { role: link.role },
  });
  return { kind: 'signed-in', accountId, userId: person.userId };
}

type PersonOfLink =
  | { readonly userId: string; readonly isNew: boolean }
  | { readonly refused: 'person-exists' | 'another-person' };

/** Whose membership the link makes. A link sets the password of nobody who is known already. */
async function personOf(
  tx: Kysely<Schema>,
  use: LinkUse,
  link: Schema['one_time_links'],
): Promise<PersonOfLink> {
  const key = mailKeyOf(link.mail);
  if (use.userId !== null) {
    const signedIn = await tx
      .selectFrom('users')
      .select(['id', 'mail'])
      .where('id', '=', use.userId)
      .executeTakeFirst();
    if (signedIn === undefined || mailKeyOf(signedIn.mail) !== key) {
      return { refused: 'another-person' };
    }
    return { userId: signedIn.id, isNew: false };
  }
  const known = await findByMailKey(tx, key);
  if (known === undefined) return { userId: use.newUserId, isNew: true };
  // An operator's sign-in link is for whoever has that mail; an invitation is not.
  const isOurs = known.id === use.newUserId;
  if (use.purpose === 'invitation' && !isOurs) return { refused: 'person-exists' };
  return { userId: known.id, isNew: false };
}

async function insertUser(database: Database, tx: Kysely<Schema>, use: LinkUse, mail: string) {
  try {
    await tx
      .insertInto('users')
      .values({
        id: use.newUserId,
        mail,
        mail_key: mailKeyOf(mail),
        password_hash: use.passwordHash,
        language: null,
        created_at: database.nowMs,
        disabled_at: null,
      })
      .execute();
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    throw new OvertakenError('the same person accepted another invitation just now');
  }
}

async function findByMailKey(db: Kysely<Schema>, key: string) {
  return db.selectFrom('users').select('id').where('mail_key', '=', key).executeTakeFirst();
}
