import type { Balances } from '@matting/accounts/ledger/ledger.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { renderPage } from '../page/account-frame.ts';
import { csvLine, sendCsv } from '../page/csv.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { PageError, queryText, type Visit, visitOf } from '../session/visit.ts';
import { counted, fill, type Words } from '../words/words.ts';
import { forecastText, paceOf } from './pace.ts';
import type { ReadUsage, UsageEntry, UsageView } from './read-usage.ts';
import { usageChart } from './usage-chart.ts';
import { dayOf, isoOfDay, USAGE_DAYS_MAX, USAGE_GROUPS, USAGE_KEPT_DAYS } from './usage-store.ts';

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

interface UsageServices {
  readonly readUsage: ReadUsage;
  readonly ledgerHistory: { balance(accountId: string): Promise<Pick<Balances, 'available'>> };
}

export function registerUsageRoutes(account: FastifyInstance, services: UsageServices): void {
  const { readUsage } = services;
  account.get('/usage', USAGE, (_request, reply) => renderUsage(reply, services));
  account.get('/usage.csv', USAGE, async (request, reply) => {
    const answer = await readUsage.viewOrFault(
      visitOf(request).accountId,
      textsOf(typedOf(request)),
    );
    if ('fault' in answer) throw new PageError('badForm');
    const name = `usage-${answer.group}-${answer.from}-${answer.to}.csv`;
    return sendCsv(reply, name, usageCsv(answer));
  });
}

async function renderUsage(reply: FastifyReply, { readUsage, ledgerHistory }: UsageServices) {
  const { request } = reply;
  const visit = visitOf(request);
  const { accountId, words } = visit;
  const typed = typedOf(request);
  const answer = await readUsage.viewOrFault(accountId, textsOf(typed));
  const { usage } = words;
  const kept = html`<p class="hint">${fill(usage.kept, { days: USAGE_KEPT_DAYS })}</p>`;
  const page = { title: usage.title, lead: usage.lead, active: 'usage' } as const;
  if ('fault' in answer) {
    if (answer.field === 'group') throw new PageError('badForm');
    const errors = { [answer.field]: fill(usage.faults[answer.fault], { days: USAGE_DAYS_MAX }) };
    const main = html`<div>${daysChoice(visit, typed, errors)}${kept}</div>`;
    return renderPage(reply, { ...page, status: 422, main });
  }
  const { from, to, group } = answer;
  const split = group === 'day' ? 'outcome' : group;
  const parts = await readUsage.daily(accountId, answer, split);
  const pace = paceOf(await readUsage.view(accountId, {}));
  const { available } = await ledgerHistory.balance(accountId);
  const forecast =
    pace === undefined ? null : forecastText(visit, { available, pace, nowMs: Date.now() });
  const href = ui.withQuery(`${USAGE_PATH}.csv`, { from, to, group });
  const actions = ui.linkButton({ href, label: usage.export, download: true });
  return renderPage(reply, {
    ...page,
    main: html`<div>
      ${daysChoice(visit, { from, to, group })}
      ${ui.figures(totalFigures(visit, answer))}
      ${forecast === null ? null : html`<p class="lead">${forecast}</p>`}
      ${ui.section(
        { title: usage.chart, actions },
        groupTabs(words, answer),
        chartAndTable(visit, answer, parts),
      )}
      ${kept}
    </div>`,
  });
}

type TypedUsage = ReturnType<typeof typedOf>;

const PRESETS = [7, 30, 90] as const;

function daysChoice(
  { language, words }: Visit,
  { from, to, group }: TypedUsage,
  errors: { readonly from?: string; readonly to?: string } = {},
): VNode {
  const { usage, common } = words;
  const today = dayOf(Date.now());
  const links = PRESETS.map(days => {
    const begins = isoOfDay(today - days + 1);
    return {
      href: ui.withQuery(USAGE_PATH, { from: begins, group }),
      label: counted(language, usage.lastDays, days),
      active: from === begins && to === isoOfDay(today),
    };
  });
  const isOther = links.every(({ active }) => !active);
  return html`<div class="choose">
    ${ui.segments(usage.period, links)}
    <details open=${isOther}><summary>${usage.otherDays}</summary>
      ${ui.filterForm(
        USAGE_PATH,
        group === '' ? null : html`<input type="hidden" name="group" value=${group} />`,
        ui.textField({
          name: 'from',
          label: usage.from,
          type: 'date',
          value: from,
          error: errors.from,
        }),
        ui.textField({ name: 'to', label: usage.to, type: 'date', value: to, error: errors.to }),
        ui.button({ label: common.apply, kind: 'secondary' }),
      )}
    </details>
  </div>`;
}

function groupTabs({ usage }: Words, { from, to, group }: UsageView): VNode {
  return ui.segments(
    usage.group,
    USAGE_GROUPS.map(one => ({
      href: ui.withQuery(USAGE_PATH, { from, to, group: one }),
      label: usage.groups[one],
      active: one === group,
    })),
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

/** The chart has its own table of days. Sums of keys, outcomes and formats follow below it. */
function chartAndTable(
  visit: Visit,
  view: UsageView,
  parts: Awaited<ReturnType<ReadUsage['daily']>>,
): Child {
  const { words, formats } = visit;
  const { usage } = words;
  const { from, to, group } = view;
  if (view.usage.length === 0) return html`<p class="panel padded soft">${usage.empty}</p>`;
  const isByOutcome = group === 'day' || group === 'outcome';
  const { succeeded, failed } = usage.outcomes;
  const chart = isByOutcome
    ? usageChart(visit, {
        ...{ from, to, series: [succeeded, failed] },
        parts: parts.map(part => ({ ...part, name: part.name === 'failed' ? failed : succeeded })),
      })
    : usageChart(visit, { from, to, parts });
  if (group === 'day') return ui.panel(chart);
  const table = ui.dataTable({
    caption: usage.groups[group],
    columns: [
      usage.groups[group],
      ui.end(usage.images),
      ui.end(usage.failed),
      ui.end(usage.credits),
    ],
    rows: view.usage
      .toSorted((one, other) => other.images - one.images)
      .map(entry => [
        nameOf(visit, entry),
        formats.credits(entry.images),
        formats.credits(entry.failed),
        formats.credits(entry.credits),
      ]),
  });
  return html`<div class="stack">${ui.panel(chart)}${table}</div>`;
}

function nameOf({ words, formats }: Visit, entry: UsageEntry): Child {
  const { usage } = words;
  if ('day' in entry) return formats.date(Date.parse(entry.day));
  if ('outcome' in entry) {
    const { outcomes } = usage;
    if (entry.outcome === 'corrected') return outcomes.corrected;
    return entry.outcome === 'failed' ? outcomes.failed : outcomes.succeeded;
  }
  const name = 'key' in entry ? entry.name : entry.format;
  if (name === null) return html`<span class="soft">${usage.unknown}</span>`;
  return 'key' in entry && entry.key !== null ? html`${name} <code>${entry.key}</code>` : name;
}

function typedOf(request: FastifyRequest) {
  const text = (name: string) => queryText(request, name);
  return { from: text('from'), to: text('to'), group: text('group') };
}

function textsOf(typed: TypedUsage): Partial<TypedUsage> {
  return Object.fromEntries(Object.entries(typed).filter(([, text]) => text !== ''));
}
