/**
 * How people enter by links. Only a proven mail makes a person, never a mail that somebody typed:
 *
 * | the link                     | nobody has the mail  | it is proven      | it was typed, never proven      |
 * |------------------------------|----------------------|-------------------|---------------------------------|
 * | the operator's sign-in link  | a person, proven     | signs in, joins   | taken over: what was there ends |
 * | an invitation that proves it | a person, proven     | by their password | taken over: what was there ends |
 * | one that the inviter saw     | a person, not proven | by their password | by their password, only if they |
 * |                              |                      |                   | are in the account already      |
 *
 * Taken over: the sessions end, the password becomes the one that was typed now, or none, and the
 * mail is proven (docs/adr/0042-people-are-what-was-proven.md).
 */

import { selectAccounts } from '@matting/accounts/account-store.ts';
import {
  type Actor,
  insertAuditEntry,
  lockAccount,
  requireAuthority,
} from '@matting/accounts/audit-log.ts';
import { insertMail, type NewMail, withdrawMails } from '@matting/core/webhooks/outbox-store.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import {
  isAsciiWord,
  isInserted,
  matchesOne,
  nowPlusMs,
  ofAccount,
} from '@matting/database/statements.ts';
import { mailKeyOf } from '../mails/mail-address.ts';
import { takeFromToday, type Withheld } from '../mails/messages.ts';
import type { Role } from '../session/roles.ts';
import {
  insertSession,
  MEMBERS_MAX,
  type NewSession,
  takePerson,
} from '../session/session-store.ts';

export type LinkPurpose = 'invitation' | 'sign-in';

export type MemberSource = 'invited' | 'oidc' | 'operator';

export interface LinkUse {
  readonly tokenHash: string;
  readonly purpose: LinkPurpose;
  readonly newUserId: string;
  /** For a new person or one that is taken over. null: none yet. */
  readonly passwordHash: string | null;
  /** The hash that the given password matched. Null: no password was checked. */
  readonly verifiedHash: string | null;
  readonly session: NewSession;
  readonly endedIdHash: string | null;
  readonly entryId: string;
}

export type LinkUseOutcome =
  | { readonly kind: 'signed-in'; readonly accountId: string; readonly userId: string }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'refused' }
  /** The person's mail is not proven, and the link does not prove it. */
  | { readonly kind: 'unproven' }
  | { readonly kind: 'account-full' };

type Link = Schema['one_time_links'];

/** Makes the person if they are new, the membership and the session, or nothing. */
async function useLink(database: Database, tx: Db, use: LinkUse): Promise<LinkUseOutcome> {
  const link = await tx
    .selectFrom('one_time_links')
    .selectAll()
    .where('token_hash', '=', use.tokenHash)
    .where('purpose', '=', use.purpose)
    .executeTakeFirst();
  if (link === undefined) return { kind: 'unknown' };
  const accountId = link.account_id;
  await lockAccount(database, tx, accountId);
  // If the answer to a first try was lost, its session exists.
  const begun = await tx
    .selectFrom('sessions')
    .select('user_id')
    .where('id_hash', '=', use.session.idHash)
    .executeTakeFirst();
  if (begun !== undefined) return { kind: 'signed-in', accountId, userId: begun.user_id };
  const members = await tx
    .selectFrom('members')
    .select('user_id')
    .where('account_id', '=', accountId)
    .limit(MEMBERS_MAX)
    .execute();
  const isMemberOf = (userId: string) => members.some(({ user_id }) => user_id === userId);
  const person = await personOfLink(database, tx, use, link, isMemberOf);
  if ('refused' in person) return { kind: person.refused };
  const isMember = isMemberOf(person.userId);
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
  if (person.is === 'new') await insertUser(database, tx, use, link);
  if (person.is === 'taken-over') await takeOver(database, tx, use, person.userId);
  if (!isMember) await insertMember(database, tx, link, person.userId);
  if (use.endedIdHash !== null) {
    await tx.deleteFrom('sessions').where('id_hash', '=', use.endedIdHash).execute();
  }
  await insertSession(database, tx, use.session, { userId: person.userId, accountId });
  const { address } = use.session;
  await insertAuditEntry(database, tx, {
    id: use.entryId,
    accountId,
    actor: { kind: 'person', userId: person.userId, mail: link.mail, address },
    action: isMember ? 'person.signed-in-by-link' : 'person.joined',
    subject: link.mail,
    after: {
      role: link.role,
      ...(person.is === 'known' ? {} : { mail_proven: link.proves_mail === 1 }),
    },
  });
  return { kind: 'signed-in', accountId, userId: person.userId };
}

type PersonOfLink =
  | { readonly userId: string; readonly is: 'new' | 'known' | 'taken-over' }
  | { readonly refused: 'refused' | 'unproven' };

