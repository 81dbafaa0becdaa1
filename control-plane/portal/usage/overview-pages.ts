/**
 * The account's first page. Until the account has paid for a picture it shows the next step, then
 * the current work, failures, credits and usage.
 */

import type { CoreStores } from '@matting/core/package.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { publicState } from '@matting/queue/job.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { callBlocks } from '../documents/call-blocks.ts';
import { failureText } from '../jobs/job-pages.ts';
import { hasThumbnail, JOBS_PATH, thumbnailStrip } from '../jobs/thumbnails.ts';
import { renderPage } from '../page/account-frame.ts';
import { type Child, DOCS_PATH, html } from '../page/html.ts';
import { demoStage, dropWords } from '../page/stage.ts';
import * as ui from '../page/ui.ts';
import type { UsePlayground } from '../playground/use-playground.ts';
import { may } from '../session/roles.ts';
import { type Visit, visitOf } from '../session/visit.ts';
import { counted, fill, type Words } from '../words/words.ts';
import { lastingText, paceOf } from './pace.ts';
import type { ReadUsage } from './read-usage.ts';
import { usageChart } from './usage-chart.ts';
import { USAGE_PATH } from './usage-pages.ts';
import { dayOfIso } from './usage-store.ts';

const LISTED_MAX = 5;
const CUT_OUTS_MAX = 8;
const ENDED_WITHIN_MS = 7 * DAY_MS;

type OverviewView = Awaited<ReturnType<Overview['read']>>;

interface OverviewDependencies extends Pick<CoreStores, 'apiKeys' | 'jobs' | 'ledger'> {
  readonly readUsage: ReadUsage;
}

export class Overview {
  readonly #dependencies: OverviewDependencies;

  constructor(dependencies: OverviewDependencies) {
    this.#dependencies = dependencies;
  }

  async read(accountId: string) {
    const { ledger, readUsage } = this.#dependencies;
    const usage = await readUsage.view(accountId, {});
    const balances = await ledger.balances(accountId);
    if (balances === undefined) throw new Error(`the page of an unknown account: ${accountId}`);
    const isUsed =
      usage.total.images > 0 || balances.reserved > 0 || (await readUsage.hasUsed(accountId));
    const next = isUsed ? await this.#work(accountId) : await this.#start(accountId);
    return { ...balances, usage, ...next };
  }

  async #start(accountId: string) {
    const keys = await this.#dependencies.apiKeys.listNewest(accountId, 1);
    return { kind: 'start', hasKey: keys.length > 0 } as const;
  }

  async #work(accountId: string) {
    const { jobs } = this.#dependencies;
    const open = await jobs.openOf(accountId, LISTED_MAX);
    const failed = { states: ['failed'], endedWithinMs: ENDED_WITHIN_MS } as const;
    const ended = await jobs.list({ ...failed, accountId, limit: LISTED_MAX });
    const done = { states: ['succeeded'], endedWithinMs: ENDED_WITHIN_MS } as const;
    const cutOuts = await jobs.list({ ...done, accountId, limit: CUT_OUTS_MAX });
    const running = open.map(({ id, state, createdAtMs }) => {
      const seen = publicState({ state, expiresAtMs: null, deletedAtMs: null, readAtMs: 0 });
      return { id, state: seen === 'processing' ? seen : 'queued', createdAtMs } as const;
    });
    const failures = ended.map(({ id, failure, finishedAtMs, createdAtMs }) => {
      return { id, code: failure?.code ?? '', endedAtMs: finishedAtMs ?? createdAtMs };
    });
    return { kind: 'work', running, failures, cutOuts } as const;
  }
}

const OVERVIEW = { config: { permission: 'overview.read' } } as const;

interface Offers {
  readonly baseUrl: string;
  readonly hasPlayground: boolean;
  readonly sells: boolean;
}

export function registerOverviewRoute(
  account: FastifyInstance,
  services: {
    readonly overview: Overview;
    readonly playground: Pick<UsePlayground, 'isOn'>;
    readonly orders: { readonly packages: readonly unknown[] };
  },
  baseUrl: string,
): void {
  const { overview, playground, orders } = services;
  const sells = orders.packages.length > 0;
  account.get('/', OVERVIEW, async (request, reply) => {
    const view = await overview.read(visitOf(request).accountId);
    return renderOverview(reply, view, { baseUrl, hasPlayground: playground.isOn, sells });
  });
}

function renderOverview(reply: FastifyReply, view: OverviewView, offers: Offers): FastifyReply {
  const visit = visitOf(reply.request);
  const { overview } = visit.words;
  const isStart = view.kind === 'start';
  return renderPage(reply, {
    title: overview.title,
    lead: isStart && view.available > 0 ? startLead(visit, view.available) : undefined,
    active: 'overview',
    ...(isStart ? { scripts: ['compare.js', 'overview.js'] } : {}),
    main: html`<div>
      ${view.available > 0 ? null : emptyNotice(visit, offers)}
      ${isStart ? start(visit, offers, view.hasKey) : work(visit, view, offers)}
    </div>`,
  });
}

function emptyNotice(visit: Visit, offers: Offers): VNode {
  const { overview } = visit.words;
  return ui.notice(
    'bad',
    html`<p>${overview.empty}</p>
      <p>${buyLink(visit, offers)}</p>`,
  );
}

function startLead({ words, language }: Visit, available: number): string {
  const credits = counted(language, words.common.credits, available);
  return fill(words.overview.startLead, { credits });
}

