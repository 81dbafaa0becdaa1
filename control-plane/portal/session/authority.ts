/**
 * Checks in the transaction of a change whether the person may still make it. Since the request
 * began, they may have been removed, demoted or signed out, also at another replica.
 */

import type { ActingPerson } from '@matting/accounts/audit-log.ts';
import type { Database, Db } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import { may, type Permission } from './roles.ts';
import { isAlive } from './session-store.ts';

/** Bounds a person's changes of an account, since the account's log keeps each. */
const CHANGES_A_MINUTE_MAX = 60;

type AuthorityLoss = 'signed-out' | 'forbidden' | 'too-many-changes';

export class AuthorityError extends Error {
  readonly loss: AuthorityLoss;
  readonly retryAfterS: number | undefined;

  constructor(loss: AuthorityLoss, retryAfterS?: number) {
    super(loss);
    this.name = 'AuthorityError';
    this.loss = loss;
    this.retryAfterS = retryAfterS;
  }
}

const MINUTE_MS = 60_000;

interface ChangingPerson extends Omit<ActingPerson, 'refusal'> {
  /** The public id, not the secret. */
  readonly sessionId: string;
  readonly permission: Permission;
}

/**
 * Locks the session's row, so that the session cannot end before the change is made. The rate is
 * bounded because the log keeps changes for years. It never delays a change that removes a right.
 */
export function actingPerson(person: ChangingPerson): ActingPerson {
  const { sessionId: _session, permission: _permission, ...named } = person;
  return {
    ...named,
    refusal: (database, tx, change) => authorityRefusalOf(database, tx, change, person),
  };
}

type RequestedChange = Parameters<ActingPerson['refusal']>[2];

async function authorityRefusalOf(
  database: Database,
  tx: Db,
  change: RequestedChange,
  actor: ChangingPerson,
): Promise<AuthorityError | undefined> {
  const { accountId, endsRight } = change;
  if (!(await takeSession(database, tx, accountId, actor))) return new AuthorityError('signed-out');
  const role = await roleOf(tx, accountId, actor);
  if (role === undefined) return new AuthorityError('signed-out');
  if (!may(role, actor.permission)) return new AuthorityError('forbidden');
  const waitS = endsRight ? 0 : await waitOfChanges(change);
  return waitS === 0 ? undefined : new AuthorityError('too-many-changes', waitS);
}

/** An update, since a mere lock does not hold at another member of a cluster. */
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

async function waitOfChanges({ agesMs }: RequestedChange): Promise<number> {
  const ages = await agesMs(MINUTE_MS, CHANGES_A_MINUTE_MAX);
  const oldest = ages[CHANGES_A_MINUTE_MAX - 1];
  return oldest === undefined ? 0 : Math.max(1, Math.ceil((MINUTE_MS - oldest) / 1000));
}
