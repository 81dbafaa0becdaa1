/** The end of a key whose time is shorter than its job's row. */
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import type { JobStore } from './job-store.ts';

export function jobKeys(database: Database): Pick<JobStore, 'freeKey'> {
  return {
    async freeKey(jobId, idempotencyKeyHash, rememberedMs) {
      // The rule of domain/key-memory.ts. A job that was made under the key meanwhile is another row.
      await query(database, db =>
        db
          .updateTable('jobs')
          .set({ idempotency_key_hash: null })
          .where('id', '=', jobId)
          .where('idempotency_key_hash', '=', idempotencyKeyHash)
          .where('finished_at', 'is not', null)
          .where(eb =>
            eb.or([
              eb('created_at', '<=', nowPlusMs(database.nowMs, -rememberedMs)),
              eb('expires_at', '<=', database.nowMs),
            ]),
          )
          .execute(),
      );
    },
  };
}
