/** The nodes that registered, and draining them. */
import type { FastifyInstance } from 'fastify';
import type { VNode } from 'preact';
import type { OperateNodes } from '../../services/operator/operate-nodes.ts';
import type { OperatorNode } from '../../services/operator/operator-view.ts';
import { button } from '../account/views/components/buttons.ts';
import { postForm } from '../account/views/components/fields.ts';
import { dataTable } from '../account/views/components/lists.ts';
import { badge, emptyState, type Tone, time } from '../account/views/components/marks.ts';
import { html } from '../account/views/html.ts';
import { fill } from '../account/words/words.ts';
import { csrfOf, PAGES_PATH, renderOperatorPage, type Tongue, tongueOf } from './operator-frame.ts';

export interface NodePageServices {
  readonly operateNodes: Pick<OperateNodes, 'list' | 'setDraining'>;
}

const NODES_PATH = `${PAGES_PATH}/nodes`;
const TONES: Readonly<Record<OperatorNode['state'], Tone>> = {
  live: 'good',
  draining: 'warning',
  gone: 'neutral',
  silent: 'bad',
};

export function registerNodePages(
  pages: FastifyInstance,
  { operateNodes }: NodePageServices,
): void {
  pages.get(NODES_PATH, async (request, reply) => {
    const nodes = await operateNodes.list();
    const tongue = tongueOf(request);
    const { title, lead } = tongue.own.nodes;
    const main = nodeTable(nodes, tongue, csrfOf(request));
    return renderOperatorPage(request, reply, { title, lead, active: 'nodes', main });
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

export function nodeTable(nodes: readonly OperatorNode[], tongue: Tongue, csrf: string): VNode {
  const { own, formats } = tongue;
  const words = own.nodes;
  return dataTable({
    caption: words.caption,
    columns: [
      { label: words.node },
      { label: own.state },
      { label: words.address },
      { label: words.version },
      { label: words.heartbeat },
      { label: own.actions, silent: true, align: 'end' },
    ],
    rows: nodes.map(node => {
      const heartbeatMs = Date.parse(node.heartbeat_at);
      return [
        node.node_id,
        badge(words.states[node.state], TONES[node.state]),
        html`<code>${node.address}</code>`,
        node.version,
        time(heartbeatMs, formats.exactTime(heartbeatMs)),
        drainForm(node, words, csrf),
      ];
    }),
    empty: emptyState({ title: words.empty, text: words.emptyText }),
  });
}

function drainForm(node: OperatorNode, words: Tongue['own']['nodes'], csrf: string): VNode | null {
  if (node.state === 'gone') return null;
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
