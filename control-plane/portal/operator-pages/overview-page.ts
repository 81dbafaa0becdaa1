/** The operator's first page: problems, the last hours, and the queue by account. */

import type { OperatorServices } from '@matting/core/http/app-services.ts';
import { TIMED_MAX } from '@matting/core/jobs/job-activity.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { type Child, html } from '../page/html.ts';
import {
  OPERATOR_PATH,
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  renderOperatorPage,
} from '../page/operator-frame.ts';
import * as ui from '../page/ui.ts';
import { barChart } from '../usage/usage-chart.ts';
import { fill } from '../words/words.ts';
import { nodeLink, nodeState, nodeTable, type OperatorNode } from './node-pages.ts';

type OverviewView = Awaited<ReturnType<typeof readOverview>>;
type QueueView = OverviewView['queue'];
type HourOfJobs = OverviewView['hours'][number];

export function registerOverviewPage(pages: FastifyInstance, services: OperatorServices): void {
  pages.get(OPERATOR_PATH, async (_request, reply) =>
    renderOverview(reply, await readOverview(services)),
  );
}

async function readOverview({ operateNodes, operateJobs, readQueue }: OperatorServices) {
  return {
    queue: await readQueue.read(),
    nodes: await operateNodes.list(),
    hours: await operateJobs.lastHours(),
  };
}

function renderOverview(reply: FastifyReply, view: OverviewView): FastifyReply {
  const visit = operatorVisitOf(reply.request);
  const { title, lead, fleet } = visit.own.overview;
  return renderOperatorPage(reply, {
    title,
    lead,
    active: 'overview',
    main: html`${alarms(visit, view)}
      ${ui.figures(figuresOf(visit, view))}
      ${trends(visit, view.hours)}
      ${queueSection(visit, view.queue)}
      ${ui.section({ title: fleet }, nodeTable(view.nodes, visit))}`,
  });
}

/** Synchronous callers have given up by then (MATTING_SYNC_WAIT_MS). */
const LATE_MS = 120_000;
const NEARLY_FULL = 0.8;
const TROUBLED_SHOWN_MAX = 5;
const TROUBLED: readonly OperatorNode['state'][] = ['silent', 'unreachable', 'unready'];

function fullness({ megapixels, megapixelsMax }: QueueView): number {
  return megapixels / megapixelsMax;
}

function alarms(visit: OperatorVisit, { queue, nodes }: OverviewView): Child {
  const { own, formats } = visit;
  const { overview: words } = own;
  const troubled = nodes.filter(({ state, cause }) => {
    return TROUBLED.includes(state) || (state === 'live' && cause !== null);
  });
  const takesNone = nodes.every(({ state }) => state !== 'live');
  const isLate = queue.jobs > 0 && queue.oldestAgeMs >= LATE_MS;
  const notices = [
    takesNone ? ui.notice('bad', words.noNode) : null,
    troubled.length === 0
      ? null
      : ui.notice(
          troubled.some(({ state }) => state === 'silent' || state === 'unreachable')
            ? 'bad'
            : 'warning',
          html`<p>${fill(words.troubled, { count: formats.credits(troubled.length) })}</p>`,
          troubled
            .slice(0, TROUBLED_SHOWN_MAX)
            .map(node => html`<div>${nodeLink(node)} ${nodeState(node, visit)}</div>`),
        ),
    isLate
      ? ui.notice('bad', fill(words.late, { time: formats.duration(queue.oldestAgeMs) }))
      : null,
    fullness(queue) >= NEARLY_FULL
      ? ui.notice('bad', fill(words.nearlyFull, { share: formats.share(fullness(queue)) }))
      : null,
  ].filter(notice => notice !== null);
  return notices.length === 0 ? ui.notice('good', words.well) : notices;
}

function figuresOf({ own, formats }: OperatorVisit, { queue, nodes, hours }: OverviewView) {
  const words = own.overview;
  const live = nodes.filter(({ state }) => state === 'live').length;
  const failed = sumOf(hours, 'failed');
  const failures = html`<a href=${`${PAGES_PATH}/jobs?state=failed`}>
    ${fill(words.failed, { count: formats.credits(failed) })}</a>`;
  const isLate = queue.jobs > 0 && queue.oldestAgeMs >= LATE_MS;
  const share = formats.share(fullness(queue));
  return [
    {
      label: words.ended,
      value: formats.credits(sumOf(hours, 'succeeded') + failed),
      note: failed > 0 ? failures : undefined,
    },
    {
      label: words.jobs,
      value: formats.credits(queue.jobs),
      note: fill(words.ofMax, { share, megapixels: formats.credits(queue.megapixels) }),
    },
    {
      label: words.oldest,
      value: queue.jobs === 0 ? '–' : formats.duration(queue.oldestAgeMs),
      tone: isLate ? ('bad' as const) : undefined,
    },
    {
      label: words.nodes,
      value: formats.credits(live),
      note: fill(words.nodesOf, { count: formats.credits(nodes.length) }),
      tone: live === 0 ? ('bad' as const) : undefined,
    },
  ];
}

function sumOf(hours: readonly HourOfJobs[], what: 'succeeded' | 'failed'): number {
  return hours.reduce((sum, hour) => sum + hour[what], 0);
}

function trends({ words, own, formats }: OperatorVisit, hours: readonly HourOfJobs[]): VNode {
  const { overview: text } = own;
  const { succeeded, failed } = words.usage.outcomes;
  const chart = (
    title: string,
    series: readonly string[],
    valuesOf: (hour: HourOfJobs) => readonly number[],
    options: { readonly format: (value: number) => string; readonly areMeans?: boolean },
  ) =>
    ui.panel(
      html`<h3>${title}</h3>`,
      barChart({
        ...{ title, series, ...options, barLabel: text.hour, tableLabel: words.common.chartTable },
        bars: hours.map(hour => ({
          label: formats.dateTime(hour.startMs),
          shortLabel: new Date(hour.startMs).toISOString().slice(11, 16),
          values: valuesOf(hour),
        })),
      }),
    );
  return ui.section(
    { title: text.trends, lead: fill(text.trendsLead, { count: TIMED_MAX }) },
    html`<div class="columns">
      ${chart(text.ended, [succeeded, failed], hour => [hour.succeeded, hour.failed], {
        format: formats.credits,
      })}
      ${chart(text.times, [text.work, text.wait], hour => [hour.workMs, hour.waitMs], {
        format: formats.duration,
        areMeans: true,
      })}
    </div>`,
  );
}

function queueSection({ own, formats }: OperatorVisit, queue: QueueView): VNode {
  const words = own.overview;
  const rows = queue.accounts.map(account => [
    html`<a href=${`${PAGES_PATH}/accounts/${account.accountId}`}>${account.name}</a>`,
    formats.credits(account.jobs),
    formats.credits(account.megapixels),
    formats.share(account.megapixels / Math.max(queue.megapixels, 1)),
  ]);
  return ui.section(
    {
      title: words.queue,
      lead:
        queue.accountCount > queue.accounts.length
          ? fill(words.queueMore, { count: formats.credits(queue.accountCount) })
          : undefined,
    },
    ui.dataTable({
      caption: words.queueCaption,
      columns: [own.account, ui.end(words.jobs), ui.end(words.megapixels), ui.end(words.share)],
      rows,
      empty: ui.emptyState({ title: words.queueEmpty, text: words.queueEmptyText }),
    }),
  );
}
