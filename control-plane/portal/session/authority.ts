/**
 * Checks whether a person may still make a change, in the transaction that makes it. Since the
 * route was entered they may have been removed, demoted or signed out, at another replica too.
 */

import type { ActingPerson, NamedPerson } from '@matting/core/accounts/audit.ts';
import type { Database, Db } from '@matting/database/database.ts';
import { matchesOne, nowPlusMs, ofAccount } from '@matting/database/statements.ts';
import { may, type Permission } from './roles.ts';
import { isAlive } from './session-store.ts';

/** A person may make so many changes in one account a minute; each is a line of its log. */
const CHANGES_A_MINUTE_MAX = 60;

/** signed-out: the session has ended. forbidden: the role does not have the permission. */
type AuthorityLoss = 'signed-out' | 'forbidden' | 'too-many-changes';

export class AuthorityError extends Error {
  readonly loss: AuthorityLoss;
  /** The seconds go into Retry-After. */
  readonly retryAfterS: number | undefined;

  constructor(loss: AuthorityLoss, retryAfterS?: number) {
    super(loss);
    this.name = 'AuthorityError';
    this.loss = loss;
    this.retryAfterS = retryAfterS;
  }
}

const MINUTE_MS = 60_000;

/** A person who is signed in, with the permission that their change needs. */
interface ChangingPerson extends NamedPerson {
  /** The public id of the session. */
  readonly sessionId: string;
  readonly permission: Permission;
}

/**
 * The check takes the row of the session, so that the session does not end before the change is
 * made. The log keeps changes for years, so they are bounded. The bound refuses no change that
 * takes a right away.
 */
export function actingPerson(person: ChangingPerson): ActingPerson {
  const { sessionId: _session, permission: _permission, ...named } = person;
  return {
    ...named,
    refusal: (database, tx, change) => authorityRefusalOf(database, tx, change, person),
  };
}

async function authorityRefusalOf(
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

/** Takes the row by a change, since a mere lock keeps out nobody at another member of a cluster. */
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

/** Counts seconds until the person has made fewer than CHANGES_A_MINUTE_MAX within one minute. */
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
