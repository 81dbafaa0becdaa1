import { Readable } from 'node:stream';
import { type Balances, LEDGER_KINDS, type LedgerKind } from '@matting/accounts/ledger/ledger.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { renderPage } from '../page/account-frame.ts';
import { sendCsv } from '../page/csv.ts';
import { ACCOUNT_PATH, html } from '../page/html.ts';
import { cursorOf } from '../page/paging.ts';
import * as ui from '../page/ui.ts';
import { PageError, queryText, type Visit, visitOf } from '../session/visit.ts';
import { lastingText, paceOf } from '../usage/pace.ts';
import type { ReadUsage } from '../usage/read-usage.ts';
import { dayOfIso } from '../usage/usage-store.ts';
import { type Formats, fill, type Words } from '../words/words.ts';
import type { LedgerHistory, LedgerLine, LedgerPage } from './ledger-history.ts';
import { creditsTabs, type Orders } from './order-pages.ts';

const CREDITS_PATH = `${ACCOUNT_PATH}/credits`;
const ORDERS_PATH = `${ACCOUNT_PATH}/orders`;
const READ = { config: { permission: 'credits.read' } } as const;

interface CreditServices {
  readonly ledgerHistory: LedgerHistory;
  readonly readUsage: Pick<ReadUsage, 'view'>;
  readonly orders: Pick<Orders, 'references' | 'packages'>;
}

export function registerCreditRoutes(account: FastifyInstance, services: CreditServices) {
  const { ledgerHistory } = services;
  account.get('/credits', READ, (_request, reply) => renderCredits(reply, services));
  account.get('/credits/export', READ, (request, reply) => {
    const { filter, wrong } = filterOf(request);
    if (Object.keys(wrong).length > 0) throw new PageError('badForm');
    const { lines, end } = ledgerHistory.export(visitOf(request).accountId, filter);
    // The export must also end if its reader leaves.
    const stream = Readable.from(lines, { objectMode: false }).once('close', end);
    return sendCsv(reply, 'credits.csv', stream);
  });
}

async function renderCredits(reply: FastifyReply, services: CreditServices) {
  const { ledgerHistory, readUsage } = services;
  const { request } = reply;
  const visit = visitOf(request);
  const { words, accountId } = visit;
  const { credits } = words;
  const { filter, typed, wrong } = filterOf(request);
  const after = cursorOf(request);
  const balances = await ledgerHistory.balance(accountId);
  const pace = paceOf(await readUsage.view(accountId, {}));
  const isWrong = Object.keys(wrong).length > 0;
  const choice = { filter, withReservations: typed.reservations !== '' };
  const page = isWrong
    ? { lines: [], next: undefined }
    : await ledgerHistory.page(accountId, choice, after);
  const orderIds = [...new Set(page.lines.flatMap(line => orderOrJobOf(line).order ?? []))];
  const references = await services.orders.references(accountId, orderIds);
  const { reservations: _shown, ...exported } = typed;
  const actions = ui.linkButton({
    href: ui.withQuery(`${CREDITS_PATH}/export`, exported),
    label: credits.export,
    download: true,
  });
  return renderPage(reply, {
    title: credits.title,
    lead: credits.lead,
    active: 'credits',
    status: isWrong ? 422 : 200,
    main: html`<div>
      ${creditsTabs(visit, services.orders, 'credits')}
      ${ui.figures(balanceFigures(visit, balances, pace))}
      ${ui.section(
        { title: credits.ledger, lead: credits.ledgerLead, actions },
        ledgerChoice(visit, typed, wrong),
        isWrong ? null : ledgerTable(visit, page, typed, references),
        ui.pager(words.common, CREDITS_PATH, { after, next: page.next }, typed),
      )}
    </div>`,
  });
}

function balanceFigures(visit: Visit, { available, reserved }: Balances, pace: number | undefined) {
  const { words, formats } = visit;
  const { credits } = words;
  const figures = [
    { label: credits.available, value: formats.credits(available), note: credits.availableNote },
    { label: credits.reserved, value: formats.credits(reserved), note: credits.reservedNote },
  ];
  if (pace === undefined) return figures;
  const note = fill(credits.lastsNote, { pace: formats.about(pace) });
  return [...figures, { label: credits.lasts, value: lastingText(visit, available, pace), note }];
}

type TypedFilter = ReturnType<typeof filterOf>['typed'];
/** `order`: the last day is before the first. */
type WrongFields = Partial<Record<'kind' | 'from' | 'to', 'form' | 'order'>>;

