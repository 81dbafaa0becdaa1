/**
 * Signs in people of an identity provider, whom only issuer and subject identify. Each sign-in
 * applies their groups again: memberships begin, change and end, and with them their sessions.
 */
import { insertAuditEntry, lockAccount } from '@matting/accounts/audit-log.ts';
import { type Database, type Db, OvertakenError, transact } from '@matting/database/database.ts';
import { isInserted } from '@matting/database/statements.ts';
import { endLinksOf } from '../people/link-store.ts';
import { endMembership } from '../people/people-store.ts';
import type { Role } from '../session/roles.ts';
import { beginSession, MEMBERS_MAX, type NewSession } from '../session/session-store.ts';

interface IdentityEntry {
  readonly issuer: string;
  /** 1 to 255 printable ASCII characters. */
  readonly subject: string;
  readonly mail: string;
  readonly grants: readonly { readonly accountId: string; readonly role: Role }[];
  readonly newUserId: string;
  readonly session: NewSession;
  readonly endedIdHash: string | null;
  /** The id of an account's audit entry. It must not change between calls. */
  readonly entryIdOf: (accountId: string) => string;
}

export type IdentityOutcome =
  | { readonly kind: 'signed-in'; readonly userId: string; readonly accountId: string }
  | { readonly kind: 'no-account' }
  | { readonly kind: 'refused' };

export type IdentityStore = ReturnType<typeof createIdentityStore>;

export function createIdentityStore(database: Database) {
  return { enter: (entry: IdentityEntry) => transact(database, tx => enter(database, tx, entry)) };
}

async function enter(database: Database, tx: Db, entry: IdentityEntry): Promise<IdentityOutcome> {
  const userId = await personOfIdentity(database, tx, entry);
  if (typeof userId !== 'string') return userId;
  await grantAndEnd(database, tx, entry, userId);
  const begun = await beginSession(database, tx, userId, entry.session, entry.endedIdHash);
  return begun === undefined ? { kind: 'no-account' } : { kind: 'signed-in', userId, ...begun };
}

/** Makes no row for a person without a listed group, since a provider may know anybody. */
async function personOfIdentity(
  database: Database,
  tx: Db,
  { issuer, subject, mail, newUserId, grants }: IdentityEntry,
): Promise<string | { readonly kind: 'no-account' | 'refused' }> {
  const known = await tx
    .selectFrom('identities')
    .innerJoin('users', 'users.id', 'identities.user_id')
    .select(['users.id', 'users.mail', 'users.mail_key', 'users.disabled_at'])
    .where('issuer', '=', issuer)
    .where('subject', '=', subject)
    .executeTakeFirst();
  if (known !== undefined) {
    if (known.disabled_at !== null) return { kind: 'refused' };
    // A person who also signs in by mail keeps the mail that they typed.
    if (known.mail !== mail && known.mail_key === null) {
      await tx.updateTable('users').set({ mail }).where('id', '=', known.id).execute();
    }
    return known.id;
  }
  if (grants.length === 0) return { kind: 'no-account' };
  const { nowMs: created_at } = database;
  const identity = { issuer, subject, user_id: newUserId, created_at };
  if (!(await isInserted(tx.insertInto('identities').values(identity).execute())))
    throw new OvertakenError('the same person signed in elsewhere just now');
  const none = { mail_key: null, password_hash: null, language: null, disabled_at: null };
  await tx
    .insertInto('users')
    .values({ id: newUserId, mail, created_at, ...none })
    .execute();
  return newUserId;
}

/** Does not touch memberships by invitation. */
async function grantAndEnd(database: Database, tx: Db, entry: IdentityEntry, userId: string) {
  const before = await readMemberships(tx, userId);
  const accounts = new Set([
    ...before.filter(({ source }) => source === 'oidc').map(one => one.account_id),
    ...entry.grants.map(({ accountId }) => accountId),
  ]);
  // Sorted, so that two sign-ins cannot deadlock.
  for (const accountId of [...accounts].sort()) {
    await lockAccount(database, tx, accountId);
    const had = before.find(one => one.account_id === accountId);
    const role = entry.grants.find(one => one.accountId === accountId)?.role;
    if (had !== undefined && (had.source !== 'oidc' || had.role === role)) continue;
    await changeMembership(database, tx, entry, { accountId, userId, was: had?.role, is: role });
  }
}

async function readMemberships(tx: Db, userId: string) {
  return tx
    .selectFrom('members')
    .select(['account_id', 'role', 'source'])
    .where('user_id', '=', userId)
    .execute();
}

interface Change {
  readonly accountId: string;
  readonly userId: string;
  readonly was: Role | undefined;
  readonly is: Role | undefined;
}

async function changeMembership(
  database: Database,
  tx: Db,
  entry: IdentityEntry,
  { accountId, userId, was, is }: Change,
): Promise<void> {
  if (is === undefined) await endMembership(tx, accountId, userId);
  else if (was === undefined) {
    const members = await tx
      .selectFrom('members')
      .select('user_id')
      .where('account_id', '=', accountId)
      .limit(MEMBERS_MAX)
      .execute();
    if (members.length >= MEMBERS_MAX) return;
    await tx
      .insertInto('members')
      .values({
        account_id: accountId,
        user_id: userId,
        role: is,
        source: 'oidc',
        created_at: database.nowMs,
      })
      .execute();
  } else {
    await tx
      .updateTable('members')
      .set({ role: is })
      .where('account_id', '=', accountId)
      .where('user_id', '=', userId)
      .execute();
  }
  const { mail, session } = entry;
  if (was === 'owner' || is === undefined)
    await endLinksOf(database, tx, accountId, { userId, mail });
  const actor = { kind: 'person', userId, mail, address: session.address } as const;
  await insertAuditEntry(database, tx, {
    id: entry.entryIdOf(accountId),
    accountId,
    actor,
    action: `person.${is === undefined ? 'left' : was === undefined ? 'joined' : 'changed'}-by-group`,
    subject: mail,
    before: was === undefined ? undefined : { role: was },
    after: is === undefined ? undefined : { role: is },
  });
}