async function personOfLink(
  database: Database,
  tx: Db,
  use: LinkUse,
  link: Link,
  isMember: (userId: string) => boolean,
): Promise<PersonOfLink> {
  const known = await tx
    .selectFrom('users')
    .select('id')
    .where('mail_key', '=', mailKeyOf(link.mail))
    .executeTakeFirst();
  if (known === undefined) return { userId: use.newUserId, is: 'new' };
  const userId = known.id;
  const person = await takePerson(database, tx, userId);
  if (person === undefined) throw new OvertakenError('the person was removed just now');
  if (person.isDisabled) return { refused: 'refused' };
  const isTheirs = use.verifiedHash !== null && use.verifiedHash === person.passwordHash;
  if (use.verifiedHash !== null && !isTheirs) return { refused: 'refused' };
  if (link.proves_mail === 1 && !person.isProven) return { userId, is: 'taken-over' };
  if (use.purpose === 'sign-in') return { userId, is: 'known' };
  if (!isTheirs) return { refused: 'refused' };
  if (!person.isProven && !isMember(userId)) return { refused: 'unproven' };
  return { userId, is: 'known' };
}

async function insertUser(database: Database, tx: Db, use: LinkUse, link: Link) {
  const user = {
    id: use.newUserId,
    mail: link.mail,
    mail_key: mailKeyOf(link.mail),
    password_hash: use.passwordHash,
    created_at: database.nowMs,
    proven_at: link.proves_mail === 1 ? database.nowMs : null,
  };
  if (!(await isInserted(tx.insertInto('users').values(user).execute())))
    throw new OvertakenError('the same person accepted another invitation just now');
}

/** People who typed that mail before can no longer sign in with it. */
async function takeOver({ nowMs }: Database, tx: Db, { passwordHash }: LinkUse, userId: string) {
  await tx
    .updateTable('users')
    .set({ password_hash: passwordHash, proven_at: nowMs })
    .where('id', '=', userId)
    .execute();
  await tx.deleteFrom('sessions').where('user_id', '=', userId).execute();
}

async function insertMember(
  { nowMs }: Database,
  tx: Db,
  { account_id, role, purpose }: Link,
  userId: string,
): Promise<void> {
  const source: MemberSource = purpose === 'invitation' ? 'invited' : 'operator';
  await tx
    .insertInto('members')
    .values({ account_id, user_id: userId, role, source, created_at: nowMs })
    .execute();
}

export interface NewLink {
  readonly id: string;
  readonly tokenHash: string;
  readonly purpose: LinkPurpose;
  readonly accountId: string;
  readonly mail: string;
  readonly role: Role;
  readonly lifeMs: number;
  readonly provesMail: boolean;
  readonly entryId: string;
  readonly letter?: NewMail | undefined;
  readonly messagesMax?: number | undefined;
}

export type FoundLink = NonNullable<Awaited<ReturnType<typeof findLink>>>;

export type LinkStore = ReturnType<typeof createLinkStore>;

export function createLinkStore(database: Database) {
  return {
    /** Makes neither link nor mail if the mail is withheld, or for `too-many`. */
    create: (link: NewLink, actor: Actor) =>
      transact(database, tx => insertLink(database, tx, link, actor)),
    find: (tokenHash: string, purpose: LinkPurpose) =>
      query(database, db => findLink(database, db, tokenHash, purpose)),
    /** Usable links: invitations, then sign-in links, the newest first. */
    listOpen: (accountId: string) =>
      query(database, async db => [
        ...(await listOpenLinks(database, db, accountId, 'invitation')),
        ...(await listOpenLinks(database, db, accountId, 'sign-in')),
      ]),
    withdraw: (accountId: string, id: string, by: { actor: Actor; entryId: string }) =>
      transact(database, tx => withdrawLink(database, tx, accountId, id, by)),
    use: (use: LinkUse) => transact(database, tx => useLink(database, tx, use)),
  };
}

async function insertLink(
  database: Database,
  tx: Db,
  link: NewLink,
  by: Actor,
): Promise<'created' | 'too-many' | Withheld> {
  const { nowMs } = database;
  const { accountId, entryId } = link;
  const { actor, log } = await requireAuthority(database, tx, { accountId, actor: by, entryId });
  const known = await tx
    .selectFrom('one_time_links')
    .select('id')
    .where('id', '=', link.id)
    .executeTakeFirst();
  if (known !== undefined) return 'created';
  if (link.purpose === 'invitation') {
    const open = await listOpenLinks(database, tx, link.accountId, 'invitation');
    if (open.length >= INVITATIONS_OPEN_MAX) return 'too-many';
  }
  const withheld = await takeLetter(database, tx, link);
  if (withheld !== undefined) return withheld;
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
      proves_mail: link.provesMail ? 1 : 0,
      made_by: actor.kind === 'person' ? actor.userId : null,
    })
    .execute();
  if (link.letter !== undefined) await insertMail(database, tx, link.letter);
  await log({
    action: link.purpose === 'invitation' ? 'person.invited' : 'sign-in-link.created',
    subject: link.mail,
    after: { role: link.role },
  });
  return 'created';
}

