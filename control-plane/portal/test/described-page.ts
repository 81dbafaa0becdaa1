/** A package with pages of the account area: keys, which an owner revokes, with jobs. */

import type { Package } from '@matting/core/package.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { FINAL_STATES } from '@matting/queue/job.ts';
import type { ApiKey } from '../keys/key-form.ts';

const WORDS = {
  ...{ title: 'Things', lead: 'They take a while.', created: 'Made', state: 'State' },
  ...{ progress: 'Progress', failed: 'Failed', thing: 'Thing', ended: '{done} of {all}' },
  ...{ actions: { end: { label: 'End', confirm: 'End it?' } }, action: 'Action' },
  ...{ name: 'Name', said: { ended: 'Ended. ' }, part: 'Part {number}' },
  states: { open: 'Open', failed: 'Failed' },
  empty: { title: 'No things yet', text: 'There are none.' },
};

const shown = ({ id, createdAtMs, revokedAtMs }: ApiKey) => ({
  ...{ id, apiKeyId: id, createdAtMs, state: 'open', tone: 'accent' as const },
  ...{ ended: 2, all: 3, failed: 1, action: revokedAtMs === null ? 'end' : undefined },
  name: null,
});

export const describedPage: Package = {
  name: 'described-page',
  open: ({ stores, services }) => ({
    httpInterface: {
      register: () => undefined,
      accountPages: [
        {
          name: 'things',
          words: { en: WORDS, 'zh-CN': { ...WORDS, title: '事物' } },
          list: async accountId => (await stores.apiKeys.list(accountId)).map(shown),
          async find(id, { accountId, from, only }) {
            const key = await stores.apiKeys.find(id, accountId);
            if (key === undefined) return undefined;
            const states = only === 'failed' ? (['failed'] as const) : FINAL_STATES;
            const jobs = await stores.jobs.list({
              states,
              accountId,
              endedWithinMs: DAY_MS,
              limit: 3,
            });
            const counts = { open: 2, failed: 1 };
            return { ...shown(key), counts, finishedAtMs: key.createdAtMs, jobs, next: from + 4 };
          },
          actions: {
            end: {
              by: 'owners',
              async act(id, by) {
                const key = await services.manageKeys.revoke(by.accountId, id, by.actor);
                return key && { said: 'ended', id };
              },
            },
          },
        },
      ],
    },
  }),
};
