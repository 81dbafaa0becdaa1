/**
 * Claim, give back, write an attempt's end: compare-and-set on the fence, one statement each, so
 * that nothing is held while a receiver answers.
 */
import {
  type Kysely,
  type RawBuilder,
  sql,
  type UpdateQueryBuilder,
  type UpdateResult,
} from 'kysely';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';
import { query } from '../database/transact.ts';
import { matchesOne } from '../database/values.ts';
import { withAttempt } from './attempt-log.ts';
import type { AttemptEnd, NotificationClaim, WebhookOutboxStore } from './webhook-outbox-store.ts';
import { ERASED } from './webhook-secrets.ts';

type OutboxUpdate = UpdateQueryBuilder<Schema, 'webhook_outbox', 'webhook_outbox', UpdateResult>;
type Columns = Readonly<Record<string, string | number | null | RawBuilder<number>>>;

const FREE = { lease_holder: null, lease_expires_at: null };

export function notificationLeases(
  database: Database,
): Pick<WebhookOutboxStore, 'claim' | 'release' | 'delivered' | 'retryLater' | 'failed'> {
  const { nowMs } = database;
  const writeEnd = (
    claim: NotificationClaim,
    end: AttemptEnd,
    columns: Columns,
    giveUp: AbortSignal | undefined,
  ): Promise<boolean> => {
    const attempt = {
      attempts: sql<number>`attempts + 1`,
      last_status_code: end.statusCode,
      last_attempt_at: nowPlusMs(nowMs, -Math.round(end.durationMs)),
      last_duration_ms: Math.round(end.durationMs),
      attempt_log: withAttempt(database, end),
    };
    return query(
      database,
      db => matchesOne(heldBy(db, claim).set({ ...attempt, ...FREE, ...columns })),
      giveUp,
    );
  };
  return {
    claim: ({ jobId, holder, fence }, leaseMs) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('webhook_outbox')
            .set({ fence, lease_holder: holder, lease_expires_at: nowPlusMs(nowMs, leaseMs) })
            .where('job_id', '=', jobId)
            .where('fence', '=', fence - 1)
            .where('next_attempt_at', '<=', nowMs)
            .where(eb =>
              eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]),
            ),
        ),
      ),
    release: (claim, giveUp) =>
      query(database, db => matchesOne(heldBy(db, claim).set(FREE)), giveUp),
    delivered(claim, end, giveUp) {
      const ended = { status: 'delivered', next_attempt_at: null, finished_at: nowMs };
      return writeEnd(claim, end, { ...ended, ...ERASED }, giveUp);
    },
    retryLater: (claim, end, waitMs, giveUp) =>
      writeEnd(claim, end, { next_attempt_at: nowPlusMs(nowMs, waitMs) }, giveUp),
    failed(claim, end, { eraseSecret }, giveUp) {
      const ended = { status: 'failed', next_attempt_at: null, finished_at: nowMs };
      return writeEnd(claim, end, { ...ended, ...(eraseSecret ? ERASED : {}) }, giveUp);
    },
  };
}

function heldBy(db: Kysely<Schema>, { jobId, holder, fence }: NotificationClaim): OutboxUpdate {
  return db
    .updateTable('webhook_outbox')
    .where('job_id', '=', jobId)
    .where('fence', '=', fence)
    .where('lease_holder', '=', holder);
}
