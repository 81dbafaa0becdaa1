/**
 * What the stores of people share: the order in which people are changed. The account's row comes
 * first, then the person's, then those of links and sessions.
 */
import type { Database } from '../database/connect.ts';
import type { Db } from '../database/schema.ts';
import { takeAccount } from '../ledger/ledger-writer.ts';

/** Of one account. */
export const MEMBERS_MAX = 200;

/**
 * Waits for whoever changes the account's people at this moment: what is counted then stays so
 * until the transaction ends. The account's row comes first, as everywhere.
 */
export async function lockAccount(database: Database, tx: Db, accountId: string): Promise<void> {
  if (database.engine.conflicts === 'certification') {
    await takeAccount(database, tx, accountId);
    return;
  }
  const account = tx.selectFrom('accounts').select('id').where('id', '=', accountId);
  // SQLite runs one writing transaction at a time.
  await (database.dialect === 'sqlite' ? account : account.forUpdate()).execute();
}

/**
 * Waits for whoever changes the person at this moment, or signs them in by what is stored of their
 * password: what is answered stays so until the transaction ends. Undefined: there is nobody (any
 * more).
 */
export async function takePerson({ engine }: Database, tx: Db, userId: string) {
  await tx
    .updateTable('users')
    // As takeAccount: a lock that changes nothing keeps out nobody at another member of a cluster.
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

/** Whether the change was made: the answer to a first try may have been lost. */
export async function isEntered(tx: Db, entryId: string): Promise<boolean> {
  const entry = await tx
    .selectFrom('audit_entries')
    .select('id')
    .where('id', '=', entryId)
    .executeTakeFirst();
  return entry !== undefined;
}

const ADDRESS_LENGTH_MAX = 64;

/** Where a request came from, as ASCII columns take it: a proxy may put any text there. */
export function addressText(address: string): string {
  return address.replaceAll(/[^\x21-\x7e]/g, '?').slice(0, ADDRESS_LENGTH_MAX);
}
