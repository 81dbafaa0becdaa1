/**
 * What an account used, for its people: by day as a chart, by key, outcome or format as a table, as
 * CSV.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { csvLine, sendCsv } from '../orders/credit-pages.ts';
import { renderPage } from '../page/frame.ts';
import * as ui from '../page/html.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import { PageError, queryText, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import type { ReadUsage, UsageEntry, UsageView } from './read-usage.ts';
import { usageChart } from './usage-chart.ts';
import { USAGE_DAYS_MAX, USAGE_GROUPS, USAGE_KEPT_DAYS } from './usage-store.ts';

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

export const USAGE_PATH = `${ACCOUNT_PATH}/usage`;
const USAGE = { config: { permission: 'usage.read' } } as const;

export function registerUsageRoutes(account: FastifyInstance, readUsage: ReadUsage): void {
  account.get('/usage', USAGE, (_request, reply) => renderUsage(reply, readUsage));
  account.get('/usage.csv', USAGE, async (request, reply) => {
    const answer = await readUsage.ask(visitOf(request).accountId, textsOf(typedOf(request)));
    if ('fault' in answer) throw new PageError('badForm');
    const name = `usage-${answer.group}-${answer.from}-${answer.to}.csv`;
    return sendCsv(reply, name, usageCsv(answer));
  });
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
  const href = ui.withQuery(`${USAGE_PATH}.csv`, { from, to, group });
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
    USAGE_PATH,
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

function typedOf(request: FastifyRequest) {
  const text = (name: string) => queryText(request, name);
  return { from: text('from'), to: text('to'), group: text('group') };
}

/** A field that is left empty takes its default. */
function textsOf(typed: TypedUsage): Partial<TypedUsage> {
  return Object.fromEntries(Object.entries(typed).filter(([, text]) => text !== ''));
}
