/**
 * Claim, give back, write an attempt's end: compare-and-set on the fence, one statement each, so
 * that nothing is held while a receiver thinks.
 */
import { type RawBuilder, sql, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import { nowPlusMs } from './clock.ts';
import type { Database } from './connect.ts';
import type { Schema } from './schema.ts';
import { query } from './transact.ts';
import type {
  AttemptEnd,
  DueNotification,
  DueQuery,
  NotificationClaim,
} from './webhook-outbox-store.ts';

type OutboxUpdate = UpdateQueryBuilder<Schema, 'webhook_outbox', 'webhook_outbox', UpdateResult>;
type Columns = Readonly<Record<string, string | number | null | RawBuilder<number>>>;

const ERASED = { secret: null, secret_key_id: null, secret_erase_at: null };
const FREE = { lease_holder: null, lease_expires_at: null };

export class NotificationLeases {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async listDue(due: DueQuery): Promise<DueNotification[]> {
    const { nowMs } = this.#database;
    const { limit, secretKeyIds, exceptReceivers, exceptAccounts } = due;
    const rows = await query(this.#database, db => {
      let select = db
        .selectFrom('webhook_outbox')
        .select(['job_id', 'account_id', 'callback_url', 'receiver', 'body', 'attempts', 'fence'])
        .select(['secret', 'secret_key_id', 'created_at'])
        .select(() => nowMs.as('read_at'))
        .where('next_attempt_at', '<=', nowMs)
        .where('secret_key_id', 'in', [...secretKeyIds])
        // Past that it is the sweeper's, which may come a minute later.
        .where('secret_erase_at', '>', nowMs)
        .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]));
      if (exceptReceivers.length > 0) {
        select = select.where('receiver', 'not in', [...exceptReceivers]);
      }
      if (exceptAccounts.length > 0) {
        select = select.where('account_id', 'not in', [...exceptAccounts]);
      }
      return select.orderBy('next_attempt_at').limit(limit).execute();
    });
    return rows.flatMap(row =>
      row.secret === null || row.secret_key_id === null
        ? []
        : [
            {
              jobId: row.job_id,
              accountId: row.account_id,
              callbackUrl: row.callback_url,
              receiver: row.receiver,
              body: row.body,
              secret: row.secret,
              secretKeyId: row.secret_key_id,
              attempts: row.attempts,
              fence: row.fence,
              createdAtMs: row.created_at,
              readAtMs: row.read_at,
            },
          ],
    );
  }

  claim({ jobId, holder, fence }: NotificationClaim, leaseMs: number): Promise<boolean> {
    const { nowMs } = this.#database;
    return this.#update(update =>
      update
        .set({ fence, lease_holder: holder, lease_expires_at: nowPlusMs(nowMs, leaseMs) })
        .where('job_id', '=', jobId)
        .where('fence', '=', fence - 1)
        .where('next_attempt_at', '<=', nowMs)
        .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)])),
    );
  }

  release(claim: NotificationClaim): Promise<boolean> {
    return this.#update(update => heldBy(update, claim).set(FREE));
  }

  delivered(claim: NotificationClaim, end: AttemptEnd): Promise<boolean> {
    return this.#end(claim, end, {
      status: 'delivered',
      next_attempt_at: null,
      finished_at: this.#database.nowMs,
      ...ERASED,
    });
  }

  retryLater(claim: NotificationClaim, end: AttemptEnd, waitMs: number): Promise<boolean> {
    return this.#end(claim, end, { next_attempt_at: nowPlusMs(this.#database.nowMs, waitMs) });
  }

  failed(
    claim: NotificationClaim,
    end: AttemptEnd,
    { eraseSecret }: { readonly eraseSecret: boolean },
  ): Promise<boolean> {
    return this.#end(claim, end, {
      status: 'failed',
      next_attempt_at: null,
      finished_at: this.#database.nowMs,
      ...(eraseSecret ? ERASED : {}),
    });
  }

  #end(claim: NotificationClaim, end: AttemptEnd, columns: Columns): Promise<boolean> {
    return this.#update(update =>
      heldBy(update, claim).set({
        attempts: sql<number>`attempts + 1`,
        last_status_code: end.statusCode,
        last_attempt_at: nowPlusMs(this.#database.nowMs, -Math.round(end.durationMs)),
        ...FREE,
        ...columns,
      }),
    );
  }

  /** True when the one row matched. */
  async #update(build: (update: OutboxUpdate) => OutboxUpdate): Promise<boolean> {
    const { numUpdatedRows } = await query(this.#database, db =>
      build(db.updateTable('webhook_outbox')).executeTakeFirstOrThrow(),
    );
    return numUpdatedRows === 1n;
  }
}

function heldBy(update: OutboxUpdate, { jobId, holder, fence }: NotificationClaim): OutboxUpdate {
  return update
    .where('job_id', '=', jobId)
    .where('fence', '=', fence)
    .where('lease_holder', '=', holder);
}
