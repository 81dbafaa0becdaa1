/**
 * Submits the failed items of a finished batch as a new batch. The old batch keeps an item's
 * address from when it becomes a job until it succeeds, or until the batch is cancelled or deleted
 * (docs/adr/0063).
 */
import { hash } from 'node:crypto';
import type { Package } from '@matting/core/package.ts';
import type { MattingFields } from '@matting/core/submission/matting-request.ts';
import { type Database, type Db, query } from '@matting/database/database.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { BATCH_ITEMS_MAX, type Batch, batchStatus, type GroupReading } from './batch.ts';
import { type SubmitBatchDependencies, type Submitter, submitItems } from './submit-batch.ts';

export const forgetAddress: NonNullable<Package['settled']>[number] = {
  name: 'batches',
  async settled(_database, tx, { jobId, groupId, outcome }) {
    if (groupId === undefined || outcome !== 'succeeded') return;
    await tx
      .updateTable('batch_items')
      .set({ again_url: null })
      .where('job_id', '=', jobId)
      .execute();
  },
};

export async function forgetAddresses(db: Db, batchId: string): Promise<void> {
  await db
    .updateTable('batch_items')
    .set({ again_url: null })
    .where('batch_id', '=', batchId)
    .where('again_url', 'is not', null)
    .execute();
}

export function repeatableBatches(database: Database, groups: GroupReading) {
  return {
    /** Leaves out items whose jobs the caller cancelled. */
    failedItems: ({ id }: Pick<Batch, 'id'>) =>
      query(database, async db => {
        const { request: template } = await db
          .selectFrom('batches')
          .select('request')
          .where('id', '=', id)
          .executeTakeFirstOrThrow();
        const rows = await db
          .selectFrom('batch_items')
          .select(['item', 'again_url as url'])
          .where('batch_id', '=', id)
          .where('again_url', 'is not', null)
          .execute();
        const urls = new Map(rows.map(({ item, url }) => [item, url]));
        const page = { from: 0, limit: BATCH_ITEMS_MAX, only: 'failed' } as const;
        const failed = await groups.list(db, id, page);
        const items = failed.flatMap(({ group, reference, failure }) => {
          const imageUrl = urls.get(group?.item ?? -1);
          return imageUrl && failure?.code !== 'JOB_CANCELLED' ? [{ imageUrl, reference }] : [];
        });
        return { template, items };
      }),
  };
}

/** @throws ContractError BATCH_NOT_REPEATABLE, and every code of a refused submission */
export async function submitAgain(
  parts: SubmitBatchDependencies & {
    readonly batches: Pick<ReturnType<typeof repeatableBatches>, 'failedItems'>;
  },
  submitter: Submitter,
  {
    id,
    texts,
    find,
  }: {
    readonly id: string;
    readonly texts: MattingFields['texts'];
    readonly find: () => Promise<Batch>;
  },
) {
  const { batches, manyJobs } = parts;
  const callback = manyJobs.requireCallback(texts);
  const identity = ['again', id, callback?.url ?? null, callback?.secret ?? null];
  return await submitItems(parts, submitter, {
    fingerprint: hash('sha256', JSON.stringify(identity), 'hex'),
    make: async () => {
      const batch = await find();
      requireRepeatable(batch);
      const { template, items } = await batches.failedItems(batch);
      if (items.length === 0) throw notRepeatable('has no failed items whose addresses it keeps');
      const request = { ...manyJobs.requestOf(template), callback };
      return { request, template, items, name: batch.name };
    },
  });
}

function requireRepeatable(batch: Batch): void {
  const status = batchStatus(batch);
  if (status === 'cancelled') throw notRepeatable('was cancelled');
  if (status !== 'finished') throw notRepeatable('is not finished. Wait for its end');
}

function notRepeatable(why: string): ContractError {
  return new ContractError('BATCH_NOT_REPEATABLE', `The batch ${why}.`);
}
