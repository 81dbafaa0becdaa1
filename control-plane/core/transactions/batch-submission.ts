/**
 * A batch's submission: one transaction writes the batch, its items, and one reservation of a
 * credit for each. The account's row comes first, as with a job: it serialises what an account
 * submits, so that neither its balance, a key's cap nor the number of open batches can be passed,
 * and so that one key is never a job's and a batch's.
 */
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { ROW_WORK, Turns } from '@matting/program/turns.ts';
import type { Transaction } from 'kysely';
import { takeAccount } from '../accounts/account-store.ts';
import { type Batch, readBatch, readBatchByKey } from '../jobs/batch.ts';
import { readByIdempotencyKey } from '../jobs/job-reading.ts';
import { CapReachedError, countForCap } from '../keys/key-caps.ts';
import { reserveForBatch } from '../ledger/ledger-writer.ts';
import type { JobTemplate, NewJob } from './job-submission.ts';

/** Batches of an account that have not ended. */
export const OPEN_BATCHES_MAX = 50;
/** Rows of one insert. */
const INSERT_MAX = 100;

export interface NewBatch {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly keyHasCap: boolean;
  readonly idempotencyKeyHash: string;
  readonly fingerprint: string;
  readonly request: JobTemplate;
  readonly items: readonly NewItem[];
  readonly callback?: NewJob['callback'] | undefined;
}

interface NewItem {
  /** The job that the item becomes. */
  readonly jobId: string;
  readonly imageUrl: string;
  readonly reference: string | null;
}

type BatchOutcome =
  | { readonly kind: 'created' | 'exists'; readonly batch: Batch }
  /** The key is a job's. */
  | { readonly kind: 'key-of-a-job'; readonly jobId: string }
  | { readonly kind: 'insufficient-credits' | 'too-many-open' | 'key-revoked' }
  | { readonly kind: 'key-cap-reached'; readonly detail: string };

export function batchSubmission(database: Database) {
  return {
    submitBatch: (batch: NewBatch): Promise<BatchOutcome> =>
      query(database, db => submitBatch(database, db, batch)),
  };
}

async function submitBatch(database: Database, db: Db, batch: NewBatch): Promise<BatchOutcome> {
  let refused: BatchOutcome | undefined;
  try {
    refused = await db.transaction().execute(tx => insertBatch(database, tx, batch));
    if (refused.kind === 'created') return refused;
  } catch (error) {
    if (error instanceof CapReachedError) {
      refused = { kind: 'key-cap-reached', detail: error.detail };
    } else if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const { apiKeyId, idempotencyKeyHash, id } = batch;
  const found = await readBatchByKey(database, db, apiKeyId, idempotencyKeyHash);
  // If the row is ours, an earlier round committed it, and its answer was lost on the way.
  if (found !== undefined) return { kind: found.id === id ? 'created' : 'exists', batch: found };
  if (refused !== undefined) return refused;
  throw new OvertakenError(`a twin of batch ${id} is gone after it was in the way`);
}

async function insertBatch(
  database: Database,
  tx: Transaction<Schema>,
  batch: NewBatch,
): Promise<BatchOutcome> {
  const { id, accountId, apiKeyId, items } = batch;
  await takeAccount(database, tx, accountId);
  const refused = await batchRefusalOf(database, tx, batch);
  if (refused !== undefined) return refused;
  const jobIds = items.map(({ jobId }) => jobId);
  const reserved = await reserveForBatch(database, tx, { accountId, jobIds }, async () => {
    const cap = batch.keyHasCap ? await countForCap(database, tx, apiKeyId, items.length) : null;
    await insertRows(database, tx, batch, cap);
  });
  if (!reserved) return { kind: 'insufficient-credits' };
  const created = await readBatch(database, tx, { id });
  if (created === undefined) throw new Error(`batch ${id} is gone before its commit`);
  return { kind: 'created', batch: created };
}

async function batchRefusalOf(
  database: Database,
  tx: Db,
  { accountId, apiKeyId, idempotencyKeyHash }: NewBatch,
): Promise<BatchOutcome | undefined> {
  const job = await readByIdempotencyKey(database, tx, apiKeyId, idempotencyKeyHash);
  if (job !== undefined) return { kind: 'key-of-a-job', jobId: job.id };
  // A revocation cancels the batches that it finds, so none is made after it.
  const key = await tx
    .selectFrom('api_keys')
    .select('revoked_at')
    .where('id', '=', apiKeyId)
    .executeTakeFirst();
  if (key?.revoked_at != null) return { kind: 'key-revoked' };
  const open = await tx
    .selectFrom('batches')
    .select('id')
    .where('account_id', '=', accountId)
    .where('open_at', '>', 0)
    .limit(OPEN_BATCHES_MAX)
    .execute();
  return open.length < OPEN_BATCHES_MAX ? undefined : { kind: 'too-many-open' };
}

async function insertRows(
  { nowMs }: Database,
  tx: Transaction<Schema>,
  batch: NewBatch,
  capWindowStartMs: number | null,
): Promise<void> {
  const { id, accountId, callback } = batch;
  await tx
    .insertInto('batches')
    .values({
      id,
      account_id: accountId,
      api_key_id: batch.apiKeyId,
      idempotency_key_hash: batch.idempotencyKeyHash,
      fingerprint: batch.fingerprint,
      request: JSON.stringify(batch.request),
      items: batch.items.length,
      next_item: 0,
      created_at: nowMs,
      open_at: nowMs,
      cap_window_start: capWindowStartMs,
      callback_url: callback?.url ?? null,
      callback_secret: callback?.secret ?? null,
      callback_secret_key_id: callback?.secretKeyId ?? null,
    })
    .execute();
  const rows = batch.items.map(({ jobId, imageUrl, reference }, item) => {
    const names = { batch_id: id, item, job_id: jobId, account_id: accountId };
    return { ...names, image_url: imageUrl, reference };
  });
  const turns = new Turns();
  for (let from = 0; from < rows.length; from += INSERT_MAX) {
    const some = rows.slice(from, from + INSERT_MAX);
    await turns.before(some.reduce((sum, row) => sum + row.image_url.length + ROW_WORK, 0));
    await tx.insertInto('batch_items').values(some).execute();
  }
}
