/** An account's batches as pages for people: a list, and one with its pictures and its cancellation. */
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import { type Batch, batchStatus } from './batch.ts';
import type { BatchStores } from './batch-stores.ts';
import en from './words/en.json' with { type: 'json' };
import zhCN from './words/zh-CN.json' with { type: 'json' };

type AccountPage = NonNullable<HttpInterface['accountPages']>[number];

/** An account can have 50 open ones. */
const BATCHES_SHOWN_MAX = 100;
const JOBS_SHOWN_MAX = 30;

const WORDS: Readonly<Record<'en' | 'zh-CN', typeof en>> = { en, 'zh-CN': zhCN };

const TONES = {
  queued: 'neutral',
  processing: 'accent',
  finished: 'good',
  cancelled: 'neutral',
} as const;

type PageStores = Pick<BatchStores, 'listOf' | 'findForAccount' | 'jobs' | 'cancelBatchBy'>;

export function batchesPage(batches: PageStores): AccountPage {
  return {
    name: 'batches',
    action: 'cancel',
    words: WORDS,
    list: async accountId => (await batches.listOf(accountId, BATCHES_SHOWN_MAX)).map(shown),
    async find(id, { accountId, from, failed }) {
      const batch = await batches.findForAccount(id, accountId);
      if (batch === undefined) return undefined;
      const only = failed ? 'failed' : undefined;
      const found = await batches.jobs(batch, from, JOBS_SHOWN_MAX + 1, only);
      const { counts, finishedAtMs, nextItem } = batch;
      const after = failed ? found[JOBS_SHOWN_MAX]?.group?.item : from + JOBS_SHOWN_MAX;
      const next = after !== undefined && after < nextItem ? after : undefined;
      const jobs = found.slice(0, JOBS_SHOWN_MAX);
      return { ...shown(batch), counts, finishedAtMs, jobs, next };
    },
    async act(id, by) {
      const batch = await batches.cancelBatchBy(id, by);
      return batch && batchStatus(batch);
    },
  };
}

function shown(batch: Batch): Awaited<ReturnType<AccountPage['list']>>[number] {
  const { id, apiKeyId, createdAtMs, counts, items, cancelledAtMs, finishedAtMs } = batch;
  const { succeeded, failed, expired } = counts;
  const state = batchStatus(batch);
  return {
    ...{ id, apiKeyId, createdAtMs, state, tone: TONES[state], failed },
    ended: succeeded + failed + expired,
    all: items,
    mayAct: cancelledAtMs === null && finishedAtMs === null,
  };
}
