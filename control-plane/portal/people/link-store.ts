/**
 * One-time links: an invitation to an account, or the sign-in that an operator hands out. Only the
 * hash of a link's token is stored; who has the link can use it (link-use.ts), once, until it
 * expires.
 */
import type { Actor } from '../../core/accounts/actor.ts';
import { requireAuthority } from '../../core/accounts/authority.ts';
import { nowPlusMs } from '../../core/database/clock.ts';
import type { Database } from '../../core/database/connect.ts';
import { ofAccount } from '../../core/database/of-account.ts';
import type { Db } from '../../core/database/schema.ts';
import { query, transact } from '../../core/database/transact.ts';
import { isAsciiWord } from '../../core/database/values.ts';
import { insertMail, type NewMail, withdrawMails } from '../../core/webhooks/outbox-rows.ts';
import { takeFromToday, type Withheld } from '../alerts/message-counts.ts';
import type { LinkPurpose } from '../tables.ts';
import { type LinkUse, type LinkUseOutcome, useLink } from './link-use.ts';
import { mailKeyOf } from './mail-address.ts';
import type { Role } from './roles.ts';

export type { LinkUse, LinkUseOutcome };

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
  /**
   * Whether who opens it has that mail: nobody but the mail's reader sees it, or the operator hands
   * it out.
   */
  readonly provesMail: boolean;
  /** Of the audit entry. */
  readonly entryId: string;
  /** Brings the link, under its id; absent: no mail does. */
  readonly letter?: NewMail | undefined;
  /** As many mails as the account sends a day; absent: it is not of the account, but the operator's. */
  readonly messagesMax?: number | undefined;
}

export type FoundLink = NonNullable<Awaited<ReturnType<typeof findLink>>>;

export type LinkStore = ReturnType<typeof createLinkStore>;

export function createLinkStore(database: Database) {
  return {
    /** Withheld, as `too-many`: there is neither link nor mail. */
    create: (link: NewLink, actor: Actor) =>
      transact(database, tx => insertLink(database, tx, link, actor)),
    find: (tokenHash: string, purpose: LinkPurpose) =>
      query(database, db => findLink(database, db, tokenHash, purpose)),
    /** Those that can still be used: invitations, then sign-in links, newest first. */
    listOpen: (accountId: string) =>
      query(database, async db => [
        ...(await listOpenLinks(database, db, accountId, 'invitation')),
        ...(await listOpenLinks(database, db, accountId, 'sign-in')),
      ]),
    /** False: the account has no such link (any more). */
    withdraw: (accountId: string, id: string, by: { actor: Actor; entryId: string }) =>
      transact(database, tx => withdrawLink(database, tx, accountId, id, by)),
    /** Makes the person where they are new, the membership and the session, all of it or nothing. */
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
  const message = { kind: 'mail', recipient: letter.recipient } as const;
  const [withheld] = await takeFromToday(database, tx, accountId, [message], messagesMax);
  return withheld;
}

async function findLink(database: Database, db: Db, tokenHash: string, purpose: LinkPurpose) {
  const row = await db
    .selectFrom('one_time_links')
    .innerJoin('accounts', 'accounts.id', 'one_time_links.account_id')
    .select(['account_id as accountId', 'accounts.name as accountName', 'mail', 'role'])
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

/** Invitations of one account that nobody has accepted yet. */
export const INVITATIONS_OPEN_MAX = 50;
/** Sign-in links, which the operator makes, that one account's list shows, the newest. */
const SIGN_IN_LINKS_LISTED_MAX = 50;

export type OpenLink = Awaited<ReturnType<typeof listOpenLinks>>[number];

/** Newest first. */
export async function listOpenLinks(
  database: Database,
  db: Db,
  accountId: string,
  purpose: LinkPurpose,
) {
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
 * Ends the links by which somebody who lost their right would come back: those that they made, and
 * those for their mail. The account's row is taken.
 * @returns how many
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

/**
 * A link that was withdrawn is one that has expired, and what waits to bring it is not sent.
 * @returns how many could still be used
 */
export async function endLinks(
  { nowMs }: Database,
  tx: Db,
  ids: readonly string[],
): Promise<number> {
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
