/** The first page: what waits for a node, whose it is, how many nodes there are; nodes, and draining them. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { QUEUED_ACCOUNTS_MAX, type QueueView } from '../../core/dispatch/read-queue.ts';
import type { OperatorServices } from '../../core/http/app-services.ts';
import type { OperatorNode } from '../../core/jobs/operator-view.ts';
import {
  badge,
  button,
  dataTable,
  emptyState,
  figures,
  html,
  postForm,
  section,
  type Tone,
  time,
} from '../page/html.ts';
import { fill } from '../words/words.ts';
import {
  OPERATOR_PATH,
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  renderOperatorPage,
} from './operator-frame.ts';

const NODES_PATH = `${PAGES_PATH}/nodes`;
const TONES: Readonly<Record<OperatorNode['state'], Tone>> = {
  live: 'good',
  draining: 'warning',
  gone: 'neutral',
  silent: 'bad',
};

export function registerNodePages(
  pages: FastifyInstance,
  { operateNodes, readQueue }: OperatorServices,
): void {
  pages.get(OPERATOR_PATH, async (_request, reply) => {
    const queue = await readQueue.read();
    const nodes = await operateNodes.list();
    return renderOverview(reply, queue, nodes);
  });
  pages.get(NODES_PATH, async (request, reply) => {
    const nodes = await operateNodes.list();
    const visit = operatorVisitOf(request);
    const { title, lead } = visit.own.nodes;
    const main = nodeTable(nodes, visit);
    return renderOperatorPage(reply, { title, lead, active: 'nodes', main });
  });
  for (const command of ['drain', 'undrain'] as const) {
    pages.post<{ Params: { node: string } }>(
      `${NODES_PATH}/:node/${command}`,
      async (request, reply) => {
        const changed = await operateNodes.setDraining(request.params.node, command === 'drain');
        request.log.info({ command, nodeId: changed.node_id }, 'operator');
        return reply.redirect(`${NODES_PATH}?said=${command}ing`, 303);
      },
    );
  }
}

function nodeTable(nodes: readonly OperatorNode[], visit: OperatorVisit): VNode {
  const { own, formats } = visit;
  const words = own.nodes;
  return dataTable({
    caption: words.caption,
    columns: [
      words.node,
      own.state,
      words.address,
      words.version,
      words.heartbeat,
      { label: own.actions, silent: true, align: 'end' },
    ],
    rows: nodes.map(node => [
      node.node_id,
      badge(words.states[node.state], TONES[node.state]),
      html`<code>${node.address}</code>`,
      node.version,
      time(node.heartbeat_at, formats.exactTime),
      drainForm(node, visit),
    ]),
    empty: emptyState({ title: words.empty, text: words.emptyText }),
  });
}

function drainForm(node: OperatorNode, { own, csrf }: OperatorVisit): VNode | null {
  if (node.state === 'gone') return null;
  const words = own.nodes;
  const command = node.draining ? 'undrain' : 'drain';
  const label = words[command];
  const name = { node: node.node_id };
  const ask = node.draining ? {} : { confirm: fill(words.drainAsk, name) };
  return postForm(
    {
      action: `${NODES_PATH}/${encodeURIComponent(node.node_id)}/${command}`,
      csrf,
      class: 'inline',
    },
    button({ label, kind: 'secondary', describe: `${label} ${node.node_id}`, ...ask }),
  );
}

function renderOverview(reply: FastifyReply, queue: QueueView, nodes: readonly OperatorNode[]) {
  const visit = operatorVisitOf(reply.request);
  const { formats, own } = visit;
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
  return renderOperatorPage(reply, {
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
          own.account,
          { label: words.jobs, align: 'end' },
          { label: words.megapixels, align: 'end' },
          { label: words.share, align: 'end' },
        ],
        rows,
        empty: emptyState({ title: words.queueEmpty, text: words.queueEmptyText }),
      }),
    )}
    ${section({ title: words.fleet }, nodeTable(nodes, visit))}`,
  });
}
