/** What an account was given and what was taken back, as the ledger has it. */
import type { Database } from '@matting/database/database.ts';

/** Grants and revocations of an account, in the order of their references. */
export async function movements(database: Database, accountId: string): Promise<string[]> {
  const rows = await database.kysely
    .selectFrom('ledger_entries')
    .select(['kind', 'reference', 'amount'])
    .where('account_id', '=', accountId)
    .where('kind', 'in', ['grant', 'revoke'])
    .execute();
  return rows.map(({ kind, reference, amount }) => `${kind} ${reference} ${amount}`).sort();
}
