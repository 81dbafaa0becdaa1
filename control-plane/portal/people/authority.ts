import type { ActingPerson, NamedPerson } from '../../core/accounts/actor.ts';
import { nowPlusMs } from '../../core/database/clock.ts';
import type { Database } from '../../core/database/connect.ts';
import { ofAccount } from '../../core/database/of-account.ts';
import type { Db } from '../../core/database/schema.ts';
import { matchesOne } from '../../core/database/values.ts';
import { isAlive } from '../sign-in/session-store.ts';
import { may, type Permission } from './roles.ts';

/** Why a person may not (any more), where it is asked once more than at the door. */

/** Changes that a person makes in one account, each a line of its log. */
export const CHANGES_A_MINUTE_MAX = 60;

export type AuthorityLoss =
  /** The session has ended. */
  | 'signed-out'
  /** Their role does not have the permission. */
  | 'forbidden'
  /** CHANGES_A_MINUTE_MAX. */
  | 'too-many-changes';

export class AuthorityError extends Error {
  readonly loss: AuthorityLoss;
  /** Seconds, for Retry-After. */
  readonly retryAfterS: number | undefined;

  constructor(loss: AuthorityLoss, retryAfterS?: number) {
    super(loss);
    this.name = 'AuthorityError';
    this.loss = loss;
    this.retryAfterS = retryAfterS;
  }
}

/*
 * Whether a person may still make a change, asked in the transaction that makes it: between the
 * door and the transaction they may have been removed, demoted or signed out, at another replica
 * too. How much one person changes is bounded here as well: each change is kept in the log for
 * years. The bound refuses no change that takes away a right given within it, which ends once.
 */

const MINUTE_MS = 60_000;

/** A person who is signed in, and what their change asks for. */
interface ChangingPerson extends NamedPerson {
  /** The public id of the session. */
  readonly sessionId: string;
  readonly permission: Permission;
}

/** Their changes take the session's row too, so that it does not end before the transaction does. */
export function actingPerson(person: ChangingPerson): ActingPerson {
  const { sessionId: _session, permission: _permission, ...named } = person;
  return {
    ...named,
    refusal: (database, tx, change) => refusalOf(database, tx, change, person),
  };
}

async function refusalOf(
  database: Database,
  tx: Db,
  { accountId, endsRight }: { readonly accountId: string; readonly endsRight: boolean },
  actor: ChangingPerson,
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
  { sessionId, userId }: ChangingPerson,
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

async function roleOf(tx: Db, accountId: string, { userId }: ChangingPerson) {
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
  { userId }: ChangingPerson,
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
