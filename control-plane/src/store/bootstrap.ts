/**
 * The very first start: an account with credits and a key, in one transaction, only where there is
 * none.
 */
import { randomUUID } from 'node:crypto';
import { insertAccount, requireName } from './account-store.ts';
import { insertApiKey } from './api-key-store.ts';
import type { Database } from './connect.ts';
import { databaseErrorKind } from './database-errors.ts';
import { enterIn } from './ledger-store.ts';
import { transact } from './transact.ts';

/** The reference of the first grant. */
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
  try {
    return await transact(database, async tx => {
      const any = await tx.selectFrom('accounts').select('id').limit(1).executeTakeFirst();
      if (any !== undefined) return { created: false };
      const accountId = randomUUID();
      await insertAccount(database, tx, accountId, accountName);
      const reference = BOOTSTRAP_REFERENCE;
      await enterIn(database, tx, { kind: 'grant', accountId, amount: credits, reference });
      const { token } = await insertApiKey(database, tx, accountId, accountName);
      return { created: true, accountId, token };
    });
  } catch (error) {
    // Two first starts at once: the other one made the account.
    if (databaseErrorKind(error) === 'duplicate') return { created: false };
    throw error;
  }
}
