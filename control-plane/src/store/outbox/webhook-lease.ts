/**
 * Claim, give back, write an attempt's end: compare-and-set on the fence, one statement each, so
 * that nothing is held while a receiver thinks.
 */
import { type RawBuilder, sql, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';
import { query } from '../database/transact.ts';
import type { AttemptEnd, NotificationClaim } from './webhook-outbox-store.ts';

type OutboxUpdate = UpdateQueryBuilder<Schema, 'webhook_outbox', 'webhook_outbox', UpdateResult>;
type Columns = Readonly<Record<string, string | number | null | RawBuilder<number>>>;

/** Without its secret a notification is never sent again: its body is of no use then. */
export const ERASED = { secret: null, secret_key_id: null, secret_erase_at: null, body: '' };
const FREE = { lease_holder: null, lease_expires_at: null };

export class NotificationLeases {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
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

  release(claim: NotificationClaim, giveUp?: AbortSignal): Promise<boolean> {
    return this.#update(update => heldBy(update, claim).set(FREE), giveUp);
  }

  delivered(claim: NotificationClaim, end: AttemptEnd, giveUp?: AbortSignal): Promise<boolean> {
    const columns = {
      status: 'delivered',
      next_attempt_at: null,
      finished_at: this.#database.nowMs,
      ...ERASED,
    };
    return this.#end(claim, end, columns, giveUp);
  }

  retryLater(
    claim: NotificationClaim,
    end: AttemptEnd,
    waitMs: number,
    giveUp?: AbortSignal,
  ): Promise<boolean> {
    const columns = { next_attempt_at: nowPlusMs(this.#database.nowMs, waitMs) };
    return this.#end(claim, end, columns, giveUp);
  }

  failed(
    claim: NotificationClaim,
    end: AttemptEnd,
    { eraseSecret }: { readonly eraseSecret: boolean },
    giveUp?: AbortSignal,
  ): Promise<boolean> {
    const columns = {
      status: 'failed',
      next_attempt_at: null,
      finished_at: this.#database.nowMs,
      ...(eraseSecret ? ERASED : {}),
    };
    return this.#end(claim, end, columns, giveUp);
  }

  #end(
    claim: NotificationClaim,
    end: AttemptEnd,
    columns: Columns,
    giveUp: AbortSignal | undefined,
  ): Promise<boolean> {
    const attempt = {
      attempts: sql<number>`attempts + 1`,
      last_status_code: end.statusCode,
      last_attempt_at: nowPlusMs(this.#database.nowMs, -Math.round(end.durationMs)),
      last_duration_ms: Math.round(end.durationMs),
    };
    return this.#update(
      update => heldBy(update, claim).set({ ...attempt, ...FREE, ...columns }),
      giveUp,
    );
  }

  /** True when the one row matched. */
  async #update(
    build: (update: OutboxUpdate) => OutboxUpdate,
    giveUp?: AbortSignal,
  ): Promise<boolean> {
    const { numUpdatedRows } = await query(
      this.#database,
      db => build(db.updateTable('webhook_outbox')).executeTakeFirstOrThrow(),
      giveUp,
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
