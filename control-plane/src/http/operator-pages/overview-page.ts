/** /operator: what waits for a node, whose it is, and how many nodes there are. */
import type { FastifyInstance } from 'fastify';
import type { OperateNodes } from '../../services/operator/operate-nodes.ts';
import { QUEUED_ACCOUNTS_MAX, type ReadQueue } from '../../services/operator/read-queue.ts';
import { dataTable, figures, section } from '../account/views/components/lists.ts';
import { emptyState } from '../account/views/components/marks.ts';
import { html } from '../account/views/html.ts';
import { fill } from '../account/words/words.ts';
import { nodeTable } from './node-pages.ts';
import {
  csrfOf,
  OPERATOR_PATH,
  PAGES_PATH,
  renderOperatorPage,
  tongueOf,
} from './operator-frame.ts';

export interface OverviewPageServices {
  readonly readQueue: Pick<ReadQueue, 'read'>;
  readonly operateNodes: Pick<OperateNodes, 'list'>;
}

export function registerOverviewPage(
  pages: FastifyInstance,
  { readQueue, operateNodes }: OverviewPageServices,
): void {
  pages.get(OPERATOR_PATH, async (request, reply) => {
    const queue = await readQueue.read();
    const nodes = await operateNodes.list();
    const tongue = tongueOf(request);
    const { formats, own } = tongue;
    const words = own.overview;
    const live = nodes.filter(({ state }) => state === 'live' || state === 'draining');
    const note = fill(words.ofMax, {
      share: formats.share(queue.megapixels / queue.megapixelsMax),
      max: formats.credits(queue.megapixelsMax),
    });
    const rows = queue.accounts.map(account => [
      html`<a href=${`${PAGES_PATH}/accounts/${account.accountId}`}>${account.name}</a>`,
      formats.credits(account.jobs),
      formats.credits(account.megapixels),
      formats.share(account.megapixels / Math.max(queue.megapixels, 1)),
    ]);
    return renderOperatorPage(request, reply, {
      title: words.title,
      lead: words.lead,
      active: 'overview',
      main: html`${figures([
        { label: words.jobs, value: formats.credits(queue.jobs) },
        { label: words.megapixels, value: formats.credits(queue.megapixels), note },
        {
          label: words.oldest,
          value: queue.jobs === 0 ? '–' : formats.duration(queue.oldestAgeMs),
        },
        {
          label: words.nodes,
          value: formats.credits(live.length),
          note: fill(words.nodesOf, { count: formats.credits(nodes.length) }),
        },
      ])}
      ${section(
        {
          title: words.queue,
          lead:
            queue.accountCount > QUEUED_ACCOUNTS_MAX
              ? fill(words.queueMore, { count: formats.credits(queue.accountCount) })
              : undefined,
        },
        dataTable({
          caption: words.queueCaption,
          columns: [
            { label: own.account },
            { label: words.jobs, align: 'end' },
            { label: words.megapixels, align: 'end' },
            { label: words.share, align: 'end' },
          ],
          rows,
          empty: emptyState({ title: words.queueEmpty, text: words.queueEmptyText }),
        }),
      )}
      ${section({ title: words.fleet }, nodeTable(nodes, tongue, csrfOf(request)))}`,
    });
  });
}
