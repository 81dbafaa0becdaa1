/**
 * A batch of images by their URLs: what its text shows wrong refuses the whole; what only a
 * download shows is the error of one job. The order is that of a single request: fields, then
 * replay or conflict, then what no node can do, the callback, open batches and credits.
 */
import { hash, randomUUID } from 'node:crypto';
import type { Caller } from '@matting/accounts/keys/caller.ts';
import type { MattingFields } from '@matting/core/submission/matting-request.ts';
import { bytesOfText, type TextValue, underPath } from '@matting/http/body-fields.ts';
import { Turns } from '@matting/program/turns.ts';
import type { Batch, BatchReading, ManyJobs } from './batch.ts';
import type { batchSubmission, NewBatch, SubmittedBatch } from './batch-submission.ts';

export interface SubmitBatchDependencies {
  readonly batches: Pick<BatchReading, 'findByIdempotencyKey'> & ReturnType<typeof batchSubmission>;
  readonly manyJobs: ManyJobs;
  /** Runs once the batch is committed: any replica can make jobs of its items. */
  readonly onSubmitted: () => void;
}

export interface BatchFields {
  /** Fields of all items. */
  readonly shared: MattingFields['texts'];
  readonly name: TextValue | undefined;
  /** 1 to BATCH_ITEMS_MAX. */
  readonly items: readonly {
    readonly imageUrl: TextValue;
    readonly reference: TextValue | undefined;
  }[];
}

export interface Submitter {
  readonly caller: BatchCaller;
  /** The key is checked once more: a name was looked up since. */
  readonly askAgain: () => Promise<BatchCaller>;
  readonly idempotencyKey: string;
  readonly by?: NewBatch['by'];
}

type BatchCaller = Pick<Caller, 'accountId' | 'apiKeyId' | 'policy'>;
type Request = Parameters<ManyJobs['requireAccepting']>[1];

interface Making {
  readonly request: Request;
  /** JSON of the request, as its jobs have it. */
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
  { caller, askAgain, idempotencyKey, by }: Submitter,
  { fingerprint, make }: { readonly fingerprint: string; readonly make: () => Promise<Making> },
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
  let making: Making;
  try {
    making = await make();
    await manyJobs.requireAccepting(caller, making.request);
  } catch (refusal) {
    // A twin may have made the batch meanwhile, and a join is not refused.
    const made = await batches.findByIdempotencyKey(apiKeyId, keyHash);
    if (made === undefined) throw refusal;
    return joined(made);
  }
  const { accountId, policy } = await askAgain();
  const { request, template, items, name } = making;
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
  const turns = new Turns();
  for (const [index, item] of given.entries()) {
    await turns.before(bytesOfText(item.imageUrl) / 2);
    items.push(underPath(`items[${index}]`, () => manyJobs.requireItem(item)));
  }
  const texts = new Map([...shared, ['image_url' as const, items[0]!.imageUrl]]);
  return { request: manyJobs.requireRequest(texts), items };
}

/** The kind comes first. References are no part of the fingerprint. */
function fingerprintOfBatch(
  common: string,
  items: readonly { readonly imageUrl: string }[],
): string {
  const urls = items.map(({ imageUrl }) => `${Buffer.byteLength(imageUrl)}:${imageUrl}\n`);
  return hash('sha256', `kind:5:batch\n${common}\n${urls.join('')}`, 'hex');
}
