import type { OperatorServices } from '@matting/core/http/app-services.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { html } from '../page/html.ts';
import {
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  renderOperatorPage,
} from '../page/operator-frame.ts';
import * as ui from '../page/ui.ts';
import { fill } from '../words/words.ts';

const NODES_PATH = `${PAGES_PATH}/nodes`;
export type OperatorNode = Awaited<ReturnType<OperatorServices['operateNodes']['list']>>[number];

const NODE_TONES: Readonly<Record<OperatorNode['state'], ui.Tone>> = {
  live: 'good',
  joining: 'neutral',
  unready: 'warning',
  unreachable: 'bad',
  draining: 'warning',
  gone: 'neutral',
  silent: 'bad',
};

export function registerNodePages(
  pages: FastifyInstance,
  { operateNodes }: OperatorServices,
): void {
  pages.get(NODES_PATH, async (request, reply) => {
    const nodes = await operateNodes.list();
    const visit = operatorVisitOf(request);
    const { title, lead } = visit.own.nodes;
    const main = nodeTable(nodes, visit);
    return renderOperatorPage(reply, { title, lead, active: 'nodes', main });
  });
  pages.get<{ Params: { node: string } }>(`${NODES_PATH}/:node`, async (request, reply) => {
    return renderNode(reply, await operateNodes.show(request.params.node));
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

export function nodeLink({ node_id: id }: OperatorNode): VNode {
  return html`<a href=${`${NODES_PATH}/${encodeURIComponent(id)}`}>${id}</a>`;
}

export function nodeState(node: OperatorNode, { own }: OperatorVisit): VNode {
  const { states, meanings } = own.nodes;
  const why = node.cause ?? (node.state === 'live' ? undefined : meanings[node.state]);
  return html`${ui.badge(states[node.state], NODE_TONES[node.state])}
    ${why && html`<div class="soft">${why}</div>`}`;
}

export function nodeTable(nodes: readonly OperatorNode[], visit: OperatorVisit): VNode {
  const { own, formats } = visit;
  const words = own.nodes;
  return ui.dataTable({
    caption: words.caption,
    columns: [
      words.node,
      own.state,
      words.address,
      words.version,
      words.runsOn,
      words.heartbeat,
      { label: own.actions, silent: true, align: 'end' },
    ],
    rows: nodes.map(node => [
      nodeLink(node),
      nodeState(node, visit),
      html`<code>${node.address}</code>`,
      node.version,
      node.runs_on ?? '–',
      ui.ago(node.heartbeat_at, formats.exactTime),
      drainForm(node, visit),
    ]),
    empty: ui.emptyState({ title: words.empty, text: words.emptyText }),
  });
}

function renderNode(reply: FastifyReply, node: OperatorNode): FastifyReply {
  const visit = operatorVisitOf(reply.request);
  const { own, formats } = visit;
  const { nodes: words } = own;
  const instant = (iso: string | null) => ui.time(iso, formats.exactTime);
  const models = node.models?.map(({ name }) =>
    node.models_left_out.includes(name) ? fill(words.leftOut, { name }) : name,
  );
  return renderOperatorPage(reply, {
    title: node.node_id,
    back: { href: NODES_PATH, label: words.title },
    active: 'nodes',
    actions: drainForm(node, visit),
    main: html`${ui.definitionList([
      [own.state, nodeState(node, visit)],
      [words.address, html`<code>${node.address}</code>`],
      [words.http, node.http_address && html`<code>${node.http_address}</code>`],
      [words.version, node.version],
      [words.runsOn, node.runs_on],
      [words.models, models?.join(', ')],
      [words.registered, instant(node.registered_at)],
      [words.heartbeat, instant(node.heartbeat_at)],
    ])}
    ${ui.section(
      { title: words.seenBy, lead: words.seenByLead },
      ui.dataTable({
        caption: words.seenBy,
        columns: [words.controlPlane, own.state, words.cause, words.since],
        rows: node.seen_by.map(({ control_plane: name, state, cause, since }) => [
          ...[name, words.seen[state], cause, instant(since)],
        ]),
        empty: html`<p class="padded soft">${words.meanings[node.state]}</p>`,
      }),
    )}`,
  });
}

function drainForm(node: OperatorNode, { own, csrf }: OperatorVisit): VNode | null {
  if (node.state === 'gone') return null;
  const words = own.nodes;
  const command = node.draining ? 'undrain' : 'drain';
  const label = words[command];
  const name = { node: node.node_id };
  const options = node.draining ? {} : { confirm: fill(words.drainAsk, name) };
  return ui.postForm(
    {
      action: `${NODES_PATH}/${encodeURIComponent(node.node_id)}/${command}`,
      csrf,
      class: 'inline',
    },
    ui.button({ label, kind: 'secondary', describe: `${label} ${node.node_id}`, ...options }),
  );
}
