/**
 * Cancels batches and writes the account's log. Any replica then ends the items that no node has
 * begun, without a charge (run-batches.ts).
 */

import { randomUUID } from 'node:crypto';
import { type Actor, insertAuditEntry, requireAuthority } from '@matting/accounts/audit-log.ts';
import type { Package } from '@matting/core/package.ts';
import { type Database, type Db, type Schema, transact } from '@matting/database/database.ts';
import { isAsciiWord, matchesOne } from '@matting/database/statements.ts';
import { type Batch, type GroupReading, readBatch } from './batch.ts';
import { forgetAddresses } from './submit-again.ts';

type Canceller = Pick<Parameters<typeof insertAuditEntry>[2], 'accountId' | 'actor'>;
type Which = Partial<Pick<Schema['batches'], 'id' | 'api_key_id'>>;

export const cancelWithKey: NonNullable<Package['keyRevoked']> = (
  database,
  tx,
  { apiKeyId, ...by },
) => cancelOpenBatches(database, tx, by, { api_key_id: apiKeyId });

/** The transaction holds the account's row, so no new batch can open meanwhile. */
async function cancelOpenBatches(
  database: Database,
  tx: Db,
  by: Canceller,
  which: Which,
): Promise<void> {
  const open = await tx
    .selectFrom('batches')
    .select('id')
    .where('account_id', '=', by.accountId)
    .where('open_at', '>', 0)
    .where(eb => eb.and(which))
    .orderBy('id')
    .execute();
  for (const { id: subject } of open) {
    const cancelled = await matchesOne(
      tx
        .updateTable('batches')
        .set({ cancelled_at: database.nowMs })
        .where('id', '=', subject)
        .where('cancelled_at', 'is', null)
        .where('finished_at', 'is', null),
    );
    await forgetAddresses(tx, subject);
    const entry = { id: randomUUID(), action: 'batch.cancelled', subject };
    // An earlier try that cancelled it also wrote the entry.
    if (cancelled) await insertAuditEntry(database, tx, { ...by, ...entry });
  }
}

export function batchCancellation(database: Database, groups: GroupReading) {
  return {
    /**
     * Undefined: the account has no such batch. A cancelled or finished batch does not change.
     * @param of.accountId absent: any account's
     */
    cancelBatchBy: (
      batchId: string,
      { actor, accountId }: { readonly actor: Actor; readonly accountId?: string },
    ): Promise<Batch | undefined> => {
      const entryId = randomUUID();
      return transact(database, async tx => {
        const found = isAsciiWord(batchId) && (await readBatch(groups, tx, { id: batchId }));
        if (!found || found.accountId !== (accountId ?? found.accountId)) return undefined;
        const request = { accountId: found.accountId, actor, entryId, endsRight: true };
        const { actor: authorized } = await requireAuthority(database, tx, request);
        const by = { accountId: found.accountId, actor: authorized };
        await cancelOpenBatches(database, tx, by, { id: batchId });
        return readBatch(groups, tx, { id: batchId });
      });
    },
  };
}
