/** A package that describes a page of the account area: keys, which an owner revokes. */
import type { Package } from '@matting/core/package.ts';

const WORDS = {
  ...{ title: 'Things', lead: 'They take a while.', created: 'Made', state: 'State' },
  ...{ progress: 'Progress', failed: 'Failed', thing: 'Thing', ended: '{done} of {all}' },
  ...{ act: 'End', actConfirm: 'End it?', said: { ended: 'Ended. ' }, states: { open: 'Open' } },
  empty: { title: 'No things yet', text: 'There are none.' },
};

export const describedPage: Package = {
  name: 'described-page',
  open: ({ stores, services }) => ({
    httpInterface: {
      register: () => undefined,
      accountPages: [
        {
          ...{ name: 'things', action: 'end' },
          words: { en: WORDS, 'zh-CN': { ...WORDS, title: '事物' } },
          async list(accountId) {
            const keys = await stores.apiKeys.list(accountId);
            return keys.map(({ id, createdAtMs, revokedAtMs }) => ({
              ...{ id, createdAtMs, state: 'open', tone: 'accent', ended: 2, all: 3, failed: 1 },
              mayAct: revokedAtMs === null,
            }));
          },
          async act(id, by) {
            const key = await services.manageKeys.revoke(by.accountId, id, by.actor);
            return key && 'ended';
          },
        },
      ],
    },
  }),
};
