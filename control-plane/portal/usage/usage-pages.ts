/**
 * What an account used, for programs (GET /v1/account/usage) and for its people: by day as a chart,
 * by key, outcome or format as a table, as CSV; and the account's first page.
 */

import { publicState } from '@matting/core/jobs/job.ts';
import type { StoresWithoutEnds } from '@matting/core/stores.ts';
import { curlSample } from '@matting/proto/contract/curl-sample.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { failureText } from '../jobs/job-pages.ts';
import { csvLine, sendCsv } from '../orders/credit-pages.ts';
import { renderPage } from '../page/frame.ts';
import * as ui from '../page/html.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import { may } from '../people/roles.ts';
import { PageError, queryText, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import type { ReadUsage, UsageEntry, UsageView } from './read-usage.ts';
import {
  DAY_MS,
  dayOfIso,
  isoOfDay,
  USAGE_DAYS_MAX,
  USAGE_GROUPS,
  USAGE_KEPT_DAYS,
} from './usage-store.ts';

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

/** Names of the columns are those of the API. */
function usageCsv({ group, usage }: UsageView): string {
  const names = group === 'key' ? ['key', 'name'] : [group];
  const head = csvLine([...names, 'images', 'failed', 'credits']);
  const lines = usage.map(entry => {
    const { images, failed, credits } = entry;
    return csvLine([...namesOf(entry), images, failed, credits]);
  });
  return [head, ...lines].join('');
}

function namesOf(entry: UsageEntry): string[] {
  if ('key' in entry) return [entry.key ?? '', entry.name ?? ''];
  if ('day' in entry) return [entry.day];
  if ('outcome' in entry) return [entry.outcome];
  return [entry.format];
}

const PATH = `${ACCOUNT_PATH}/usage`;
const OVERVIEW = { config: { permission: 'overview.read' } } as const;
const USAGE = { config: { permission: 'usage.read' } } as const;

/** @param baseUrl for the line that shows how to call the API */
export function registerUsageRoutes(
  account: FastifyInstance,
  { overview, readUsage }: { readonly overview: Overview; readonly readUsage: ReadUsage },
  baseUrl: string,
): void {
  account.get('/', OVERVIEW, async (request, reply) =>
    renderOverview(reply, await overview.read(visitOf(request).accountId), baseUrl),
  );
  account.get('/usage', USAGE, (_request, reply) => renderUsage(reply, readUsage));
  account.get('/usage.csv', USAGE, async (request, reply) => {
    const answer = await readUsage.ask(visitOf(request).accountId, textsOf(typedOf(request)));
    if ('fault' in answer) throw new PageError('badForm');
    const name = `usage-${answer.group}-${answer.from}-${answer.to}.csv`;
    return sendCsv(reply, name, usageCsv(answer));
  });
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
          actions: ui.linkButton({ href: PATH, label: overview.moreUsage }),
        },
        ui.panel(usageChart(visit, overview.usageTitle, view.usage)),
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

async function renderUsage(reply: FastifyReply, readUsage: ReadUsage) {
  const { request } = reply;
  const visit = visitOf(request);
  const typed = typedOf(request);
  const answer = await readUsage.ask(visit.accountId, textsOf(typed));
  const { usage } = visit.words;
  const kept = html`<p class="hint">${fill(usage.kept, { days: USAGE_KEPT_DAYS })}</p>`;
  const page = { title: usage.title, lead: usage.lead, active: 'usage' } as const;
  if ('fault' in answer) {
    // A group is chosen, not typed.
    if (answer.field === 'group') throw new PageError('badForm');
    const errors = { [answer.field]: fill(usage.faults[answer.fault], { days: USAGE_DAYS_MAX }) };
    const main = html`<div>${filterOf(visit.words, typed, errors)}${kept}</div>`;
    return renderPage(reply, { ...page, status: 422, main });
  }
  const { from, to, group } = answer;
  const href = ui.withQuery(`${PATH}.csv`, { from, to, group });
  const actions = ui.linkButton({ href, label: usage.export, download: true });
  return renderPage(reply, {
    ...page,
    main: html`<div>
      ${filterOf(visit.words, { from, to, group })}
      ${ui.figures(totalFigures(visit, answer))}
      ${ui.section({ title: usage.groups[group], actions }, chartAndTable(visit, answer))}
      ${kept}
    </div>`,
  });
}

type TypedUsage = ReturnType<typeof typedOf>;

function filterOf(
  { usage, common }: Words,
  typed: TypedUsage,
  errors: { readonly from?: string; readonly to?: string } = {},
): VNode {
  const { from, to } = errors;
  return ui.filterForm(
    PATH,
    ui.textField({ name: 'from', label: usage.from, type: 'date', value: typed.from, error: from }),
    ui.textField({ name: 'to', label: usage.to, type: 'date', value: typed.to, error: to }),
    ui.selectField({
      name: 'group',
      label: usage.group,
      value: typed.group,
      options: USAGE_GROUPS.map(value => ({ value, label: usage.groups[value] })),
    }),
    ui.button({ label: common.apply, kind: 'secondary' }),
  );
}

function totalFigures({ words, formats }: Visit, { total }: UsageView) {
  const { usage } = words;
  const { images, failed, credits } = total;
  return [
    { label: usage.images, value: formats.credits(images), note: usage.imagesNote },
    { label: usage.failed, value: formats.credits(failed), note: usage.failedNote },
    { label: usage.credits, value: formats.credits(credits), note: usage.creditsNote },
  ];
}

function chartAndTable(visit: Visit, view: UsageView): Child {
  const { usage } = visit.words;
  const { formats } = visit;
  const number = (label: string) => ({ label, align: 'end' as const });
  const table = ui.dataTable({
    caption: usage.groups[view.group],
    columns: [
      usage.groups[view.group],
      number(usage.images),
      number(usage.failed),
      number(usage.credits),
    ],
    rows: view.usage.map(entry => [
      nameOf(visit, entry),
      formats.credits(entry.images),
      formats.credits(entry.failed),
      formats.credits(entry.credits),
    ]),
    empty: html`<p class="padded soft">${usage.empty}</p>`,
  });
  if (view.group !== 'day' || view.usage.length === 0) return table;
  return html`<div class="stack">${ui.panel(usageChart(visit, usage.chart, view))}${table}</div>`;
}

/** Beside the name of a key, the part of it that is no secret. */
function nameOf({ words, formats }: Visit, entry: UsageEntry): Child {
  const { usage } = words;
  if ('day' in entry) return formats.date(Date.parse(entry.day));
  if ('outcome' in entry) {
    return entry.outcome === 'failed' ? usage.outcomes.failed : usage.succeeded;
  }
  const name = 'key' in entry ? entry.name : entry.format;
  if (name === null) return html`<span class="soft">${usage.unknown}</span>`;
  return 'key' in entry && entry.key !== null ? html`${name} <code>${entry.key}</code>` : name;
}

/** Images a day as bars: those that succeeded below those that failed, days without any too. */
function usageChart({ words, formats }: Visit, title: string, { from, to, usage }: UsageView) {
  const byDay = new Map(usage.map(entry => ['day' in entry ? entry.day : '', entry]));
  const bars: Bar[] = [];
  const last = dayOfIso(to) ?? 0;
  for (let day = dayOfIso(from) ?? last; day <= last; day += 1) {
    const iso = isoOfDay(day);
    const { images = 0, failed = 0 } = byDay.get(iso) ?? {};
    bars.push({
      label: formats.date(day * DAY_MS),
      shortLabel: iso.slice('2026-'.length),
      values: [images - failed, failed],
    });
  }
  return barChart({
    title,
    series: [words.overview.succeeded, words.overview.failed],
    bars,
    format: value => formats.credits(value),
    tableLabel: words.common.chartTable,
    barLabel: words.overview.day,
  });
}

function typedOf(request: FastifyRequest) {
  const text = (name: string) => queryText(request, name);
  return { from: text('from'), to: text('to'), group: text('group') };
}

/** A field that is left empty takes its default. */
function textsOf(typed: TypedUsage): Partial<TypedUsage> {
  return Object.fromEntries(Object.entries(typed).filter(([, text]) => text !== ''));
}

// Bars over days, drawn as SVG by attributes; a table says the same to screen readers.

interface Bar {
  /** The whole name: `21 Nov 2026`. */
  readonly label: string;
  /** What stands under it; bars whose names would overlap leave theirs out. */
  readonly shortLabel: string;
  /** From the bottom up. */
  readonly values: readonly number[];
}

interface BarChartProps {
  readonly title: string;
  /** Names of the parts of a bar, at least two. */
  readonly series: readonly string[];
  readonly bars: readonly Bar[];
  readonly format: (value: number) => string;
  /** Says that the table below is the chart. */
  readonly tableLabel: string;
  /** The heading of the table's first column. */
  readonly barLabel: string;
}

const WIDTH = 720;
const HEIGHT = 200;
const LEFT = 44;
const TOP = 10;
const BOTTOM = 24;
const GRID_LINES = 4;
const LABELS_MAX = 8;
/** A day with one picture among thousands is seen. */
const SEEN_MIN = 1.5;

export function barChart(props: BarChartProps): VNode {
  const { title, series, bars, format } = props;
  const most = Math.max(
    ...bars.map(({ values }) => values.reduce((sum, value) => sum + value, 0)),
    0,
  );
  const step = niceStep(most / GRID_LINES);
  const top = step * GRID_LINES;
  const plot = HEIGHT - TOP - BOTTOM;
  const heightOf = (value: number) => (value / top) * plot;
  const lines = Array.from({ length: GRID_LINES + 1 }, (_, index) => index * step);
  return html`<figure class="chart">
    ${legend(series)}
    <div class="chart-reach" tabindex="0" role="region" aria-label=${title}>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${title}>
      ${lines.map(value => {
        const y = HEIGHT - BOTTOM - heightOf(value);
        return html`<g><line class="grid" x1=${LEFT} x2=${WIDTH} y1=${y} y2=${y} />
          <text x=${LEFT - 8} y=${y + 4} text-anchor="end">${format(value)}</text></g>`;
      })}
      ${bars.map((bar, index) => drawBar(bar, index, heightOf, props))}
    </svg></div>
    ${chartTable(props)}
  </figure>`;
}

function drawBar(
  bar: Bar,
  index: number,
  heightOf: (value: number) => number,
  { bars: { length: count }, format, series }: BarChartProps,
): VNode {
  const slot = (WIDTH - LEFT) / count;
  const width = Math.min(slot * 0.72, 40);
  const x = LEFT + slot * index + (slot - width) / 2;
  let y = HEIGHT - BOTTOM;
  const parts = bar.values.map((value, part) => {
    if (value <= 0) return null;
    const height = Math.max(heightOf(value), SEEN_MIN);
    y -= height;
    return html`<rect class=${`series-${part}`} x=${round(x)} y=${round(y)} width=${round(width)}
      height=${round(height)} />`;
  });
  const every = Math.ceil(count / LABELS_MAX);
  const said = bar.values.map((value, part) => `${series[part]}: ${format(value)}`);
  return html`<g class="day"><title>${`${bar.label}\n${said.join('\n')}`}</title>
    <rect class="reach" x=${round(LEFT + slot * index)} y=${TOP} width=${round(slot)}
      height=${HEIGHT - TOP - BOTTOM} />
    ${parts}
    ${index % every === 0 ? html`<text x=${round(x + width / 2)} y=${HEIGHT - 6} text-anchor="middle">${bar.shortLabel}</text>` : null}
  </g>`;
}

function legend(series: readonly string[]): VNode {
  return html`<div class="legend" aria-hidden="true">${series.map(
    (name, index) => html`<span><svg width="10" height="10" viewBox="0 0 10 10"><rect
      class=${`series-${index}`} width="10" height="10" rx="2" /></svg>${name}</span>`,
  )}</div>`;
}

function chartTable({ title, series, bars, format, tableLabel, barLabel }: BarChartProps): VNode {
  return html`<details class="chart-table"><summary>${tableLabel}</summary>
    <table><caption class="silent">${title}</caption>
      <thead><tr><th scope="col">${barLabel}</th>
        ${series.map(name => html`<th scope="col" class="end">${name}</th>`)}</tr></thead>
      <tbody>${bars.map(
        bar => html`<tr><th scope="row">${bar.label}</th>
          ${bar.values.map(value => html`<td class="end">${format(value)}</td>`)}</tr>`,
      )}</tbody>
    </table>
  </details>`;
}

/** A round number of at least `least`: 1, 2 or 5 times a power of ten, whole. */
function niceStep(least: number): number {
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(times => times * power).find(step => step >= least) ?? least;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
