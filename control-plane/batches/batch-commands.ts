import type { CliContext } from '@matting/core/cli/context.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Command } from 'commander';
import { batchStatus } from './batch.ts';
import { batchCancellation } from './cancel-batches.ts';

const OPERATOR = { kind: 'operator' } as const;

export function addBatchCommands(program: Command, context: CliContext): void {
  program
    .command('batches')
    .description('cancel batches')
    .command('cancel')
    .description('cancel what no node has begun of a batch, and return its credits')
    .argument('<id>', 'a UUID')
    .action((id: string) => cancelBatch(context, id));
}

async function cancelBatch(context: CliContext, id: string): Promise<void> {
  const { batch, key } = await context.withStores(async ({ groups, apiKeys }, database) => {
    const { cancelBatchBy } = batchCancellation(database, groups);
    const batch = await cancelBatchBy(id.toLowerCase(), { actor: OPERATOR });
    return { batch, key: batch && (await apiKeys.find(batch.apiKeyId)) };
  });
  if (batch === undefined) throw new ContractError('BATCH_NOT_FOUND', `There is no batch "${id}".`);
  const { counts } = batch;
  const view = {
    batch_id: batch.id,
    status: batchStatus(batch),
    account_id: batch.accountId,
    key: key?.prefix,
    created_at: isoTime(batch.createdAtMs),
    cancelled_at: isoTime(batch.cancelledAtMs),
    finished_at: isoTime(batch.finishedAtMs),
    counts,
  };
  context.report(view, () => [
    batch.finishedAtMs === null
      ? `cancelled batch ${batch.id}: its ${counts.waiting + counts.queued} images that no node ` +
        `has begun end within seconds, and the ${counts.processing} in progress as usual`
      : `batch ${batch.id} ended at ${isoTime(batch.finishedAtMs)}; nothing changed`,
  ]);
}
