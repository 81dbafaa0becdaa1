/**
 * One transaction holds a credit for each item, and writes the batch and its items. It locks the
 * account's row first, as a job's submission does. So no two submissions together can pass the
 * balance, a key's cap or the number of open batches, or use one idempotency key for a job and a
 * batch.
 */
import { type Actor, requireAuthority } from '@matting/accounts/audit-log.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { ROW_WORK, WorkSlices } from '@matting/program/event-loop.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Transaction } from 'kysely';
import { type Batch, type JobGroups, type ManyJobs, readBatch, readBatchByKey } from './batch.ts';

export const OPEN_BATCHES_MAX = 50;
const OPEN_RETRY_AFTER_S = 60;
const INSERT_MAX = 100;

export interface NewBatch {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly keyHasCap: boolean;
  readonly idempotencyKeyHash: string;
  readonly fingerprint: string;
  readonly name: string | null;
  /** The person who submits on a page. Absent: the caller of the API. */
  readonly by?: { readonly actor: Actor; readonly entryId: string } | undefined;
  readonly request: string;
  readonly items: readonly NewItem[];
  readonly callback?: ReturnType<ManyJobs['callbackOf']>;
}

interface NewItem {
  readonly jobId: string;
  readonly imageUrl: string;
  readonly reference: string | null;
}

export interface SubmittedBatch {
  readonly batch: Batch;
  readonly created: boolean;
}

export function batchSubmission(
  database: Database,
  groups: JobGroups,
  refusals: Submitting['refusals'],
) {
  return {
    /** @throws ContractError the reason of a refusal. Nothing has changed then. */
    submitBatch: (batch: NewBatch): Promise<SubmittedBatch> =>
      query(database, db => submitBatch({ database, groups, refusals }, db, batch)),
  };
}

interface Submitting {
  readonly database: Database;
  readonly groups: JobGroups;
  readonly refusals: Pick<ManyJobs, 'keyConflict' | 'noCredit'>;
}

async function submitBatch(at: Submitting, db: Db, batch: NewBatch): Promise<SubmittedBatch> {
  let refusal: ContractError | undefined;
  try {
    return await db.transaction().execute(tx => insertBatch(at, tx, batch));
  } catch (error) {
    if (error instanceof ContractError) refusal = error;
    else if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const { apiKeyId, idempotencyKeyHash, id } = batch;
  const found = await readBatchByKey(at.groups, db, apiKeyId, idempotencyKeyHash);
  // If the row is ours, an earlier try committed it, and the database's answer was lost.
  if (found !== undefined) return { batch: found, created: found.id === id };
  throw refusal ?? new OvertakenError(`a twin of batch ${id} is gone after it was in the way`);
}

async function insertBatch(
  { database, groups, refusals }: Submitting,
  tx: Transaction<Schema>,
  batch: NewBatch,
): Promise<SubmittedBatch> {
  const { id, accountId, apiKeyId, items } = batch;
  const { log } =
    (batch.by && (await requireAuthority(database, tx, { accountId, ...batch.by }))) ?? {};
  await groups.takeAccount(tx, accountId);
  const jobId = await groups.jobOf(tx, apiKeyId, batch.idempotencyKeyHash);
  if (jobId !== undefined) throw refusals.keyConflict(jobId);
  // A revocation cancels only batches that it finds, so no batch may follow it.
  await groups.requireKey(tx, apiKeyId);
  await requireFewOpen(tx, accountId);
  const held = await groups.hold(tx, { ...batch, jobIds: items.map(item => item.jobId) });
  if (held === undefined) throw refusals.noCredit(items.length);
  await insertRows(database, tx, batch, held.capWindowStartMs);
  await log?.({ action: 'batch.submitted', subject: id });
  const created = await readBatch(groups, tx, { id });
  if (created === undefined) throw new Error(`batch ${id} is gone before its commit`);
  return { batch: created, created: true };
}

async function requireFewOpen(tx: Db, accountId: string): Promise<void> {
  const open = await tx
    .selectFrom('batches')
    .select('id')
    .where('account_id', '=', accountId)
    .where('open_at', '>', 0)
    .limit(OPEN_BATCHES_MAX)
    .execute();
  const detail = `The account already has ${OPEN_BATCHES_MAX} open batches. Wait until one is finished.`;
  if (open.length >= OPEN_BATCHES_MAX) {
    throw new ContractError('RATE_LIMITED', detail, { retryAfterS: OPEN_RETRY_AFTER_S });
  }
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
      name: batch.name,
      request: batch.request,
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
  const slices = new WorkSlices();
  for (let from = 0; from < rows.length; from += INSERT_MAX) {
    const some = rows.slice(from, from + INSERT_MAX);
    await slices.before(some.reduce((sum, row) => sum + row.image_url.length + ROW_WORK, 0));
    await tx.insertInto('batch_items').values(some).execute();
  }
}
