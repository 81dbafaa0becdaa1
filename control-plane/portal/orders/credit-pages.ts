/** Credits: balance, ledger by kind and days, and the ledger as CSV. */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { LEDGER_KINDS } from '../../core/ledger/ledger.ts';
import { ACCOUNT_PATH, renderPage } from '../page/frame.ts';
import {
  button,
  type Child,
  dataTable,
  emptyState,
  figures,
  filterForm,
  html,
  linkButton,
  pager,
  section,
  selectField,
  tabs,
  textField,
  time,
  withQuery,
} from '../page/html.ts';
import { may } from '../people/roles.ts';
import { PageError, queryOf, type Visit, visitOf } from '../session/visit.ts';
import { dayOfIso } from '../usage/usage.ts';
import type { Formats, Words } from '../words/words.ts';
import { type LedgerHistory, type LedgerPage, parsePlace } from './ledger-history.ts';

const CREDITS_PATH = `${ACCOUNT_PATH}/credits`;
const ORDERS_PATH = `${ACCOUNT_PATH}/orders`;
const PACKAGES_PATH = `${ORDERS_PATH}/packages`;
const READ = { config: { permission: 'credits.read' } } as const;

export function registerCreditRoutes(account: FastifyInstance, ledgerHistory: LedgerHistory) {
  account.get('/credits', READ, async (request, reply) => {
    const visit = visitOf(request);
    const { words, formats, accountId } = visit;
    const { filter, typed, wrong } = filterOf(request);
    const after = placeOf(request);
    const { available, reserved } = await ledgerHistory.balance(accountId);
    const isWrong = Object.keys(wrong).length > 0;
    const page = isWrong
      ? { entries: [], next: undefined }
      : await ledgerHistory.page(accountId, filter, after);
    const { credits } = words;
    const { next } = page;
    return renderPage(reply, {
      title: credits.title,
      lead: credits.lead,
      active: 'credits',
      status: isWrong ? 422 : 200,
      main: html`<div>
        ${creditsTabs(visit, 'credits')}
        ${figures([
          {
            label: credits.available,
            value: formats.credits(available),
            note: credits.availableNote,
          },
          { label: credits.reserved, value: formats.credits(reserved), note: credits.reservedNote },
        ])}
        ${section(
          {
            title: credits.ledger,
            lead: credits.ledgerLead,
            actions: linkButton({
              href: withQuery(`${CREDITS_PATH}/export`, typed),
              label: credits.export,
              download: true,
            }),
          },
          ledgerFilter(words, typed, wrong),
          isWrong ? null : ledgerTable(visit, page, typed),
          pager(words.common, CREDITS_PATH, { after, next }, typed),
        )}
      </div>`,
    });
  });
  account.get('/credits/export', READ, (request, reply) => {
    const { filter, wrong } = filterOf(request);
    if (Object.keys(wrong).length > 0) throw new PageError('badForm');
    const { lines, end } = ledgerHistory.export(visitOf(request).accountId, filter);
    // Whether its reader takes all of it or leaves.
    const stream = Readable.from(lines, { objectMode: false }).once('close', end);
    return sendCsv(reply, 'credits.csv', stream);
  });
}

export function sendCsv(reply: FastifyReply, name: string, body: string | Readable): FastifyReply {
  return reply
    .headers({
      'content-type': 'text/csv; charset=utf-8; header=present',
      'content-disposition': `attachment; filename="${name}"`,
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    })
    .send(body);
}

/** The pages about credits; ordering is for owners. */
export function creditsTabs(
  { words, role }: Visit,
  active: 'credits' | 'packages' | 'orders',
): VNode {
  const { credits, orders } = words;
  const all = [
    { href: CREDITS_PATH, label: credits.tab, active: active === 'credits' },
    { href: PACKAGES_PATH, label: orders.buy, active: active === 'packages' },
    { href: ORDERS_PATH, label: orders.title, active: active === 'orders' },
  ];
  const seen = all.filter(({ href }) => may(role, 'orders.manage') || href !== PACKAGES_PATH);
  return tabs(credits.title, seen);
}

