/** An account's batches, the newest first, as a page for people: how far each is, and its cancellation. */
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import { type Batch, batchStatus } from './batch.ts';
import type { BatchStores } from './batch-stores.ts';
import en from './words/en.json' with { type: 'json' };
import zhCN from './words/zh-CN.json' with { type: 'json' };

type AccountPage = NonNullable<HttpInterface['accountPages']>[number];

/** An account can have 50 open ones. */
const BATCHES_SHOWN_MAX = 100;

const WORDS: Readonly<Record<'en' | 'zh-CN', typeof en>> = { en, 'zh-CN': zhCN };

const TONES = {
  queued: 'neutral',
  processing: 'accent',
  finished: 'good',
  cancelled: 'neutral',
} as const;

export function batchesPage(batches: Pick<BatchStores, 'listOf' | 'cancelBatchBy'>): AccountPage {
  return {
    name: 'batches',
    action: 'cancel',
    words: WORDS,
    list: async accountId => (await batches.listOf(accountId, BATCHES_SHOWN_MAX)).map(shown),
    async act(id, by) {
      const batch = await batches.cancelBatchBy(id, by);
      return batch && batchStatus(batch);
    },
  };
}

function shown(batch: Batch): Awaited<ReturnType<AccountPage['list']>>[number] {
  const { id, createdAtMs, counts, items, cancelledAtMs, finishedAtMs } = batch;
  const { succeeded, failed, expired } = counts;
  const state = batchStatus(batch);
  return {
    ...{ id, createdAtMs, state, tone: TONES[state], failed },
    ended: succeeded + failed + expired,
    all: items,
    mayAct: cancelledAtMs === null && finishedAtMs === null,
  };
}
