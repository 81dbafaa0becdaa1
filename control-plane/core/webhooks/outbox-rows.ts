/**
 * A message is written with what it tells of, in one transaction: the end of a job, an event of an
 * account, a mail. It waits in the outbox from then on.
 */
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import type { Db } from '../database/schema.ts';
import { destinationOf } from '../fetching/outgoing-url.ts';

/** From a job's end, delivered or not: the contract's 24 hours. */
const SECRET_MS = 86_400_000;

export interface NewWebhook {
  /** Its job's, or of an account's event: a UUID that no job and no other message has. */
  readonly id: string;
  readonly accountId: string;
  /** The type of an account's event; null: the end of a job. */
  readonly event: string | null;
  readonly url: string;
  /** Sealed. */
  readonly body: string;
  /** Sealed, bound to the id. */
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
  /** At most 200 code points. */
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
