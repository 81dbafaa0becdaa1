/** What the stores of people share: the order in which an account's people are changed. */
import type { Kysely } from 'kysely';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';
import { takeAccount } from '../ledger/ledger-writer.ts';

/** Of one account. */
export const MEMBERS_MAX = 200;

/**
 * Waits for whoever changes the account's people at this moment: what is counted then stays so
 * until the transaction ends. The account's row comes first, as everywhere.
 */
export async function lockAccount(
  database: Database,
  tx: Kysely<Schema>,
  accountId: string,
): Promise<void> {
  if (database.engine.conflicts === 'certification') {
    await takeAccount(database, tx, accountId);
    return;
  }
  const account = tx.selectFrom('accounts').select('id').where('id', '=', accountId);
  // SQLite runs one writing transaction at a time.
  await (database.dialect === 'sqlite' ? account : account.forUpdate()).execute();
}