async function takeLetter(
  database: Database,
  tx: Db,
  { accountId, letter, messagesMax }: NewLink,
): Promise<Withheld | undefined> {
  if (letter === undefined || messagesMax === undefined) return undefined;
  const message = { kind: 'invitation', recipient: letter.recipient } as const;
  const [withheld] = await takeFromToday(database, tx, accountId, [message], messagesMax);
  return withheld;
}

async function findLink(database: Database, db: Db, tokenHash: string, purpose: LinkPurpose) {
  const row = await db
    .selectFrom('one_time_links')
    .innerJoin(selectAccounts(db).as('account'), 'account.id', 'one_time_links.account_id')
    .select(['account_id as accountId', 'account.name as accountName', 'mail', 'role'])
    .select('proves_mail')
    .where('token_hash', '=', tokenHash)
    .where('purpose', '=', purpose)
    .where('used_at', 'is', null)
    .where('expires_at', '>', database.nowMs)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { proves_mail, ...link } = row;
  return { ...link, provesMail: proves_mail === 1 };
}

async function withdrawLink(
  database: Database,
  tx: Db,
  accountId: string,
  id: string,
  by: { actor: Actor; entryId: string },
): Promise<boolean> {
  if (!isAsciiWord(id)) return false;
  const { log } = await requireAuthority(database, tx, { accountId, ...by });
  const link = await tx
    .selectFrom('one_time_links')
    .select(['mail', 'role', 'purpose'])
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  if (link === undefined) return false;
  if ((await endLinks(database, tx, [id])) === 0) return false;
  await log({
    action: `${link.purpose === 'invitation' ? 'invitation' : 'sign-in-link'}.withdrawn`,
    subject: link.mail,
    before: { role: link.role },
  });
  return true;
}

const INVITATIONS_OPEN_MAX = 50;
const SIGN_IN_LINKS_LISTED_MAX = 50;

export type OpenLink = Awaited<ReturnType<typeof listOpenLinks>>[number];

async function listOpenLinks(database: Database, db: Db, accountId: string, purpose: LinkPurpose) {
  if (!isAsciiWord(accountId)) return [];
  return openLinks(database, db, accountId)
    .select(['id', 'mail', 'role', 'purpose', 'created_by as createdBy'])
    .select(['created_at as createdAtMs', 'expires_at as expiresAtMs'])
    .where('purpose', '=', purpose)
    .orderBy('account_id', 'desc')
    .orderBy('created_at', 'desc')
    .limit(purpose === 'invitation' ? INVITATIONS_OPEN_MAX : SIGN_IN_LINKS_LISTED_MAX)
    .execute();
}

/**
 * Ends the links by which somebody who lost their right could come back: those that they made, and
 * those for their mail. The caller holds the account's row.
 * @returns their number
 */
export async function endLinksOf(
  database: Database,
  tx: Db,
  accountId: string,
  of: { readonly userId: string; readonly mail: string },
): Promise<number> {
  const rows = await openLinks(database, tx, accountId).select(['id', 'mail', 'made_by']).execute();
  const key = mailKeyOf(of.mail);
  const theirs = rows.filter(row => row.made_by === of.userId || mailKeyOf(row.mail) === key);
  return endLinks(
    database,
    tx,
    theirs.map(({ id }) => id),
  );
}

/** A withdrawn link is stored as expired, and its mail not sent. @returns how many were usable */
async function endLinks({ nowMs }: Database, tx: Db, ids: readonly string[]): Promise<number> {
  if (ids.length === 0) return 0;
  await withdrawMails(tx, ids.toSorted());
  const { numUpdatedRows } = await tx
    .updateTable('one_time_links')
    .set({ expires_at: nowMs })
    .where('id', 'in', ids.toSorted())
    .where('used_at', 'is', null)
    .where('expires_at', '>', nowMs)
    .executeTakeFirstOrThrow();
  return Number(numUpdatedRows);
}

function openLinks({ dialect, nowMs }: Database, db: Db, accountId: string) {
  return db
    .selectFrom('one_time_links')
    .where(ofAccount(dialect, accountId))
    .where('used_at', 'is', null)
    .where('expires_at', '>', nowMs);
}
