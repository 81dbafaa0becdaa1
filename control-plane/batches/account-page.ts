/** The account area's list of batches, and the page of one with its pictures and actions. */
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { type Batch, batchStatus } from './batch.ts';
import type { BatchStores } from './batch-stores.ts';
import en from './words/en.json' with { type: 'json' };
import zhCN from './words/zh-CN.json' with { type: 'json' };

type AccountPage = NonNullable<HttpInterface['accountPages']>[number];
type Act = AccountPage['actions'][string]['act'];

/** An account can have 50 open batches. */
const BATCHES_SHOWN_MAX = 100;
const JOBS_SHOWN_MAX = 30;

const WORDS: Readonly<Record<'en' | 'zh-CN', typeof en>> = { en, 'zh-CN': zhCN };

const TONES = {
  queued: 'neutral',
  processing: 'accent',
  finished: 'good',
  cancelled: 'neutral',
} as const;

/** Why a batch was not submitted again. */
const REFUSED: Readonly<Partial<Record<ErrorCode, keyof typeof en.said>>> = {
  BATCH_NOT_REPEATABLE: 'nothing',
  INSUFFICIENT_CREDITS: 'noCredits',
  INVALID_API_KEY: 'keyEnded',
  KEY_CAP_REACHED: 'capReached',
  RATE_LIMITED: 'tooMany',
};

type PageStores = Pick<BatchStores, 'listOf' | 'findForAccount' | 'jobs' | 'cancelBatchBy'>;

/** @param again submits the failed items. @throws ContractError the reason of a refusal */
export function batchesPage(
  batches: PageStores,
  again: (batch: Batch, actor: Parameters<Act>[1]['actor']) => Promise<Pick<Batch, 'id'>>,
): AccountPage {
  const cancel: Act = async (id, by) => {
    const batch = await batches.cancelBatchBy(id, by);
    return batch && { said: batchStatus(batch), id };
  };
  const submitAgain: Act = async (id, { accountId, actor }) => {
    const batch = await batches.findForAccount(id, accountId);
    if (batch === undefined) return undefined;
    try {
      return { said: 'again', id: (await again(batch, actor)).id };
    } catch (error) {
      const said = error instanceof ContractError ? REFUSED[error.code] : undefined;
      if (said === undefined) throw error;
      return { said, id };
    }
  };
  return {
    name: 'batches',
    event: 'matting.batch.finished',
    actions: {
      cancel: { by: 'owners', act: cancel },
      again: { by: 'members', act: submitAgain },
    },
    words: WORDS,
    list: async accountId => (await batches.listOf(accountId, BATCHES_SHOWN_MAX)).map(shown),
    async find(id, { accountId, from, only }) {
      const batch = await batches.findForAccount(id, accountId);
      if (batch === undefined) return undefined;
      const found = await batches.jobs(batch, { from, limit: JOBS_SHOWN_MAX + 1, only });
      const { counts, finishedAtMs, nextItem } = batch;
      const after = only ? found[JOBS_SHOWN_MAX]?.group?.item : from + JOBS_SHOWN_MAX;
      const next = after !== undefined && after < nextItem ? after : undefined;
      const jobs = found.slice(0, JOBS_SHOWN_MAX);
      return { ...shown(batch), counts, finishedAtMs, jobs, next };
    },
  };
}

function shown(batch: Batch): Awaited<ReturnType<AccountPage['list']>>[number] {
  const { id, name, apiKeyId, createdAtMs, counts, items, finishedAtMs } = batch;
  const { succeeded, failed, expired } = counts;
  const state = batchStatus(batch);
  const later = state === 'finished' && failed > 0 ? 'again' : undefined;
  return {
    ...{ id, name, apiKeyId, createdAtMs, state, tone: TONES[state], failed },
    ended: succeeded + failed + expired,
    all: items,
    action: finishedAtMs === null && state !== 'cancelled' ? 'cancel' : later,
  };
}
