/**
 * Notifications that wait for their delivery: a row is written with its job's final state
 * (job-completion) and removed with its job's row (job-retention).
 *
 * | status    | entered by                             | left by                              |
 * |-----------|----------------------------------------|--------------------------------------|
 * | pending   | the job's end                          | the erasure of its secret, to failed |
 * | delivered | -                                      | -                                    |
 * | failed    | a secret erased before a delivery      | -                                    |
 *
 * Nothing is delivered yet: rows wait until their secret's time has come.
 */
import type { Database } from './connect.ts';
import { query, transact } from './transact.ts';

export interface WebhookOutboxStore {
  /**
   * For the sweeper: forgets secrets whose time has come. A notification that still waited for its
   * delivery has failed with that, since nothing could sign it any more. The number of secrets.
   */
  eraseDueSecrets(limit: number): Promise<number>;
}

export function createWebhookOutboxStore(database: Database): WebhookOutboxStore {
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
            // Whoever may be delivering it holds an old fence from here on.
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
          .set({ secret: null, secret_key_id: null, secret_erase_at: null })
          .where('job_id', 'in', ids)
          .where('secret_erase_at', '<=', nowMs)
          .executeTakeFirstOrThrow();
        return Number(numUpdatedRows);
      });
    },
  };
}
