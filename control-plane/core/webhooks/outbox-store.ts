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
import { isAsciiWord, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import { destinationOf } from '@matting/http/outgoing/outgoing-url.ts';
import {
  type RawBuilder,
  type Selection,
  sql,
  type UpdateQueryBuilder,
  type UpdateResult,
} from 'kysely';
import { type AuditEntry, requireAuthority } from '../accounts/audit.ts';
import { type CallbackStatus, callbackFailureOf } from '../jobs/job.ts';
import {
  type AttemptEnd,
  dueMessages,
  type MessageClaim,
  type MessageKind,
  type MessageLeases,
} from './deliver-messages.ts';

/* What the operator and people ask of it: to see webhooks, and to have one sent again. */

/** A notification as the operator may see it: the receiver instead of the URL. */
export type NotificationSummary = ReturnType<typeof summaryOf>;

export interface NotificationFilter {
  readonly jobId?: string | undefined;
  readonly status?: CallbackStatus | undefined;
  readonly limit: number;
  readonly after?: { readonly createdAtMs: number; readonly jobId: string } | undefined;
}

type RetryOutcome = 'retried' | 'absent' | 'delivered' | 'secret-erased';

const SUMMARY_COLUMNS = [
  'id as jobId',
  // The type of an account's event, whose own id `jobId` is; null: the end of that job.
  'event',
  'account_id as accountId',
  'receiver',
  'status',
  'attempts',
  'last_status_code as lastStatusCode',
  'last_error',
  'last_attempt_at as lastAttemptAtMs',
  'last_duration_ms as lastDurationMs',
  'attempt_log',
  'next_attempt_at as nextAttemptAtMs',
  'created_at as createdAtMs',
  'finished_at as finishedAtMs',
  // Until then it can be sent again; null: nothing could sign it any more.
  'secret_erase_at as secretEraseAtMs',
] as const;

type SummaryRow = Selection<Schema, 'outbox', (typeof SUMMARY_COLUMNS)[number]>;

export const NOTIFICATION_STATUSES = [
  'pending',
  'delivered',
  'failed',
] as const satisfies readonly CallbackStatus[];

function outboxListing(database: Database) {
  return {
    list: (filter: NotificationFilter) => listNotifications(database, filter),
    retry: async (id: string): Promise<RetryOutcome> => {
      const { outcome } = await retryNotification(database, id);
      return outcome;
    },
    /** The same by a person. too-soon: the last attempt began within `everyMs`, or is under way. */
    resend: async (
      id: string,
      audit: AuditEntry,
      everyMs: number,
    ): Promise<RetryOutcome | 'too-soon'> => {
      const { outcome, isDue } = await retryNotification(database, id, { audit, everyMs });
      return outcome === 'retried' && !isDue ? 'too-soon' : outcome;
    },
  };
}

/** Along outbox_age, one walk a status. */
async function listNotifications(
  database: Database,
  { jobId, status, limit, after }: NotificationFilter,
): Promise<NotificationSummary[]> {
  if (jobId !== undefined && !isAsciiWord(jobId)) return [];
  const rows: SummaryRow[] = [];
  for (const one of status === undefined ? NOTIFICATION_STATUSES : [status]) {
    const some = await query(database, db => {
      const select = db.selectFrom('outbox').select(SUMMARY_COLUMNS).where('kind', '=', 'webhook');
      if (jobId !== undefined) {
        return select.where('id', '=', jobId).where('status', '=', one).execute();
      }
      const older =
        after === undefined
          ? select
          : select
              .where('created_at', '<=', after.createdAtMs)
              .where(eb =>
                eb.or([eb('created_at', '<', after.createdAtMs), eb('id', '<', after.jobId)]),
              );
      return older
        .where('status', '=', one)
        .orderBy('created_at', 'desc')
        .orderBy('id', 'desc')
        .limit(limit)
        .execute();
    });
    rows.push(...some);
  }
  rows.sort((a, b) => b.createdAtMs - a.createdAtMs || (a.jobId < b.jobId ? 1 : -1));
  return rows.slice(0, limit).map(summaryOf);
}

function summaryOf({ attempt_log, last_error, ...row }: SummaryRow) {
  const lastFailure = callbackFailureOf(last_error);
  return { ...row, lastFailure, log: loggedAttempts(attempt_log) };
}

/** Due now, a failed one too, with one attempt more. An attempt under way answers for itself. */
async function retryNotification(
  database: Database,
  id: string,
  by?: { readonly audit: AuditEntry; readonly everyMs: number },
): Promise<{ readonly outcome: RetryOutcome; readonly isDue: boolean }> {
  if (!isAsciiWord(id)) return { outcome: 'absent', isDue: false };
  const { nowMs } = database;
  return transact(database, async tx => {
    const audit = by?.audit;
    const change = audit && (await requireAuthority(database, tx, { ...audit, entryId: audit.id }));
    const update = tx
      .updateTable('outbox')
      .set({ status: 'pending', finished_at: null, next_attempt_at: nowMs })
      .where('id', '=', id)
      .where('kind', '=', 'webhook')
      .where('status', 'in', ['pending', 'failed'])
      .where('secret_erase_at', '>', nowMs)
      .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]));
    const rested = nowPlusMs(nowMs, -(by?.everyMs ?? 0));
    const isDue = await matchesOne(
      by === undefined
        ? update
        : update.where(eb =>
            eb.or([eb('last_attempt_at', 'is', null), eb('last_attempt_at', '<=', rested)]),
          ),
    );
    const row = await tx
      .selectFrom('outbox')
      .select(['status', 'secret_erase_at'])
      .select(() => nowMs.as('read_at'))
      .where('id', '=', id)
      .where('kind', '=', 'webhook')
      .executeTakeFirst();
    if (row === undefined) return { outcome: 'absent', isDue };
    if (row.status === 'delivered') return { outcome: 'delivered', isDue };
    const { secret_erase_at: eraseAtMs, read_at: nowAtMs } = row;
    const isErased = eraseAtMs === null || eraseAtMs <= nowAtMs;
    if (isErased) return { outcome: 'secret-erased', isDue };
    if (isDue && audit) {
      const { action, subject } = audit;
      await change?.log({ action, subject });
    }
    return { outcome: 'retried', isDue };
  });
}

