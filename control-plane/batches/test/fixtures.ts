import { randomUUID } from 'node:crypto';
import type { Stores as CoreStores } from '@matting/core/stores.ts';
import { sha256, storeFixtures } from '@matting/core/test/fixtures.ts';
import type { Database } from '@matting/database/database.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { createBatchStores } from '../batch-stores.ts';
import type { NewBatch, SubmittedBatch } from '../batch-submission.ts';
import { batches } from '../batches.ts';

const REFUSALS = {
  keyConflict: (jobId?: string) => new ContractError('IDEMPOTENCY_CONFLICT', 'taken', { jobId }),
  noCredit: (images: number) => new ContractError('INSUFFICIENT_CREDITS', `fewer than ${images}`),
};

export function withBatches(database: Database, { groups }: Pick<CoreStores, 'groups'>) {
  const options = { manyJobs: REFUSALS, renderBody: () => '' };
  return { batches: createBatchStores(database, groups, options) };
}

export type Stores = CoreStores & ReturnType<typeof withBatches>;

export const BATCH_FIXTURES = storeFixtures({ packages: [batches], more: withBatches });

export const { onBalancedStores } = BATCH_FIXTURES;

/** Resolves with the code of a refusal. */
export async function outcomeOf(submission: Promise<SubmittedBatch>): Promise<string> {
  try {
    return (await submission).created ? 'created' : 'exists';
  } catch (error) {
    if (error instanceof ContractError) return error.code;
    throw error;
  }
}

export function newBatch(
  { accountId, apiKeyId }: { readonly accountId: string; readonly apiKeyId: string },
  count: number,
  overrides: Partial<NewBatch> = {},
): NewBatch {
  const id = overrides.id ?? randomUUID();
  return {
    id,
    accountId,
    apiKeyId,
    keyHasCap: false,
    name: null,
    idempotencyKeyHash: sha256(id),
    fingerprint: sha256('batch'),
    request: JSON.stringify({ outputFormat: 'png', channels: 'rgba' }),
    items: Array.from({ length: count }, (_, item) => ({
      jobId: randomUUID(),
      imageUrl: `https://pictures.example/${item}.png`,
      reference: `picture ${item}`,
    })),
    ...overrides,
  };
}
