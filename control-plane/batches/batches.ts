import { randomUUID } from 'node:crypto';
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { Package } from '@matting/core/package.ts';
import { notificationBody } from '@matting/core/secrets/secret-box.ts';
import { keepStatement } from '@matting/database/statements.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { sql } from 'kysely';
import type { Batch } from './batch.ts';
import openApi from './batches-openapi.json' with { type: 'json' };
import { cancelWithKey } from './cancel-batches.ts';
import { BATCH_MIGRATIONS } from './migrations.ts';
import { forgetAddress, submitAgain } from './submit-again.ts';

/** Each has up to a thousand items. */
const REMOVED_MAX = 5;

const BY_KEY = keepStatement(
  ({ kysely }, { apiKeyId, keyHash }: { apiKeyId: string; keyHash: string }) =>
    kysely
      .selectFrom('batches')
      .select('id')
      .where('api_key_id', '=', apiKeyId)
      .where('idempotency_key_hash', '=', keyHash),
);

export const batches: Package = {
  name: 'batches',
  migrations: BATCH_MIGRATIONS,
  submission: {
    async hasKey(database, db, apiKeyId, keyHash) {
      const { rows } = await db.executeQuery(BY_KEY(database, { apiKeyId, keyHash }));
      return rows.length > 0;
    },
  },
  settled: [forgetAddress],
  keyRevoked: cancelWithKey,
  placement: {
    // On a node, requests beside a batch take 1.6 to 1.8 times as long as alone, and 2.3 to 2.8
    // times with 0. Simulated by beside-batch.ts, their median is 8.3 s, and 11.7, 2.6 and 0.7 s
    // with 0, 0.5 and 0.75. Batches lose a quarter of their pace with 0.75. No larger share was
    // tried on nodes.
    syncSlotsShare: 0.25,
    // Most jobs of a batch wait for minutes, well within the hour in which each must begin.
    headStartMs: 30 * 60_000,
  },
  ledgerAudit: {
    isToCome: jobId =>
      sql`exists (select 1 from batch_items where job_id = ${jobId} and image_url is not null)`,
    creditsOf: accountId => sql`(select cast(coalesce(sum(items - next_item), 0) as signed)
      from batches where account_id = ${accountId} and open_at is not null)`,
  },
  loadCommands: async () => (await import('./batch-commands.ts')).addBatchCommands,
  async open({ config, database, services, stores, secrets, log }) {
    const { createBatchStores } = await import('./batch-stores.ts');
    const { batchViews, renderBatchBody } = await import('./batch-views.ts');
    const { registerBatchRoutes } = await import('./batch-routes.ts');
    const { runBatches } = await import('./run-batches.ts');
    const { batchesPage } = await import('./account-page.ts');
    const { manyJobs, uploads, events } = services;
    const { groups } = stores;
    const { baseUrl, jobRetentionMs, jobsInFlightMax } = config;
    const batches = createBatchStores(database, groups, {
      manyJobs,
      renderBody: batch =>
        secrets.sealText(renderBatchBody(baseUrl, batch), notificationBody(batch.id)),
      firstWaitMs: config.webhookScheduleMs[0],
    });
    const loop = runBatches({ batches, groups, events, log, jobsInFlightMax });
    const views = batchViews(baseUrl, services.jobViews);
    const parts = { batches, views, manyJobs, uploads, onSubmitted: () => loop.wake() };
    const again = async (batch: Batch, actor: Actor) => {
      const { id, accountId, apiKeyId } = batch;
      const recheckCaller = async () => {
        const key = await stores.apiKeys.find(apiKeyId, accountId);
        if (key?.state === 'active') return { accountId, apiKeyId, policy: key.policy };
        throw new ContractError('INVALID_API_KEY', 'The API key of the batch has ended.');
      };
      const by = { actor, entryId: randomUUID() };
      // A second click finds the batch of the first.
      const idempotencyKey = `account page: again ${id}`;
      const submitter = { caller: await recheckCaller(), recheckCaller, by, idempotencyKey };
      const source = { id, texts: new Map(), find: async () => batch };
      return (await submitAgain(parts, submitter, source)).batch;
    };
    const remove = (size: number) =>
      batches.removeOldBatches(jobRetentionMs, Math.min(size, REMOVED_MAX));
    return {
      httpInterface: {
        register: (app, { checks }) => registerBatchRoutes(app, parts, checks),
        openApi,
        accountPages: [batchesPage(batches, again)],
      },
      loops: [loop],
      removals: [{ name: 'old batches', remove }],
    };
  },
};
