/** A mail that waits: written with what it tells of. */
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
  /** Plain text. */
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
      next_attempt_at: nowMs,
    })
    .execute();
}
