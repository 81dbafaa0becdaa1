/**
 * The account's first page (its credits, its use, what runs, what failed, how to begin), and what it
 * used: by day as a chart, by key, outcome or format as a table; as CSV.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import type { AccountAreaServices } from '../account-area-services.ts';
import { failureText } from '../jobs/job-pages.ts';
import { queryText, sendCsv } from '../orders/credit-pages.ts';
import { type Bar, barChart } from '../page/chart.ts';
import { ACCOUNT_PATH, renderPage } from '../page/frame.ts';
import {
  badge,
  button,
  type Child,
  codeBlock,
  dataTable,
  figures,
  filterForm,
  html,
  linkButton,
  notice,
  panel,
  section,
  selectField,
  textField,
  time,
  withQuery,
} from '../page/html.ts';
import { may } from '../people/roles.ts';
import { PageError, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import {
  type OverviewView,
  type ReadUsage,
  type UsageEntry,
  type UsageView,
  usageCsv,
} from './read-usage.ts';
import {
  DAY_MS,
  dayOfIso,
  isoOfDay,
  USAGE_DAYS_MAX,
  USAGE_GROUPS,
  USAGE_KEPT_DAYS,
} from './usage.ts';

const PATH = `${ACCOUNT_PATH}/usage`;
const OVERVIEW = { config: { permission: 'overview.read' } } as const;
const USAGE = { config: { permission: 'usage.read' } } as const;

/** @param baseUrl for the line that shows how to call the API */
export function registerUsageRoutes(
  account: FastifyInstance,
  { overview, readUsage }: AccountAreaServices,
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
      ${figures(creditFigures(visit, view))}
      ${section(
        {
          title: overview.usage,
          actions: linkButton({ href: PATH, label: overview.moreUsage }),
        },
        panel(usageChart(visit, overview.usageTitle, view.usage)),
      )}
      ${section(
        {
          title: overview.running,
          actions: linkButton({ href: '/account/jobs', label: overview.moreJobs }),
        },
        dataTable({
          caption: overview.running,
          columns: [overview.job, overview.state, overview.since],
          rows: view.running.map(({ id, state, createdAtMs }) => [
            jobLink(id),
            badge(overview.states[state], state === 'processing' ? 'accent' : 'neutral'),
            time(createdAtMs, formats.exactTime),
          ]),
          empty: html`<p class="padded soft">${overview.runningNone}</p>`,
        }),
      )}
      ${section(
        { title: overview.failures, lead: overview.failuresLead },
        dataTable({
          caption: overview.failures,
          columns: [overview.job, overview.why, overview.time],
          rows: view.failures.map(({ id, code, endedAtMs }) => [
            jobLink(id),
            failureText(words, code),
            time(endedAtMs, formats.exactTime),
          ]),
          empty: html`<p class="padded soft">${overview.failuresNone}</p>`,
        }),
      )}
      ${firstPicture(words, baseUrl, may(role, 'keys.manage'))}
    </div>`,
  });
}

function emptyNotice({ overview }: Words, mayOrder: boolean): VNode {
  return notice(
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
    ? linkButton({ href: '/account/keys', label: overview.makeKey })
    : null;
  return section(
    { title: overview.curl, lead: fill(overview.curlLead, { key: KEY_PLACE }), actions },
    codeBlock(curlLine(baseUrl), common, overview.curlLabel),
  );
}

/** One line that works when pasted, whatever the shell; a picture has a key of its own. */
function curlLine(baseUrl: string): string {
  return [
    `curl -fsS '${baseUrl}/v1/matting' -H 'Authorization: Bearer ${KEY_PLACE}'`,
    `-H "Idempotency-Key: photo-$(date +%s)" -H 'Accept: image/png'`,
    '-F image_file=@photo.jpg -o cutout.png',
  ].join(' ');
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
  const href = withQuery(`${PATH}.csv`, { from, to, group });
  const actions = linkButton({ href, label: usage.export, download: true });
  return renderPage(reply, {
    ...page,
    main: html`<div>
      ${filterOf(visit.words, { from, to, group })}
      ${figures(totalFigures(visit, answer))}
      ${section({ title: usage.groups[group], actions }, chartAndTable(visit, answer))}
      ${kept}
    </div>`,
  });
}

/** As typed; '' where it was not. */
type TypedUsage = ReturnType<typeof typedOf>;

/** @param errors what is wrong with a field, in words */
function filterOf(
  { usage, common }: Words,
  typed: TypedUsage,
  errors: { readonly from?: string; readonly to?: string } = {},
): VNode {
  const { from, to } = errors;
  return filterForm(
    PATH,
    textField({ name: 'from', label: usage.from, type: 'date', value: typed.from, error: from }),
    textField({ name: 'to', label: usage.to, type: 'date', value: typed.to, error: to }),
    selectField({
      name: 'group',
      label: usage.group,
      value: typed.group,
      options: USAGE_GROUPS.map(value => ({ value, label: usage.groups[value] })),
    }),
    button({ label: common.apply, kind: 'secondary' }),
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
  const table = dataTable({
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
  return html`<div class="stack">${panel(usageChart(visit, usage.chart, view))}${table}</div>`;
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

/** @throws PageError given twice */
function typedOf(request: FastifyRequest) {
  const text = (name: string) => queryText(request, name);
  return { from: text('from'), to: text('to'), group: text('group') };
}

/** A field that is left empty takes its default. */
function textsOf(typed: TypedUsage): Partial<TypedUsage> {
  return Object.fromEntries(Object.entries(typed).filter(([, text]) => text !== ''));
}