const LOG_LENGTH_MAX = 2000;

interface LoggedAttempt {
  readonly atMs: number;
  readonly statusCode: number | null;
  readonly durationMs: number;
}

function withAttempt(
  { dialect, nowMs }: Pick<Database, 'dialect' | 'nowMs'>,
  { statusCode, durationMs }: Omit<LoggedAttempt, 'atMs'>,
): RawBuilder<string> {
  const tookMs = Math.round(durationMs);
  const began = nowPlusMs(nowMs, -tookMs);
  const rest = `,${statusCode ?? ''},${tookMs};`;
  const before = sql`coalesce(attempt_log, '')`;
  const longer =
    dialect === 'sqlite'
      ? sql`${before} || (${began}) || ${rest}`
      : sql`concat(${before}, ${began}, ${rest})`;
  return sql<string>`case when length(${before}) > ${sql.lit(LOG_LENGTH_MAX)}
    then attempt_log else ${longer} end`;
}

/** In the order they were made. @param log null: none was made */
function loggedAttempts(log: string | null): readonly LoggedAttempt[] {
  const lines = (log ?? '').split(';').filter(line => line !== '');
  return lines.flatMap(line => {
    const [atMs, statusCode, durationMs] = line.split(',');
    if (atMs === undefined || statusCode === undefined || durationMs === undefined) return [];
    const status = statusCode === '' ? null : Number(statusCode);
    return [{ atMs: Number(atMs), statusCode: status, durationMs: Number(durationMs) }];
  });
}

/** From a job's end, delivered or not: the contract's 24 hours. */
const SECRET_MS = 86_400_000;

/* What is written, with what it tells of. */

interface NewWebhook {
  /** Its job's, or of an account's event: a UUID that no job and no other message has. */
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
      // There is one server.
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

/** None of them is sent any more, unless an attempt is under way, which is the last. */
export async function withdrawMails(tx: Db, ids: readonly string[]): Promise<void> {
  await tx
    .deleteFrom('outbox')
    .where('id', 'in', ids)
    .where('kind', '=', 'mail')
    .where('status', '=', 'pending')
    .execute();
}

const FREE = { lease_holder: null, lease_expires_at: null };
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
    /** Makes mails due that wait for their next attempt, which is one more than they have. */
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
    claim: ({ id, holder, fence }, leaseMs) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('outbox')
            .set({ fence, lease_holder: holder, lease_expires_at: nowPlusMs(nowMs, leaseMs) })
            .where('id', '=', id)
            .where('fence', '=', fence - 1)
            .where('next_attempt_at', '<=', nowMs)
            .where(eb =>
              eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]),
            ),
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

function heldBy(db: Db, { id, holder, fence }: MessageClaim): OutboxUpdate {
  return db
    .updateTable('outbox')
    .where('id', '=', id)
    .where('fence', '=', fence)
    .where('lease_holder', '=', holder);
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
  // In one order everywhere: two sweepers then wait for each other and never in a circle.
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
async function removeOld(
  database: Database,
  kind: MessageKind,
  afterMs: number,
  limit: number,
): Promise<number> {
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
  // In one order everywhere, as above.
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
  // In one order everywhere, as above.
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
