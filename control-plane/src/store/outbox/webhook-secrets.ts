/** Secrets of callbacks are forgotten a day after their job's end, delivered or not. */
import type { Database } from '../database/connect.ts';
import { query, transact } from '../database/transact.ts';
import type { WebhookOutboxStore } from './webhook-outbox-store.ts';

/** Without its secret a notification is never sent again: its body is of no use then. */
export const ERASED = { secret: null, secret_key_id: null, secret_erase_at: null, body: '' };

export function secretErasure(database: Database): Pick<WebhookOutboxStore, 'eraseDueSecrets'> {
  const { nowMs } = database;
  return {
    async eraseDueSecrets(limit) {
      const due = await query(database, db =>
        db
          .selectFrom('webhook_outbox')
          .select('job_id')
          .where('secret_erase_at', '<=', nowMs)
          .orderBy('secret_erase_at')
          .limit(limit)
          .execute(),
      );
      if (due.length === 0) return 0;
      // In one order everywhere: two sweepers then wait for each other and never in a circle.
      const ids = due.map(row => row.job_id).sort();
      return transact(database, async tx => {
        await tx
          .updateTable('webhook_outbox')
          .set(eb => ({
            status: 'failed',
            finished_at: nowMs,
            next_attempt_at: null,
            // An attempt that is under way holds an old fence from here on.
            lease_holder: null,
            lease_expires_at: null,
            fence: eb('fence', '+', 1),
          }))
          .where('job_id', 'in', ids)
          .where('secret_erase_at', '<=', nowMs)
          .where('status', '=', 'pending')
          .execute();
        const { numUpdatedRows } = await tx
          .updateTable('webhook_outbox')
          .set(ERASED)
          .where('job_id', 'in', ids)
          .where('secret_erase_at', '<=', nowMs)
          .executeTakeFirstOrThrow();
        return Number(numUpdatedRows);
      });
    },
  };
}
