/** The account's first page: what it has, what runs, what failed lately, and what it used. */

import { publicState } from '@matting/core/jobs/job.ts';
import type { StoresWithoutEnds } from '@matting/core/stores.ts';
import { curlSample } from '@matting/proto/contract/curl-sample.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { failureText } from '../jobs/job-pages.ts';
import { renderPage } from '../page/frame.ts';
import * as ui from '../page/html.ts';
import { html } from '../page/html.ts';
import { may } from '../people/roles.ts';
import { type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import type { ReadUsage } from './read-usage.ts';
import { usageChart } from './usage-chart.ts';
import { USAGE_PATH } from './usage-pages.ts';
import { DAY_MS, dayOfIso } from './usage-store.ts';

const LISTED_MAX = 5;
/** Failures that are older are on the page of jobs. */
const FAILED_WITHIN_MS = 7 * DAY_MS;

type OverviewView = Awaited<ReturnType<Overview['read']>>;

interface OverviewDependencies extends Pick<StoresWithoutEnds, 'jobs' | 'ledger'> {
  readonly readUsage: ReadUsage;
}

export class Overview {
  readonly #dependencies: OverviewDependencies;

  constructor(dependencies: OverviewDependencies) {
    this.#dependencies = dependencies;
  }

  /** Usage of the last thirty days; running jobs the oldest first, failures the latest first. */
  async read(accountId: string) {
    const { ledger, readUsage, jobs } = this.#dependencies;
    const chargedThisMonth = await readUsage.chargedThisMonth(accountId);
    const usage = await readUsage.view(accountId, {});
    const balances = await ledger.balances(accountId);
    if (balances === undefined) throw new Error(`the page of an unknown account: ${accountId}`);
    const { available, reserved } = balances;
    const open = await jobs.openOf(accountId, LISTED_MAX);
    const failed = { states: ['failed'], endedWithinMs: FAILED_WITHIN_MS } as const;
    const ended = await jobs.list({ ...failed, accountId, limit: LISTED_MAX });
    const running = open.map(({ id, state, createdAtMs }) => {
      const seen = publicState({ state, expiresAtMs: null, readAtMs: 0 });
      return { id, state: seen === 'processing' ? seen : 'queued', createdAtMs } as const;
    });
    const failures = ended.map(({ id, failure, finishedAtMs, createdAtMs }) => {
      return { id, code: failure?.code ?? '', endedAtMs: finishedAtMs ?? createdAtMs };
    });
    return { available, reserved, chargedThisMonth, usage, running, failures };
  }
}

const OVERVIEW = { config: { permission: 'overview.read' } } as const;

/** @param baseUrl for the line that shows how to call the API */
export function registerOverviewRoute(
  account: FastifyInstance,
  overview: Overview,
  baseUrl: string,
): void {
  account.get('/', OVERVIEW, async (request, reply) =>
    renderOverview(reply, await overview.read(visitOf(request).accountId), baseUrl),
  );
}

function renderOverview(reply: FastifyReply, view: OverviewView, baseUrl: string): FastifyReply {
  const visit = visitOf(reply.request);
  const { words, formats, role } = visit;
  const { overview } = words;
  return renderPage(reply, {
    title: overview.title,
    lead: overview.lead,
    active: 'overview',
    main: html`<div>
      ${view.available > 0 ? null : emptyNotice(words, may(role, 'orders.manage'))}
      ${ui.figures(creditFigures(visit, view))}
      ${ui.section(
        {
          title: overview.usage,
          actions: ui.linkButton({ href: USAGE_PATH, label: overview.moreUsage }),
        },
        ui.panel(chartOf(visit, view.usage)),
      )}
      ${ui.section(
        {
          title: overview.running,
          actions: ui.linkButton({ href: '/account/jobs', label: overview.moreJobs }),
        },
        ui.dataTable({
          caption: overview.running,
          columns: [overview.job, overview.state, overview.since],
          rows: view.running.map(({ id, state, createdAtMs }) => [
            jobLink(id),
            ui.badge(overview.states[state], state === 'processing' ? 'accent' : 'neutral'),
            ui.time(createdAtMs, formats.exactTime),
          ]),
          empty: html`<p class="padded soft">${overview.runningNone}</p>`,
        }),
      )}
      ${ui.section(
        { title: overview.failures, lead: overview.failuresLead },
        ui.dataTable({
          caption: overview.failures,
          columns: [overview.job, overview.why, overview.time],
          rows: view.failures.map(({ id, code, endedAtMs }) => [
            jobLink(id),
            failureText(words, code),
            ui.time(endedAtMs, formats.exactTime),
          ]),
          empty: html`<p class="padded soft">${overview.failuresNone}</p>`,
        }),
      )}
      ${firstPicture(words, baseUrl, may(role, 'keys.manage'))}
    </div>`,
  });
}

function emptyNotice({ overview }: Words, mayOrder: boolean): VNode {
  return ui.notice(
    'bad',
    html`<p>${overview.empty}</p>
      ${mayOrder ? html`<p><a href="/account/orders/packages">${overview.low}</a></p>` : null}`,
  );
}

function creditFigures({ words, formats }: Visit, view: OverviewView) {
  const { overview } = words;
  const monthBeganMs = Date.parse(`${view.usage.to.slice(0, '2026-11'.length)}-01T00:00:00Z`);
  const since = fill(overview.chargedNote, { date: formats.date(monthBeganMs) });
  const figure = (label: string, count: number, note: string) => {
    return { label, value: formats.credits(count), note };
  };
  return [
    figure(overview.available, view.available, overview.availableNote),
    figure(overview.reserved, view.reserved, overview.reservedNote),
    figure(overview.charged, view.chargedThisMonth, since),
  ];
}

function chartOf(visit: Visit, { from, to, usage }: OverviewView['usage']): VNode {
  const { succeeded, failed } = visit.words.usage.outcomes;
  const parts = usage.flatMap(entry => {
    const day = 'day' in entry ? dayOfIso(entry.day) : undefined;
    if (day === undefined) return [];
    return [
      { day, name: succeeded, images: entry.images - entry.failed },
      { day, name: failed, images: entry.failed },
    ];
  });
  return usageChart(visit, { from, to, series: [succeeded, failed], parts });
}

function jobLink(id: string): VNode {
  return html`<a href=${`/account/jobs/${id}`}><code>${id}</code></a>`;
}

const KEY_PLACE = 'YOUR_API_KEY';

function firstPicture({ overview, common }: Words, baseUrl: string, mayMakeKeys: boolean): VNode {
  const actions = mayMakeKeys
    ? ui.linkButton({ href: '/account/keys', label: overview.makeKey })
    : null;
  return ui.section(
    { title: overview.curl, lead: fill(overview.curlLead, { key: KEY_PLACE }), actions },
    ui.codeBlock(curlSample({ baseUrl, apiKey: KEY_PLACE }), common, overview.curlLabel),
  );
}
