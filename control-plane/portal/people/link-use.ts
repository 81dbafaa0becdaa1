/**
 * Who comes in by a link. A person is made of what was proven, never of a mail that somebody typed:
 *
 * | the link                     | nobody has the mail  | it is proven      | it was typed, never proven      |
 * |------------------------------|----------------------|-------------------|---------------------------------|
 * | the operator's sign-in link  | a person, proven     | signs in, joins   | taken over: what was there ends |
 * | an invitation that proves it | a person, proven     | by their password | taken over: what was there ends |
 * | one that the inviter saw     | a person, not proven | by their password | by their password, no account   |
 * |                              |                      |                   | that they are not in already    |
 *
 * Taken over: the sessions end, the password is the one that was typed now, or none, and the mail
 * is proven (docs/adr/0042-people-are-what-was-proven.md).
 */

import { insertAuditEntry } from '../../core/accounts/audit.ts';
import { lockAccount } from '../../core/accounts/authority.ts';
import type { Database } from '../../core/database/connect.ts';
import type { Db, Schema } from '../../core/database/schema.ts';
import { OvertakenError } from '../../core/database/transact.ts';
import { isInserted, matchesOne } from '../../core/database/values.ts';
import { insertSession, type NewSession } from '../sign-in/session-store.ts';
import type { LinkPurpose, MemberSource } from '../tables.ts';
import { mailKeyOf } from './mail-address.ts';
import { MEMBERS_MAX, takePerson } from './member-rows.ts';

export interface LinkUse {
  readonly tokenHash: string;
  readonly purpose: LinkPurpose;
  /** Of a person that is made now; a random UUID. */
  readonly newUserId: string;
  /** Of a person that is made now or taken over, from now on; null: they set none yet. */
  readonly passwordHash: string | null;
  /** What the password of who has that mail was found right by; null: it was not asked for. */
  readonly verifiedHash: string | null;
  readonly session: NewSession;
  /** The session that the browser had before; null: none. */
  readonly endedIdHash: string | null;
  readonly entryId: string;
}

export type LinkUseOutcome =
  | { readonly kind: 'signed-in'; readonly accountId: string; readonly userId: string }
  /** Used, expired, withdrawn, or never made. */
  | { readonly kind: 'unknown' }
  /** Somebody has that mail, and this was not their password. */
  | { readonly kind: 'refused' }
  /** Their mail is not proven, and the link does not prove it. */
  | { readonly kind: 'unproven' }
  | { readonly kind: 'account-full' };

type Link = Schema['one_time_links'];

/** Makes the person where they are new, the membership and the session, all of it or nothing. */
export async function useLink(database: Database, tx: Db, use: LinkUse): Promise<LinkUseOutcome> {
  const link = await tx
    .selectFrom('one_time_links')
    .selectAll()
    .where('token_hash', '=', use.tokenHash)
    .where('purpose', '=', use.purpose)
    .executeTakeFirst();
  if (link === undefined) return { kind: 'unknown' };
  const accountId = link.account_id;
  await lockAccount(database, tx, accountId);
  // The answer to a first try was lost: its session is there.
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
  const person = await personOf(database, tx, use, link, isMemberOf);
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

/** By the table above. */
async function personOf(
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

/** Whoever typed that mail before is not let in by it any more. */
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
