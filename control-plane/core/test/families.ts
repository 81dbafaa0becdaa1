import assert from 'node:assert/strict';
import type { Claim } from '@matting/queue/lease-rules.ts';
import { matteBlob } from '../jobs/blob-names.ts';
import type { Job } from '../jobs/job.ts';
import type { JobInput } from '../jobs/job-request.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import type { Stores } from '../stores.ts';
import { claimed, HOUR_MS, newJob, reread, resultOf, running, successOf } from './fixtures.ts';

export const SUBJECT = { name: 'subject-model', role: 'subject' };

export function matteOf({ jobId, fence }: Claim) {
  return { blob: matteBlob(`results/${jobId}-${fence}`), bytes: 77 };
}

/** Succeeded; keeps its input and its matte. */
export async function firstOf(
  stores: Stores,
  accountId: string,
  { ttlMs = HOUR_MS, ...overrides }: Partial<NewJob> & { ttlMs?: number } = {},
): Promise<Job> {
  const job = newJob(accountId, { correctable: { crop: 'true' }, ...overrides });
  const { claim } = await running(stores, job);
  const result = { ...resultOf(claim), models: [SUBJECT] };
  const success = successOf(claim, { result, resultTtlMs: ttlMs, matte: matteOf(claim) });
  assert.ok(await stores.queue.succeed(claim, success));
  return reread(stores, job.id);
}

/** @param first whose input the family shares; default: the corrected job */
export function correctionOf(of: Job, first = of, overrides: Partial<NewJob> = {}): NewJob {
  const { accountId, apiKeyId } = of;
  const correction = { of: of.id, first: first.id };
  const input = first.kept?.input as JobInput;
  return newJob(accountId, { apiKeyId, correctable: {}, correction, input, ...overrides });
}

export async function succeedCorrection(stores: Stores, job: Pick<Job, 'id' | 'fence'>) {
  const claim = await claimed(stores, job);
  assert.ok(await stores.queue.admitted(claim));
  const result = { ...resultOf(claim), models: [] };
  assert.ok(await stores.queue.succeed(claim, successOf(claim, { result, matte: matteOf(claim) })));
  return reread(stores, job.id);
}