/** As typed; '' where it was not. */
type TypedFilter = ReturnType<typeof filterOf>['typed'];
/** Which field is wrong: in itself, or `order`, because the days are the wrong way round. */
type WrongFields = Partial<Record<'kind' | 'from' | 'to', 'form' | 'order'>>;

function ledgerFilter({ credits, common }: Words, typed: TypedFilter, wrong: WrongFields): VNode {
  const badDay = { form: credits.badDay, order: credits.badOrder };
  const kinds = LEDGER_KINDS.map(kind => ({ value: kind, label: credits.kinds[kind] }));
  const day = (name: 'from' | 'to') =>
    textField({
      name,
      type: 'date',
      label: credits[name],
      value: typed[name],
      error: wrong[name] && badDay[wrong[name]],
    });
  return filterForm(
    CREDITS_PATH,
    selectField({
      name: 'kind',
      label: credits.kind,
      value: typed.kind,
      error: wrong.kind && credits.badKind,
      options: [{ value: '', label: credits.allKinds }, ...kinds],
    }),
    day('from'),
    day('to'),
    html`<div class="actions">
      ${button({ label: common.apply, kind: 'secondary' })}
      ${isFiltered(typed) ? linkButton({ href: CREDITS_PATH, label: common.clear, kind: 'quiet' }) : null}
    </div>`,
  );
}

function isFiltered(typed: TypedFilter): boolean {
  return Object.values(typed).some(text => text !== '');
}

function ledgerTable({ words, formats }: Visit, { entries }: LedgerPage, typed: TypedFilter) {
  const { credits } = words;
  return dataTable({
    caption: credits.ledger,
    columns: [
      credits.time,
      credits.kind,
      { label: credits.amount, align: 'end' },
      credits.reference,
    ],
    rows: entries.map(entry => [
      time(entry.atMs, formats.exactTime),
      credits.kinds[entry.kind],
      signed(entry, formats),
      referenceOf(entry),
    ]),
    empty: emptyState(
      isFiltered(typed)
        ? { title: credits.nothingFound }
        : { title: credits.empty, text: credits.emptyText },
    ),
  });
}

type Entry = LedgerPage['entries'][number];

/** What the entry did to the available credits; a charge takes what was reserved before. */
function signed({ kind, amount }: Entry, formats: Formats): string {
  const count = formats.credits(amount);
  if (kind === 'charge') return count;
  return kind === 'grant' || kind === 'release' ? `+${count}` : `\u2212${count}`;
}

const OF_ORDER = /^(?:order|refund):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:$|:)/;

/** A link where the reference is an order or a job. */
function referenceOf({ kind, reference }: Entry): Child {
  const order = OF_ORDER.exec(reference)?.[1];
  const isMovement = kind === 'grant' || kind === 'revoke';
  if (isMovement && order === undefined) return reference;
  const href = isMovement ? `${ORDERS_PATH}/${order}` : `${ACCOUNT_PATH}/jobs/${reference}`;
  return html`<a href=${href}>${reference}</a>`;
}

function filterOf(request: FastifyRequest) {
  const typed = {
    kind: queryText(request, 'kind'),
    from: queryText(request, 'from'),
    to: queryText(request, 'to'),
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

/** '' where it is absent. @throws PageError given twice */
export function queryText(request: FastifyRequest, name: string): string {
  const value = queryOf(request, name) ?? '';
  if (typeof value !== 'string') throw new PageError('badForm');
  return value;
}

/** Where the page begins; undefined: at the latest. @throws PageError */
export function placeOf(request: FastifyRequest) {
  const text = queryText(request, 'after');
  const place = parsePlace(text);
  if (text !== '' && place === undefined) throw new PageError('badForm');
  return place;
}