function ledgerChoice({ words }: Visit, typed: TypedFilter, wrong: WrongFields): VNode {
  const { credits, common } = words;
  const badDay = { form: credits.badDay, order: credits.badOrder };
  const kinds = LEDGER_KINDS.map(kind => ({ value: kind, label: credits.kinds[kind] }));
  const day = (name: 'from' | 'to') =>
    ui.textField({
      name,
      type: 'date',
      label: credits[name],
      value: typed[name],
      error: wrong[name] && badDay[wrong[name]],
    });
  const { from, to, reservations } = typed;
  const withReservations = reservations !== '';
  const shown = (isWith: boolean, label: string) => ({
    href: ui.withQuery(CREDITS_PATH, { from, to, reservations: isWith ? 1 : undefined }),
    label,
    active: typed.kind === '' && isWith === withReservations,
  });
  return html`<div class="choose">
    ${ui.segments(credits.shown, [shown(false, credits.moves), shown(true, credits.all)])}
    <details open=${isFiltered(typed)}><summary>${credits.filter}</summary>
      ${ui.filterForm(
        CREDITS_PATH,
        withReservations ? html`<input type="hidden" name="reservations" value="1" />` : null,
        ui.selectField({
          name: 'kind',
          label: credits.kind,
          value: typed.kind,
          error: wrong.kind && credits.badKind,
          options: [{ value: '', label: credits.allKinds }, ...kinds],
        }),
        day('from'),
        day('to'),
        ui.actions(
          ui.button({ label: common.apply, kind: 'secondary' }),
          isFiltered(typed)
            ? ui.linkButton({ href: CREDITS_PATH, label: common.clear, kind: 'quiet' })
            : null,
        ),
      )}
    </details>
  </div>`;
}

function isFiltered({ kind, from, to }: TypedFilter): boolean {
  return [kind, from, to].some(text => text !== '');
}

function ledgerTable(
  { words, formats }: Visit,
  { lines }: LedgerPage,
  typed: TypedFilter,
  references: ReadonlyMap<string, string>,
): VNode {
  const { credits } = words;
  const hasBalances = lines.some(({ balance }) => balance !== null);
  return ui.dataTable({
    caption: credits.ledger,
    isCompact: true,
    columns: [
      credits.what,
      credits.time,
      ui.end(credits.amount),
      ...(hasBalances ? [ui.end(credits.balance)] : []),
    ],
    rows: lines.map(line => [
      whatOf(line, words, references),
      ui.time(line.atMs, formats.dateTime),
      html`<span class=${TONES[line.kind]}>${signed(line, formats)}</span>`,
      line.balance === null ? null : formats.credits(line.balance),
    ]),
    empty: ui.emptyState(
      isFiltered(typed)
        ? { title: credits.nothingFound }
        : { title: credits.empty, text: credits.emptyText },
    ),
  });
}

const TONES: Readonly<Record<LedgerKind, string>> = {
  grant: 'plus',
  charge: '',
  revoke: 'minus',
  reserve: 'soft',
  release: 'soft',
};

/** Writes the effect on the available credits. A charge takes what was reserved before. */
function signed({ kind, amount }: LedgerLine, formats: Formats): string {
  const count = formats.credits(amount);
  return kind === 'grant' || kind === 'release' ? `+${count}` : `\u2212${count}`;
}

const UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
const OF_ORDER = new RegExp(`^(order|refund|released):(${UUID})(?:$|:)`);
const OF_LOST_RESULT = new RegExp(`^lost:(${UUID})$`);
/** Enough to distinguish the jobs of a page. */
const SHORT_ID_LENGTH = 8;

/** Finds the order or the job of an entry. Other references are the operator's own words. */
function orderOrJobOf({ kind, reference }: Pick<LedgerLine, 'kind' | 'reference'>) {
  if (kind !== 'grant' && kind !== 'revoke') return { words: kind, job: reference } as const;
  const [, why, order] = OF_ORDER.exec(reference) ?? [];
  if (order !== undefined) return { words: why === 'order' ? 'order' : 'refund', order } as const;
  const [, job] = OF_LOST_RESULT.exec(reference) ?? [];
  if (job !== undefined) return { words: 'lost', job } as const;
  return { words: kind, text: reference } as const;
}

function whatOf(line: LedgerLine, { credits }: Words, references: ReadonlyMap<string, string>) {
  const { words, order, job, text } = { order: undefined, job: undefined, ...orderOrJobOf(line) };
  const label = credits.lines[words];
  if (order !== undefined) {
    const reference = references.get(order) ?? order.slice(0, SHORT_ID_LENGTH);
    return html`<a href=${`${ORDERS_PATH}/${order}`}>${fill(label, { order: reference })}</a>`;
  }
  if (job === undefined) return html`${label} <span class="soft">${text}</span>`;
  return html`${label} <a href=${`${ACCOUNT_PATH}/jobs/${job}`} title=${job}><code>${job.slice(0, SHORT_ID_LENGTH)}</code></a>`;
}

function filterOf(request: FastifyRequest) {
  const typed = {
    kind: queryText(request, 'kind'),
    from: queryText(request, 'from'),
    to: queryText(request, 'to'),
    reservations: queryText(request, 'reservations'),
  };
  const kind = LEDGER_KINDS.find(known => known === typed.kind);
  const wrong: WrongFields = {};
  if (typed.kind !== '' && kind === undefined) wrong.kind = 'form';
  for (const field of ['from', 'to'] as const) {
    if (typed[field] !== '' && dayOfIso(typed[field]) === undefined) wrong[field] = 'form';
  }
  const { from, to } = typed;
  const areDays = from !== '' && to !== '' && wrong.from === undefined && wrong.to === undefined;
  if (areDays && from > to) wrong.to = 'order';
  const filter = { kind, from: from || undefined, to: to || undefined };
  return { filter, typed, wrong };
}
