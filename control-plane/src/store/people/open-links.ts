/** Links that can still be used: what owners see of them, and how they end. */
import type { Kysely } from 'kysely';
import { mailKeyOf } from '../../domain/account/mail-address.ts';
import type { Role } from '../../domain/account/roles.ts';
import { withdrawMails } from '../alerts/mail-rows.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { LinkPurpose, Schema } from '../database/schema.ts';
import { isAsciiWord } from '../database/values.ts';

/** Invitations of one account that nobody has accepted yet. */
export const INVITATIONS_OPEN_MAX = 50;
/** Sign-in links, which the operator makes, that one account's list shows, the newest. */
const SIGN_IN_LINKS_LISTED_MAX = 50;

export interface OpenLink {
  readonly id: string;
  readonly purpose: LinkPurpose;
  readonly mail: string;
  readonly role: Role;
  readonly createdBy: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

/** Newest first. */
export async function listOpenLinks(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
  purpose: LinkPurpose,
): Promise<OpenLink[]> {
  if (!isAsciiWord(accountId)) return [];
  const rows = await openLinks(database, db, accountId)
    .select(['id', 'mail', 'role', 'created_by', 'created_at', 'expires_at'])
    .where('purpose', '=', purpose)
    .orderBy('account_id', 'desc')
    .orderBy('created_at', 'desc')
    .limit(purpose === 'invitation' ? INVITATIONS_OPEN_MAX : SIGN_IN_LINKS_LISTED_MAX)
    .execute();
  return rows.map(row => ({
    id: row.id,
    purpose,
    mail: row.mail,
    role: row.role,
    createdBy: row.created_by,
    createdAtMs: row.created_at,
    expiresAtMs: row.expires_at,
  }));
}

/**
 * Ends the links by which somebody who lost their right would come back: those that they made, and
 * those for their mail. The account's row is taken.
 * @returns how many
 */
export async function endLinksOf(
  database: Database,
  tx: Kysely<Schema>,
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
  tx: Kysely<Schema>,
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

function openLinks({ dialect, nowMs }: Database, db: Kysely<Schema>, accountId: string) {
  return db
    .selectFrom('one_time_links')
    .where(ofAccount(dialect, accountId))
    .where('used_at', 'is', null)
    .where('expires_at', '>', nowMs);
}
