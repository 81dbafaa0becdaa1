/**
 * Sessions of people. The database holds only hashes of the cookies' secrets, so that a copy of it
 * signs nobody in. Its clock judges the bounds. Locks are taken in this order: the account's row,
 * the person's, those of links and sessions.
 *
 * | a session ends by        | when                                                               |
 * |--------------------------|--------------------------------------------------------------------|
 * | its idle bound           | no request for SESSION_IDLE_MS                                     |
 * | its absolute bound       | SESSION_MS after sign-in                                           |
 * | sign-out, the list       | `end`, `endOthers`                                                 |
 * | a newer one              | the person has more than SESSIONS_MAX: the oldest ends             |
 * | a membership that ended  | people-store.ts, in the same transaction                           |
 * | another password         | people-store.ts: all but the one that set it                       |
 * | a mail that is proven    | link-store.ts: those of people who only typed it                   |
 */

import { randomUUID } from 'node:crypto';
import { selectAccounts } from '@matting/accounts/account-store.ts';
import {
  type Database,
  type Db,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import {
  addressText,
  isAsciiWord,
  keepStatement,
  matchesOne,
  nowPlusMs,
} from '@matting/database/statements.ts';
import { noteRequestAccount, noteRequestSecret } from '@matting/program/request-owner.ts';
import { type ExpressionBuilder, sql } from 'kysely';
import { createSecret, hashOfSecret } from './secret.ts';

export type SignInMethod = 'password' | 'oidc' | 'link';

const SESSION_IDLE_MS = 12 * 3_600_000;
export const SESSION_MS = 7 * 24 * 3_600_000;
const SESSIONS_MAX = 20;
/** Listed accounts of a person. They always include the account that the person acts for. */
const MEMBERSHIPS_MAX = 100;
/** Longest delay of `seen_at`, to save a write for each request. */
const SEEN_LATE_MS = 60_000;
const AGENT_LENGTH_MAX = 255;

export interface NewSession {
  readonly id: string;
  readonly idHash: string;
  readonly method: SignInMethod;
  readonly address: string;
  readonly agent: string;
}

export type ListedSession = Awaited<ReturnType<typeof listSessions>>[number];

type SessionBegun =
  | { readonly kind: 'begun'; readonly accountId: string }
  | { readonly kind: 'no-account' }
  | { readonly kind: 'refused' };

export type SessionStore = ReturnType<typeof createSessionStore>;

export function createSessionStore(database: Database) {
  return {
    /**
     * The session is for the account that the person acted for last, or else their first.
     * @param by.passwordHash the hash that the password matched
     * @param by.endedIdHash the browser's session before; null: none
     */
    begin: (
      userId: string,
      session: NewSession,
      by: { readonly passwordHash: string; readonly endedIdHash: string | null },
    ) =>
      transact(database, async (tx): Promise<SessionBegun> => {
        const person = await takePerson(database, tx, userId);
        const isSame = person?.passwordHash === by.passwordHash && !person.isDisabled;
        if (!isSame) return { kind: 'refused' };
        const begun = await beginSession(database, tx, userId, session, by.endedIdHash);
        return begun === undefined ? { kind: 'no-account' } : { kind: 'begun', ...begun };
      }),
    /** Also notes the use. Undefined: there is no session, or it has ended. */
    find: (idHash: string) => query(database, db => findSession(database, db, idHash)),
    list: (userId: string) => query(database, db => listSessions(database, db, userId)),
    end: (userId: string, sessionId: string) =>
      query(database, async db => {
        if (!isAsciiWord(sessionId)) return false;
        return matchesOne(
          db.deleteFrom('sessions').where('id', '=', sessionId).where('user_id', '=', userId),
        );
      }),
    endOthers: (userId: string, sessionId: string) =>
      query(database, db => endOtherSessions(db, userId, sessionId)),
    switchAccount: (idHash: string, accountId: string) =>
      query(database, async db => {
        if (!isAsciiWord(accountId)) return false;
        return matchesOne(
          db
            .updateTable('sessions')
            .set({ account_id: accountId })
            .where('id_hash', '=', idHash)
            .where(eb =>
              eb.exists(
                eb
                  .selectFrom('members')
                  .select('members.user_id')
                  .where('members.account_id', '=', accountId)
                  .whereRef('members.user_id', '=', 'sessions.user_id'),
              ),
            ),
        );
      }),
  };
}

/** Idempotent. Ends the oldest sessions beyond SESSIONS_MAX. */
export async function insertSession(
  database: Database,
  tx: Db,
  session: NewSession,
  of: { readonly userId: string; readonly accountId: string },
): Promise<void> {
  if (await isSession(tx, session.idHash)) return;
  const { nowMs } = database;
  await tx
    .insertInto('sessions')
    .values({
      id: session.id,
      id_hash: session.idHash,
      user_id: of.userId,
      account_id: of.accountId,
      method: session.method,
      created_at: nowMs,
      seen_at: nowMs,
      expires_at: nowPlusMs(nowMs, SESSION_MS),
      address: addressText(session.address),
      agent: [...session.agent.toWellFormed()].slice(0, AGENT_LENGTH_MAX).join(''),
    })
    .execute();
  const kept = await tx
    .selectFrom('sessions')
    .select('id')
    .where('user_id', '=', of.userId)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(SESSIONS_MAX + 1)
    .execute();
  const oldest = kept[SESSIONS_MAX];
  if (oldest === undefined) return;
  await tx.deleteFrom('sessions').where('id', '=', oldest.id).execute();
}

export async function beginSession(
  database: Database,
  tx: Db,
  userId: string,
  session: NewSession,
  endedIdHash: string | null,
): Promise<{ accountId: string } | undefined> {
  const last = await tx
    .selectFrom('sessions')
    .select('account_id')
    .where('user_id', '=', userId)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(1)
    .executeTakeFirst();
  const memberships = await readMemberships(database, tx, userId, last?.account_id);
  const again = memberships.find(({ accountId }) => accountId === last?.account_id);
  const accountId = (again ?? memberships[0])?.accountId;
  if (accountId === undefined) return undefined;
  if (endedIdHash !== null) {
    await tx.deleteFrom('sessions').where('id_hash', '=', endedIdHash).execute();
  }
  await insertSession(database, tx, session, { userId, accountId });
  return { accountId };
}

async function isSession(db: Db, idHash: string): Promise<boolean> {
  const row = await db
    .selectFrom('sessions')
    .select('id')
    .where('id_hash', '=', idHash)
    .executeTakeFirst();
  return row !== undefined;
}

export async function endOtherSessions(db: Db, userId: string, sessionId: string): Promise<void> {
  await db
    .deleteFrom('sessions')
    .where('user_id', '=', userId)
    .where('id', '!=', sessionId)
    .execute();
}

export function isAlive(nowMs: Database['nowMs']) {
  return (eb: ExpressionBuilder<Schema, 'sessions'>) =>
    eb.and([
      eb('sessions.expires_at', '>', nowMs),
      eb('sessions.seen_at', '>', nowPlusMs(nowMs, -SESSION_IDLE_MS)),
    ]);
}

const ALIVE = keepStatement(({ kysely, nowMs }, { idHash }: { idHash: string }) =>
  kysely
    .selectFrom('sessions')
    .innerJoin('users', 'users.id', 'sessions.user_id')
    .select(['sessions.id', 'sessions.user_id as userId', 'sessions.method'])
    .select('sessions.account_id as accountId')
    .select(['users.mail', 'users.language', 'sessions.seen_at', nowMs.as('now')])
    .where('sessions.id_hash', '=', idHash)
    .where(isAlive(nowMs))
    .where('users.disabled_at', 'is', null),
);

async function findSession(database: Database, db: Db, idHash: string) {
  const { rows } = await db.executeQuery(ALIVE(database, { idHash }));
  const [row] = rows;
  if (row === undefined) return undefined;
  const { nowMs } = database;
  const { seen_at: seenAtMs, now, ...session } = row;
  const memberships = await readMemberships(database, db, session.userId, session.accountId);
  if (!memberships.some(({ accountId }) => accountId === session.accountId)) return undefined;
  if (now - seenAtMs > SEEN_LATE_MS) {
    await db
      .updateTable('sessions')
      .set({ seen_at: nowMs })
      .where('id_hash', '=', idHash)
      .where('seen_at', '<', now)
      .execute();
  }
  return { ...session, memberships };
}

/** Written as a range so that every engine uses the index of the person's memberships. */
const MEMBERSHIPS = keepStatement(
  ({ kysely }, { userId, from }: { userId: string; from: string }) =>
    kysely
      .selectFrom('members')
      .innerJoin(selectAccounts(kysely).as('account'), 'account.id', 'members.account_id')
      .select(['members.account_id as accountId', 'account.name as accountName', 'members.role'])
      .where('members.user_id', '=', userId)
      .where('members.account_id', '>=', from)
      .orderBy('members.account_id')
      .limit(sql.lit(MEMBERSHIPS_MAX)),
);

async function readMemberships(
  database: Database,
  db: Db,
  userId: string,
  actedFor: string | undefined,
) {
  const { rows: all } = await db.executeQuery(MEMBERSHIPS(database, { userId, from: '' }));
  const rows = [...all];
  if (actedFor !== undefined && !rows.some(({ accountId }) => accountId === actedFor)) {
    const from = await db.executeQuery(MEMBERSHIPS(database, { userId, from: actedFor }));
    rows.push(...from.rows.filter(({ accountId }) => accountId === actedFor));
  }
  return rows.sort((a, b) => (a.accountName < b.accountName ? -1 : 1));
}

function listSessions(database: Database, db: Db, userId: string) {
  return db
    .selectFrom('sessions')
    .select(['id', 'method', 'created_at as createdAtMs', 'seen_at as seenAtMs'])
    .select(['address', 'agent'])
    .where('user_id', '=', userId)
    .where(isAlive(database.nowMs))
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(SESSIONS_MAX)
    .execute();
}

export interface Browser {
  readonly address: string;
  readonly agent: string;
  readonly sessionSecret: string | undefined;
  readonly known: string | undefined;
}

/** `secret` is for the browser alone, `session` for the database. */
export function newSession(
  method: SignInMethod,
  { address, agent }: Pick<Browser, 'address' | 'agent'>,
): { readonly secret: string; readonly session: NewSession } {
  const secret = createSecret();
  const session = { id: randomUUID(), idHash: hashOfSecret(secret), method, address, agent };
  return { secret, session };
}

export function endedHashOf({ sessionSecret }: Browser): string | null {
  return sessionSecret === undefined ? null : hashOfSecret(sessionSecret);
}

export function sessionsIn(store: SessionStore) {
  return {
    async find(secret: string) {
      const hash = hashOfSecret(secret);
      noteRequestSecret(hash);
      const found = await store.find(hash);
      if (found !== undefined) noteRequestAccount(found.accountId);
      return found;
    },
  };
}

export type Sessions = ReturnType<typeof sessionsIn>;

export const MEMBERS_MAX = 200;

/**
 * Locks the person's row against other changes and sign-ins by password until the transaction ends.
 * Undefined: there is no such person.
 */
export async function takePerson({ engine }: Database, tx: Db, userId: string) {
  await tx
    .updateTable('users')
    // An update, as in takeAccount: a mere lock does not hold at another member of a cluster.
    .set(eb => ({ turns: engine.conflicts === 'locks' ? eb.ref('turns') : eb('turns', '+', 1) }))
    .where('id', '=', userId)
    .execute();
  const row = await tx
    .selectFrom('users')
    .select(['mail', 'mail_key as mailKey', 'password_hash as passwordHash'])
    .select(['proven_at', 'disabled_at'])
    .where('id', '=', userId)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { proven_at, disabled_at, ...person } = row;
  return { ...person, isProven: proven_at !== null, isDisabled: disabled_at !== null };
}
