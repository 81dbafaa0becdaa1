/**
 * The very first start: an account with credits and a key, in one transaction, only where there is
 * none.
 */
import { randomUUID } from 'node:crypto';
import { type Database, type Db, transact } from '../../database/database.ts';
import { databaseErrorKind } from '../../database/engines.ts';
import { insertApiKey } from '../keys/api-key-store.ts';
import { createApiKeyToken } from '../keys/authenticate.ts';
import { enterOperatorEntry } from '../ledger/ledger-writer.ts';
import { insertAccount, requireName } from './account-store.ts';

/** Reference of the first grant. */
const BOOTSTRAP_REFERENCE = 'bootstrap';

export type BootstrapOutcome =
  | { readonly created: true; readonly accountId: string; readonly token: string }
  | { readonly created: false };

/** @param credits at least 1. */
export async function bootstrap(
  database: Database,
  accountName: string,
  credits: number,
): Promise<BootstrapOutcome> {
  requireName(accountName);
  // Made once, outside of what is repeated: after a lost answer the account exists, and only this
  // call knows its key.
  const accountId = randomUUID();
  const key = createApiKeyToken();
  const ours: BootstrapOutcome = { created: true, accountId, token: key.text };
  try {
    return await transact(database, async tx => {
      if (await isThere(tx, accountId)) return ours;
      const any = await tx.selectFrom('accounts').select('id').limit(1).executeTakeFirst();
      if (any !== undefined) return { created: false };
      await insertAccount(database, tx, accountId, accountName);
      const reference = BOOTSTRAP_REFERENCE;
      const grant = { kind: 'grant', accountId, amount: credits, reference } as const;
      await enterOperatorEntry(database, tx, grant);
      await insertApiKey(database, tx, accountId, accountName, key);
      return ours;
    });
  } catch (error) {
    // Two first starts at once: the other one made the account.
    if (databaseErrorKind(error) === 'duplicate') return { created: false };
    throw error;
  }
}

async function isThere(tx: Db, accountId: string): Promise<boolean> {
  const row = await tx
    .selectFrom('accounts')
    .select('id')
    .where('id', '=', accountId)
    .executeTakeFirst();
  return row !== undefined;
}
