/**
 * Rows of webhook_outbox that tell of an account instead of a job's end: `job_id` is the event's own
 * id, and `event` its type. They are delivered, shown and sent again as the others are; no job's row
 * takes them along, so the sweeper removes them by their age.
 */
import type { Kysely } from 'kysely';
import type { AccountEvent } from '../../domain/account/balance-alerts.ts';
import { destinationOf } from '../../domain/url-destination.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';
import { query, transact } from '../database/transact.ts';
import type { WebhookOutboxStore } from './webhook-outbox-store.ts';

/** As a callback's: delivered or not, it is erased then. */
const SECRET_MS = 86_400_000;

export interface AccountEventRow {
  /** A UUID that no job and no other event has. */
  readonly id: string;
  readonly accountId: string;
  readonly event: AccountEvent;
  readonly url: string;
  /** Sealed. */
  readonly body: string;
  /** Sealed, bound to the event's id. */
  readonly secret: Uint8Array;
  readonly secretKeyId: string;
}

export async function insertAccountEvent(
  { nowMs }: Database,
  tx: Kysely<Schema>,
  { id, accountId, event, url, body, secret, secretKeyId }: AccountEventRow,
): Promise<void> {
  await tx
    .insertInto('webhook_outbox')
    .values({
      job_id: id,
      account_id: accountId,
      event,
      callback_url: url,
      receiver: destinationOf(url),
      body,
      secret,
      secret_key_id: secretKeyId,
      secret_erase_at: nowPlusMs(nowMs, SECRET_MS),
      status: 'pending',
      attempts: 0,
      next_attempt_at: nowMs,
      fence: 0,
      created_at: nowMs,
    })
    .execute();
}

const FINAL = ['delivered', 'failed'] as const;

/**
 * Found among all that are as old: those of jobs go with their jobs' rows at the same age, so there
 * are few of them.
 */
export function accountEventRemoval(
  database: Database,
): Pick<WebhookOutboxStore, 'removeOldEvents'> {
  return {
    async removeOldEvents(afterMs, limit) {
      const old: string[] = [];
      for (const status of FINAL) {
        const rows = await query(database, db =>
          db
            .selectFrom('webhook_outbox')
            .select(['job_id', 'event'])
            .where('status', '=', status)
            .where('created_at', '<=', nowPlusMs(database.nowMs, -afterMs))
            .orderBy('created_at')
            .limit(limit)
            .execute(),
        );
        old.push(...rows.filter(({ event }) => event !== null).map(row => row.job_id));
      }
      // In one order everywhere: two sweepers then wait for each other and never in a circle.
      const ids = old.sort().slice(0, limit);
      if (ids.length === 0) return 0;
      return transact(database, async tx => {
        const { numDeletedRows } = await tx
          .deleteFrom('webhook_outbox')
          .where('job_id', 'in', ids)
          .where('status', 'in', FINAL)
          .executeTakeFirstOrThrow();
        return Number(numDeletedRows);
      });
    },
  };
}
