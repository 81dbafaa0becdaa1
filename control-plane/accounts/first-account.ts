import { randomUUID } from 'node:crypto';
import { type Database, type Db, transact } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { insertAccount, requireName } from './account-store.ts';
import { createApiKeyToken } from './keys/api-key-token.ts';
import { insertApiKey } from './keys/change-api-keys.ts';
import { enterOperatorEntry } from './ledger/ledger-writer.ts';
import type {} from './tables.ts';

type FirstAccount =
  | { readonly created: true; readonly accountId: string; readonly token: string }
  | { readonly created: false };

/**
 * Creates an account, its key and its credits in a database without accounts.
 * @param credits at least 1
 */
export async function createFirstAccount(
  database: Database,
  accountName: string,
  credits: number,
): Promise<FirstAccount> {
  requireName(accountName);
  // Created outside the repeated part: after a lost answer the account exists, and only this call
  // has its key.
  const accountId = randomUUID();
  const key = createApiKeyToken();
  const created: FirstAccount = { created: true, accountId, token: key.text };
  try {
    return await transact(database, async tx => {
      if (await accountExists(tx, accountId)) return created;
      const any = await tx.selectFrom('accounts').select('id').limit(1).executeTakeFirst();
      if (any !== undefined) return { created: false };
      await insertAccount(database, tx, accountId, accountName);
      const grant = { accountId, amount: credits, reference: 'bootstrap' };
      await enterOperatorEntry(database, tx, { kind: 'grant', ...grant });
      await insertApiKey(database, tx, accountId, accountName, key);
      return created;
    });
  } catch (error) {
    // Another first start was faster.
    if (databaseErrorKind(error) === 'duplicate') return { created: false };
    throw error;
  }
}

async function accountExists(tx: Db, accountId: string): Promise<boolean> {
  const row = await tx
    .selectFrom('accounts')
    .select('id')
    .where('id', '=', accountId)
    .executeTakeFirst();
  return row !== undefined;
}
