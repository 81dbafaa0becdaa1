/**
 * Checks a batch and submits it. An error in the body refuses the whole batch. An error of a
 * download fails one job. The order of checks is that of a single request: fields, replay or
 * conflict, requests that no node can serve, callback, open batches, credits.
 */
import { hash, randomUUID } from 'node:crypto';
import type { Caller } from '@matting/accounts/keys/caller.ts';
import type { MattingFields } from '@matting/core/submission/matting-request.ts';
import { bytesOfText, type TextValue, underPath } from '@matting/http/body-fields.ts';
import { WorkSlices } from '@matting/program/event-loop.ts';
import type { Batch, BatchReading, ManyJobs } from './batch.ts';
import type { batchSubmission, NewBatch, SubmittedBatch } from './batch-submission.ts';

export interface SubmitBatchDependencies {
  readonly batches: Pick<BatchReading, 'findByIdempotencyKey'> & ReturnType<typeof batchSubmission>;
  readonly manyJobs: ManyJobs;
  /** Runs after the commit, when any replica can make jobs of the items. */
  readonly onSubmitted: () => void;
}

export interface BatchFields {
  readonly shared: MattingFields['texts'];
  readonly name: TextValue | undefined;
  readonly items: readonly {
    readonly imageUrl: TextValue;
    readonly reference: TextValue | undefined;
  }[];
}

export interface Submitter {
  readonly caller: BatchCaller;
  /** Checks the key again, after the service looked up a host's name. */
  readonly recheckCaller: () => Promise<BatchCaller>;
  readonly idempotencyKey: string;
  readonly by?: NewBatch['by'];
}

type BatchCaller = Pick<Caller, 'accountId' | 'apiKeyId' | 'policy'>;
type Request = Parameters<ManyJobs['requireAccepting']>[1];

interface BatchContents {
  readonly request: Request;
  readonly template: string;
  readonly items: readonly Omit<NewBatch['items'][number], 'jobId'>[];
  readonly name: string | null;
}

/** @throws ContractError every code of a refused submission */
export async function submitBatch(
  parts: SubmitBatchDependencies,
  { fields, ...submitter }: Submitter & { readonly fields: BatchFields },
): Promise<SubmittedBatch> {
  const { manyJobs } = parts;
  const { request, items } = await requireFields(manyJobs, fields);
  const name = manyJobs.requireName(fields.name);
  return await submitItems(parts, submitter, {
    fingerprint: fingerprintOfBatch(manyJobs.fingerprintOf(request), items),
    make: async () => ({ request, template: manyJobs.templateOf(request), items, name }),
  });
}

/**
 * @param asked.make throws a ContractError if there is nothing to submit
 * @throws ContractError every code of a refused submission
 */
export async function submitItems(
  { batches, manyJobs, onSubmitted }: SubmitBatchDependencies,
  { caller, recheckCaller, idempotencyKey, by }: Submitter,
  {
    fingerprint,
    make,
  }: { readonly fingerprint: string; readonly make: () => Promise<BatchContents> },
): Promise<SubmittedBatch> {
  const { apiKeyId } = caller;
  const keyHash = manyJobs.hashOf(idempotencyKey);
  const joined = (batch: Batch) => {
    if (batch.fingerprint !== fingerprint) throw manyJobs.keyConflict();
    return { batch, created: false };
  };
  const known = await batches.findByIdempotencyKey(apiKeyId, keyHash);
  if (known !== undefined) return joined(known);
  await manyJobs.requireFreeKey(apiKeyId, keyHash);
  let contents: BatchContents;
  try {
    contents = await make();
    await manyJobs.requireAccepting(caller, contents.request);
  } catch (refusal) {
    // A parallel request may have made the batch meanwhile: then this request joins it.
    const made = await batches.findByIdempotencyKey(apiKeyId, keyHash);
    if (made === undefined) throw refusal;
    return joined(made);
  }
  const { accountId, policy } = await recheckCaller();
  const { request, template, items, name } = contents;
  const id = randomUUID();
  const batch: NewBatch = {
    ...{ id, accountId, apiKeyId, fingerprint, name, by, request: template },
    keyHasCap: policy?.cap !== undefined,
    idempotencyKeyHash: keyHash,
    items: items.map(item => ({ jobId: randomUUID(), ...item })),
    callback: manyJobs.callbackOf(id, request),
  };
  const submitted = await batches.submitBatch(batch);
  if (!submitted.created) return joined(submitted.batch);
  onSubmitted();
  return submitted;
}

async function requireFields(manyJobs: ManyJobs, { shared, items: given }: BatchFields) {
  const items: ReturnType<ManyJobs['requireItem']>[] = [];
  const slices = new WorkSlices();
  for (const [index, item] of given.entries()) {
    await slices.before(bytesOfText(item.imageUrl) / 2);
    items.push(underPath(`items[${index}]`, () => manyJobs.requireItem(item)));
  }
  const texts = new Map([...shared, ['image_url' as const, items[0]!.imageUrl]]);
  return { request: manyJobs.requireRequest(texts), items };
}

/** The kind comes first. References are not part of the fingerprint. */
function fingerprintOfBatch(
  common: string,
  items: readonly { readonly imageUrl: string }[],
): string {
  const urls = items.map(({ imageUrl }) => `${Buffer.byteLength(imageUrl)}:${imageUrl}\n`);
  return hash('sha256', `kind:5:batch\n${common}\n${urls.join('')}`, 'hex');
}
