/** A mail that waits: written with what it tells of, and taken out with it. */
import type { Kysely } from 'kysely';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';

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
  tx: Kysely<Schema>,
  { id, accountId, recipient, subject, body }: NewMail,
): Promise<void> {
  await tx
    .insertInto('mail_outbox')
    .values({
      id,
      account_id: accountId,
      recipient,
      subject,
      body,
      status: 'pending',
      attempts: 0,
      fence: 0,
      created_at: nowMs,
      due_at: nowMs,
    })
    .execute();
}

/** None of them is sent any more, unless an attempt is under way, which is the last. */
export async function withdrawMails(tx: Kysely<Schema>, ids: readonly string[]): Promise<void> {
  await tx
    .deleteFrom('mail_outbox')
    .where('id', 'in', ids)
    .where('status', '=', 'pending')
    .execute();
}