const PLAYGROUND = '/account/playground';
const KEY_PLACE = 'YOUR_API_KEY';

function start(visit: Visit, { baseUrl, hasPlayground }: Offers, hasKey: boolean): Child {
  const { words, role } = visit;
  const { overview, common } = words;
  const mayTry = hasPlayground && may(role, 'playground.use');
  const mayMakeKeys = may(role, 'keys.manage');
  const steps = [
    mayTry && { ...overview.steps.try, href: PLAYGROUND, done: false },
    mayMakeKeys && { ...overview.steps.key, href: '/account/keys/new', done: hasKey },
  ].filter(step => step !== false);
  return html`<div class="start">
    ${mayTry ? dropLink(words) : null}
    <div class="start-demo">${demoStage(words)}</div>
    <ol class="steps">
      ${steps.map(
        ({ title, text, action, done, href }) => html`<li class="panel padded">
          <h2>${title}${done ? html`${' '}${ui.badge(overview.done, 'good')}` : null}</h2>
          <p class="soft">${text}</p>
          <p>${ui.linkButton({ href, label: action })}</p>
        </li>`,
      )}
      <li class="panel padded">
        <h2>${overview.steps.call.title}</h2>
        <p class="soft">${fill(overview.steps.call.text, { key: KEY_PLACE })}
          ${' '}<a href=${DOCS_PATH}>${overview.steps.call.action}</a></p>
        ${callBlocks({ baseUrl, apiKey: KEY_PLACE }, common, overview.curlLabel)}
      </li>
    </ol>
  </div>`;
}

/** assets/overview.js passes a dropped picture to the playground. */
function dropLink({ overview }: Words): VNode {
  return html`<a class="drop" href=${PLAYGROUND} data-drop-link>
    ${dropWords(overview.drop, overview.dropText)}</a>`;
}

function work(visit: Visit, view: OverviewView & { readonly kind: 'work' }, offers: Offers): Child {
  const { overview } = visit.words;
  const more = (href: string, label: string) => ui.linkButton({ href, label });
  const shown = view.cutOuts.filter(job => hasThumbnail(visit, job));
  return html`${ui.figures(creditFigures(visit, view, offers))}
    ${
      view.usage.total.images === 0
        ? null
        : ui.section(
            { title: overview.usage, actions: more(USAGE_PATH, overview.moreUsage) },
            ui.panel(chartOf(visit, view.usage)),
          )
    }
    ${
      shown.length === 0
        ? null
        : ui.section(
            { title: overview.cutOuts, actions: more(JOBS_PATH, overview.moreJobs) },
            thumbnailStrip(visit, shown),
          )
    }
    ${view.running.length === 0 ? null : running(visit, view.running)}
    ${view.failures.length === 0 ? null : failures(visit, view.failures)}`;
}

function creditFigures(visit: Visit, { available, reserved, usage }: OverviewView, offers: Offers) {
  const { words, formats, language } = visit;
  const { overview, common } = words;
  const pace = paceOf(usage);
  const figure = (label: string, value: string, note: string) => ({ label, value, note });
  const lasting =
    pace === undefined || available === 0
      ? []
      : [
          figure(
            overview.lasts,
            lastingText(visit, available, pace),
            fill(overview.pace, { pace: formats.about(pace) }),
          ),
        ];
  const held = fill(overview.reservedNote, { count: formats.credits(reserved) });
  const images = counted(language, common.images, usage.total.images);
  const failed = formats.credits(usage.total.failed);
  const note = usage.total.failed === 0 ? images : fill(overview.usedNote, { images, failed });
  return [
    {
      label: overview.available,
      value: formats.credits(available),
      note: html`${reserved > 0 ? held : overview.availableNote} ${buyLink(visit, offers)}`,
    },
    ...lasting,
    figure(overview.used, formats.credits(usage.total.credits), note),
  ];
}

function buyLink({ words, role }: Visit, { sells }: Offers): Child {
  if (!sells || !may(role, 'orders.manage')) return null;
  return html`<a href="/account/orders/packages">${words.overview.low}</a>`;
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

type Work = Extract<OverviewView, { readonly kind: 'work' }>;

function running({ words, formats }: Visit, list: Work['running']): VNode {
  const { overview } = words;
  return ui.section(
    { title: overview.running },
    ui.dataTable({
      caption: overview.running,
      columns: [overview.since, overview.state, overview.job],
      rows: list.map(({ id, state, createdAtMs }) => [
        jobLink(id, ui.ago(createdAtMs, formats.exactTime)),
        ui.badge(overview.states[state], state === 'processing' ? 'accent' : 'neutral'),
        ui.shortId(id),
      ]),
    }),
  );
}

function failures({ words, formats }: Visit, list: Work['failures']): VNode {
  const { overview } = words;
  return ui.section(
    { title: overview.failures, lead: overview.failuresLead },
    ui.dataTable({
      caption: overview.failures,
      columns: [overview.time, overview.why, overview.job],
      rows: list.map(({ id, code, endedAtMs }) => [
        jobLink(id, ui.ago(endedAtMs, formats.exactTime)),
        failureText(words, code),
        ui.shortId(id),
      ]),
    }),
  );
}

function jobLink(id: string, label: Child): VNode {
  return html`<a href=${`${JOBS_PATH}/${id}`}>${label}</a>`;
}
