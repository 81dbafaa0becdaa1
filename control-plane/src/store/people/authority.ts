/**
 * Whether a person may still make a change, asked in the transaction that makes it: between the
 * door and the transaction they may have been removed, demoted or signed out, at another replica
 * too. How much one person changes is bounded here as well: each change is kept in the log for
 * years. Nothing of a person's gets into the audit log without having been asked (audit.ts).
 */
import type { ActingPerson, Actor } from '../../domain/account/actor.ts';
import { AuthorityError, CHANGES_A_MINUTE_MAX } from '../../domain/account/authority.ts';
import { may } from '../../domain/account/roles.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Db } from '../database/schema.ts';
import { matchesOne } from '../database/values.ts';
import { type AuditEntry, type Authorized, insertAuditEntry } from './audit.ts';
import { isEntered, lockAccount } from './member-rows.ts';
import { isAlive } from './session-store.ts';

const MINUTE_MS = 60_000;

interface AskedChange {
  readonly accountId: string;
  readonly actor: Actor;
  /** Of the change's audit entry: one that is there was allowed when it was made. */
  readonly entryId: string;
  /**
   * It takes away a right that was given within the bound, and that ends once: the number of
   * changes does not refuse it.
   */
  readonly endsRight?: boolean;
}

/**
 * Called first in a transaction. It takes the account's row, so that memberships stay as they are
 * until the end, and of a person the session's, so that it does not end before.
 * @throws AuthorityError
 */
export async function requireAuthority(database: Database, tx: Db, change: AskedChange) {
  const { accountId, actor: by, entryId } = change;
  await lockAccount(database, tx, accountId);
  const error = by.kind === 'person' ? await refusalOf(database, tx, change, by) : undefined;
  if (error !== undefined && !(await isEntered(tx, entryId))) throw error;
  const actor = by as Authorized;
  return {
    actor,
    /** Enters the change in the account's log, once, however often it is tried. */
    log: (entry: Pick<AuditEntry, 'action' | 'subject' | 'before' | 'after'>) =>
      insertAuditEntry(database, tx, { id: entryId, accountId, actor, ...entry }),
  };
}

async function refusalOf(
  database: Database,
  tx: Db,
  { accountId, endsRight = false }: AskedChange,
  actor: ActingPerson,
): Promise<AuthorityError | undefined> {
  if (!(await takeSession(database, tx, accountId, actor))) return new AuthorityError('signed-out');
  const role = await roleOf(tx, accountId, actor);
  if (role === undefined) return new AuthorityError('signed-out');
  if (!may(role, actor.permission)) return new AuthorityError('forbidden');
  const waitS = endsRight ? 0 : await waitOfChanges(database, tx, accountId, actor);
  return waitS === 0 ? undefined : new AuthorityError('too-many-changes', waitS);
}

/** By a change: a lock that changes nothing keeps out nobody at another member of a cluster. */
function takeSession(
  { nowMs }: Database,
  tx: Db,
  accountId: string,
  { sessionId, userId }: ActingPerson,
): Promise<boolean> {
  return matchesOne(
    tx
      .updateTable('sessions')
      .set({ seen_at: nowMs })
      .where('id', '=', sessionId)
      .where('user_id', '=', userId)
      .where('account_id', '=', accountId)
      .where(isAlive(nowMs)),
  );
}

async function roleOf(tx: Db, accountId: string, { userId }: ActingPerson) {
  const member = await tx
    .selectFrom('members')
    .innerJoin('users', 'users.id', 'members.user_id')
    .select(['members.role', 'users.disabled_at'])
    .where('members.account_id', '=', accountId)
    .where('members.user_id', '=', userId)
    .executeTakeFirst();
  return member?.disabled_at === null ? member.role : undefined;
}

/** Seconds until the person has made fewer changes than CHANGES_A_MINUTE_MAX within one minute. */
async function waitOfChanges(
  { dialect, nowMs }: Database,
  tx: Db,
  accountId: string,
  { userId }: ActingPerson,
): Promise<number> {
  const rows = await tx
    .selectFrom('audit_entries')
    .select(['created_at', nowMs.as('now')])
    .where(ofAccount(dialect, accountId))
    .where('created_at', '>', nowPlusMs(nowMs, -MINUTE_MS))
    .where('actor_user_id', '=', userId)
    .orderBy('account_id', 'desc')
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(CHANGES_A_MINUTE_MAX)
    .execute();
  const oldest = rows[CHANGES_A_MINUTE_MAX - 1];
  if (oldest === undefined) return 0;
  return Math.max(1, Math.ceil((oldest.created_at + MINUTE_MS - oldest.now) / 1000));
}
