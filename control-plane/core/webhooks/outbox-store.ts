/**
 * Messages that wait for their delivery: webhooks, which tell of a job's end or of an event of an
 * account, and mails. A row is written with what it tells of in one transaction. That of a
 * job's end goes with its job's row (job-store.ts), a mail with the link it tells of where that is withdrawn;
 * the others are removed by their age.
 *
 * | status    | entered by                        | left by                                       |
 * |-----------|-----------------------------------|-----------------------------------------------|
 * | pending   | what it tells of, retry           | an attempt that succeeded (to delivered), the |
 * |           |                                   | last one or a final refusal, or the erasure   |
 * |           |                                   | of its secret (to failed)                     |
 * | delivered | a 2xx, or the mail server took it | -                                             |
 * | failed    | 410, a server that never takes    | retry of a webhook, while its secret is there |
 * |           | the mail; the last attempt; an    |                                               |
 * |           | erased secret                     |                                               |
 *
 * The body of a webhook goes with its secret, that of a mail with its end: what is left says when,
 * how often and how it was attempted.
 *
 * An attempt is made under a lease: holder, expiry, fence. The fence rises with every claim, and
 * the holder of an old one writes nothing. Each change is a compare-and-set on the fence in one
 * statement, so that nothing is held while a receiver answers. An attempt counts when its end is
 * written: one that died with its process is made again.
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

/** The time runs from a job's end, delivered or not: the contract's 24 hours. */
const SECRET_MS = 86_400_000;

interface NewWebhook {
  /** The id is its job's, or of an account's event: a UUID that no job and no other message has. */
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
  /** A UUID, made outside of what is tried again; the mail's Message-ID has it. */
  readonly id: string;
  readonly accountId: string;
  readonly recipient: string;
  readonly subject: string;
  /** Plain text, sealed: it may hold a link that somebody can use. */
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
      // All mails go through one server.
      receiver: '',
      subject,
      body,
      // A lane of its account alone: its body says which key sealed it.
      secret_key_id: '',
      status: 'pending',
      attempts: 0,
      next_attempt_at: nowMs,
      fence: 0,
      created_at: nowMs,
    })
    .execute();
}

/** Removes them, so that none is sent any more; an attempt that is under way is the last. */
export async function withdrawMails(tx: Db, ids: readonly string[]): Promise<void> {
  await tx
    .deleteFrom('outbox')
    .where('id', 'in', ids)
    .where('kind', '=', 'mail')
    .where('status', '=', 'pending')
    .execute();
}

/** Without its secret a webhook is never sent again, and what a mail said may be a link. */
const ERASED = { secret: null, secret_key_id: null, secret_erase_at: null, body: '' };
const ERROR_LENGTH_MAX = 64;

export type OutboxStore = ReturnType<typeof createOutboxStore>;

export function createOutboxStore(database: Database) {
  return {
    ...dueMessages(database),
    ...outboxListing(database),
    ...outboxLeases(database),
    /** A webhook that still waited has failed with that: nothing could sign it any more. */
    eraseDueSecrets: (limit: number) => eraseDueSecrets(database, limit),
    /** Mails, or events of accounts, that ended so long ago. */
    removeOld: (kind: MessageKind, afterMs: number, limit: number) =>
      removeOld(database, kind, afterMs, limit),
    /** Makes mails due that wait for their next attempt, which adds one to those they have. */
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
  // One order holds everywhere: two sweepers then wait for each other and never in a circle.
  const ids = due.map(row => row.id).sort();
  return transact(database, async tx => {
    await tx
      .updateTable('outbox')
      .set(eb => ({
        status: 'failed',
        finished_at: nowMs,
        next_attempt_at: null,
        // An attempt that is under way holds an old fence from here on.
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

/** Events are found among all webhooks: those of jobs go with their jobs' rows at the same age. */
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
  // The order is the same everywhere, as above.
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
  // The order is the same everywhere, as above.
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
