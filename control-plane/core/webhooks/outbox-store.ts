/**
 * A row is written in the transaction of its cause. The row of a job's end is deleted with the job,
 * a mail when its link is withdrawn, all others by age.
 *
 * | status    | entered by                        | left by                                       |
 * |-----------|-----------------------------------|-----------------------------------------------|
 * | pending   | its cause, a resend               | success; the last attempt, a final refusal,   |
 * |           |                                   | an erased secret (to failed)                  |
 * | delivered | a 2xx, or the mail server took it | -                                             |
 * | failed    | see above                         | a resend of a webhook that has its secret     |
 *
 * Each claim raises the fence, and the holder of an old fence writes nothing. Each change is a
 * compare-and-set on the fence, so the database holds no lock while a receiver answers. An attempt
 * counts once its end is written.
 */

import {
  type Database,
  type Db,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { FREE, isFree, isHeldBy, takenBy } from '@matting/database/leases.ts';
import { matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import { destinationOf } from '@matting/http/outgoing/outgoing-url.ts';
import { sql, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import { withAttempt } from './attempt-log.ts';
import type { AttemptEnd, MessageClaim, MessageLeases } from './deliver-messages.ts';
import { dueMessages } from './due-messages.ts';
import type { MessageKind } from './lane-walk.ts';
import { outboxListing } from './outbox-listing.ts';

/** The contract's 24 hours from a job's end, even if undelivered. */
const SECRET_MS = 86_400_000;

interface NewWebhook {
  /** The job's id, or a UUID of the account's event. */
  readonly id: string;
  readonly accountId: string;
  /** The type of an account's event; null: the end of a job. */
  readonly event: string | null;
  readonly url: string;
  readonly body: string;
  readonly secret: Uint8Array | null;
  readonly secretKeyId: string | null;
}

export interface AccountEventRow extends NewWebhook {
  readonly event: string;
  readonly secret: Uint8Array;
  readonly secretKeyId: string;
}

export async function insertWebhook(
  { nowMs }: Database,
  tx: Db,
  { id, accountId, event, url, body, secret, secretKeyId }: NewWebhook,
  firstWaitMs = 0,
): Promise<void> {
  await tx
    .insertInto('outbox')
    .values({
      id,
      kind: 'webhook',
      account_id: accountId,
      event,
      address: url,
      receiver: destinationOf(url),
      body,
      secret,
      secret_key_id: secretKeyId,
      secret_erase_at: secret === null ? null : nowPlusMs(nowMs, SECRET_MS),
      status: 'pending',
      attempts: 0,
      next_attempt_at: nowPlusMs(nowMs, firstWaitMs),
      fence: 0,
      created_at: nowMs,
    })
    .execute();
}

export interface NewMail {
  /** Part of the Message-ID, so it is made outside of the transaction, which may be repeated. */
  readonly id: string;
  readonly accountId: string;
  readonly recipient: string;
  readonly subject: string;
  /** Sealed plain text: it may hold a link that grants access. */
  readonly body: string;
}

export async function insertMail(
  { nowMs }: Database,
  tx: Db,
  { id, accountId, recipient, subject, body }: NewMail,
): Promise<void> {
  await tx
    .insertInto('outbox')
    .values({
      id,
      kind: 'mail',
      account_id: accountId,
      address: recipient,
      // One server takes all mails.
      receiver: '',
      subject,
      body,
      // Empty, so that an account has one lane. The body says which key sealed it.
      secret_key_id: '',
      status: 'pending',
      attempts: 0,
      next_attempt_at: nowMs,
      fence: 0,
      created_at: nowMs,
    })
    .execute();
}

/** Does not stop an attempt in progress. */
export async function withdrawMails(tx: Db, ids: readonly string[]): Promise<void> {
  await tx
    .deleteFrom('outbox')
    .where('id', 'in', ids)
    .where('kind', '=', 'mail')
    .where('status', '=', 'pending')
    .execute();
}

/** Also erases the body, since a mail may hold a link. */
const ERASED = { secret: null, secret_key_id: null, secret_erase_at: null, body: '' };
const ERROR_LENGTH_MAX = 64;

export type OutboxStore = ReturnType<typeof createOutboxStore>;

export function createOutboxStore(database: Database) {
  return {
    ...dueMessages(database),
    ...outboxListing(database),
    ...outboxLeases(database),
    /** A webhook that still waits fails. */
    eraseDueSecrets: (limit: number) => eraseDueSecrets(database, limit),
    removeOld: (kind: MessageKind, afterMs: number, limit: number) =>
      removeOld(database, kind, afterMs, limit),
    /** The early attempt does not count. */
    sendMailsNow: (limit: number) => sendMailsNow(database, limit),
  };
}

function outboxLeases(database: Database): MessageLeases {
  const { nowMs } = database;
  const ended = { next_attempt_at: null, finished_at: nowMs };
  const written = (
    { statusCode, error, durationMs }: AttemptEnd,
    update: OutboxUpdate,
    giveUp: AbortSignal | undefined,
  ): Promise<boolean> => {
    const attempt = {
      attempts: sql<number>`attempts + 1`,
      last_status_code: statusCode,
      last_error: error?.replaceAll(/[^\x21-\x7e]/g, '_').slice(0, ERROR_LENGTH_MAX) ?? null,
      last_attempt_at: nowPlusMs(nowMs, -Math.round(durationMs)),
      last_duration_ms: Math.round(durationMs),
      attempt_log: withAttempt(database, { statusCode, durationMs }),
    };
    return query(database, () => matchesOne(update.set({ ...attempt, ...FREE })), giveUp);
  };
  const held = (claim: MessageClaim) => heldBy(database.kysely, claim);
  return {
    claim: (claim, leaseMs) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('outbox')
            .set(takenBy(database, claim, leaseMs))
            .where('id', '=', claim.id)
            .where('fence', '=', claim.fence - 1)
            .where('next_attempt_at', '<=', nowMs)
            .where(isFree(database)),
        ),
      ),
    release: (claim, giveUp) => query(database, () => matchesOne(held(claim).set(FREE)), giveUp),
    delivered: (claim, end, giveUp) =>
      written(end, held(claim).set({ status: 'delivered', ...ended, ...ERASED }), giveUp),
    retryLater: (claim, end, waitMs, giveUp) =>
      written(end, held(claim).set({ next_attempt_at: nowPlusMs(nowMs, waitMs) }), giveUp),
    failed: (claim, end, { eraseSecret }, giveUp) => {
      const erased = eraseSecret ? ERASED : {};
      return written(end, held(claim).set({ status: 'failed', ...ended, ...erased }), giveUp);
    },
  };
}

type OutboxUpdate = UpdateQueryBuilder<Schema, 'outbox', 'outbox', UpdateResult>;

function heldBy(db: Db, claim: MessageClaim): OutboxUpdate {
  return db.updateTable('outbox').where('id', '=', claim.id).where(isHeldBy(claim));
}

async function eraseDueSecrets(database: Database, limit: number): Promise<number> {
  const { nowMs } = database;
  const due = await query(database, db =>
    db
      .selectFrom('outbox')
      .select('id')
      .where('secret_erase_at', '<=', nowMs)
      .orderBy('secret_erase_at')
      .limit(limit)
      .execute(),
  );
  if (due.length === 0) return 0;
  // Every statement takes rows in the order of their ids; otherwise sweepers could deadlock.
  const ids = due.map(row => row.id).sort();
  return transact(database, async tx => {
    await tx
      .updateTable('outbox')
      .set(eb => ({
        status: 'failed',
        finished_at: nowMs,
        next_attempt_at: null,
        ...FREE,
        fence: eb('fence', '+', 1),
      }))
      .where('id', 'in', ids)
      .where('secret_erase_at', '<=', nowMs)
      .where('status', '=', 'pending')
      .execute();
    const { numUpdatedRows } = await tx
      .updateTable('outbox')
      .set(ERASED)
      .where('id', 'in', ids)
      .where('secret_erase_at', '<=', nowMs)
      .executeTakeFirstOrThrow();
    return Number(numUpdatedRows);
  });
}

/** Webhooks of jobs are deleted with the jobs, at the same age. */
async function removeOld(database: Database, kind: MessageKind, afterMs: number, limit: number) {
  const rows = await query(database, db =>
    db
      .selectFrom('outbox')
      .select(['id', 'event'])
      .where('kind', '=', kind)
      .where('finished_at', '<=', nowPlusMs(database.nowMs, -afterMs))
      .orderBy('finished_at')
      .limit(limit)
      .execute(),
  );
  // Sorted, as above.
  const ids = rows.flatMap(row => (kind === 'mail' || row.event !== null ? row.id : [])).sort();
  if (ids.length === 0) return 0;
  return transact(database, async tx => {
    const { numDeletedRows } = await tx
      .deleteFrom('outbox')
      .where('id', 'in', ids)
      .where('finished_at', 'is not', null)
      .executeTakeFirstOrThrow();
    return Number(numDeletedRows);
  });
}

async function sendMailsNow(database: Database, limit: number): Promise<number> {
  const { nowMs } = database;
  const rows = await query(database, db =>
    db
      .selectFrom('outbox')
      .select('id')
      .where('kind', '=', 'mail')
      .where('next_attempt_at', '>', nowMs)
      .where('attempts', '>', 0)
      .where('lease_holder', 'is', null)
      .orderBy('next_attempt_at')
      .limit(limit)
      .execute(),
  );
  // Sorted, as above.
  const ids = rows.map(row => row.id).sort();
  if (ids.length > 0) {
    await query(database, db =>
      db
        .updateTable('outbox')
        .set({ next_attempt_at: nowMs, attempts: sql<number>`attempts - 1` })
        .where('id', 'in', ids)
        .where('attempts', '>', 0)
        .where('next_attempt_at', '>', nowMs)
        .where('lease_holder', 'is', null)
        .execute(),
    );
  }
  return ids.length;
}
