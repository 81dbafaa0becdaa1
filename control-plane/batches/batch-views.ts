import type { CoreServices } from '@matting/core/package.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { type Batch, type BatchItem, batchStatus } from './batch.ts';

export type BatchViews = ReturnType<typeof batchViews>;

/** @param baseUrl without a trailing slash. Links use it, never the Host header. */
export function batchViews(baseUrl: string, jobViews: Pick<CoreServices['jobViews'], 'view'>) {
  return {
    batch: (batch: Batch) => viewOf(baseUrl, batch),
    item(batch: Pick<Batch, 'id'>, { item, jobId, reference, job, isWaiting }: BatchItem) {
      if (job !== undefined) return jobViews.view(job);
      const named = reference === null ? {} : { reference };
      const status = isWaiting ? 'waiting' : 'expired';
      return { job_id: jobId, ...named, batch_id: batch.id, item, status };
    },
  };
}

function viewOf(baseUrl: string, batch: Batch) {
  const { id, name, createdAtMs, finishedAtMs, counts } = batch;
  return {
    batch_id: id,
    ...(name === null ? {} : { name }),
    status: batchStatus(batch),
    created_at: isoTime(createdAtMs),
    finished_at: isoTime(finishedAtMs),
    counts,
    status_url: `${baseUrl}/v1/matting/batches/${id}`,
  };
}

/** The body of the batch's notification. Rendered once, at its end. */
export function renderBatchBody(baseUrl: string, batch: Batch): string {
  if (batch.finishedAtMs === null) throw new Error(`batch ${batch.id} is not finished`);
  return JSON.stringify({
    type: 'matting.batch.finished',
    timestamp: new Date(batch.finishedAtMs).toISOString(),
    batch_id: batch.id,
    data: viewOf(baseUrl, batch),
  });
}
