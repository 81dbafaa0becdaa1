/**
 * Checks whether a person may still make a change, in the transaction that makes it. Since the
 * route was entered they may have been removed, demoted or signed out, at another replica too.
 */

import type { ActingPerson } from '@matting/accounts/audit-log.ts';
import type { Database, Db } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
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
interface ChangingPerson extends Omit<ActingPerson, 'refusal'> {
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

type AskedChange = Parameters<ActingPerson['refusal']>[2];

async function authorityRefusalOf(
  database: Database,
  tx: Db,
  change: AskedChange,
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
async function waitOfChanges({ agesMs }: AskedChange): Promise<number> {
  const ages = await agesMs(MINUTE_MS, CHANGES_A_MINUTE_MAX);
  const oldest = ages[CHANGES_A_MINUTE_MAX - 1];
  return oldest === undefined ? 0 : Math.max(1, Math.ceil((MINUTE_MS - oldest) / 1000));
}
