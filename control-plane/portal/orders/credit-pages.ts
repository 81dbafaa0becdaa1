/** Credits: an account's balance, its ledger with the balance of each line, and all of a period as CSV. */

import { Readable } from 'node:stream';
import { type Balances, LEDGER_KINDS, type LedgerKind } from '@matting/core/ledger/ledger.ts';
import type { LedgerStore, ListedEntry, PageCursor } from '@matting/core/ledger/ledger-store.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { csvLine, sendCsv } from '../page/csv.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import { renderPage } from '../page/page-frame.ts';
import { cursorOf, cursorText, pageOf } from '../page/paging.ts';
import * as ui from '../page/ui.ts';
import { PageError, queryText, type Visit, visitOf } from '../session/visit.ts';
import { lastingText, paceOf } from '../usage/pace.ts';
import type { ReadUsage } from '../usage/read-usage.ts';
import { dayOfIso } from '../usage/usage-store.ts';
import { type Formats, fill, type Words } from '../words/words.ts';
import { type LedgerLine, type LedgerLineStore, MOVING_KINDS } from './ledger-lines.ts';
import { creditsTabs, type Orders } from './order-pages.ts';

const LINES_PAGE_ROWS = 50;
/** Entries of one statement of an export: about a millisecond on SQLite. */
const EXPORT_PAGE_ROWS = 500;
/** Exports of a replica at once; an account has one. */
export const EXPORTS_AT_ONCE_MAX = 4;
/** One whose reader has asked for nothing for as long gives its place to another account's. */
export const EXPORT_READER_MS_MAX = 5000;
const RETRY_AFTER_S = 10;

const DAY_MS = 86_400_000;

/** Which entries: of a kind, of days (UTC, `2026-01-31`), both ends included. */
export interface LedgerFilter {
  readonly kind: LedgerKind | undefined;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

interface LedgerPage {
  readonly lines: readonly LedgerLine[];
  /** Where the next page begins; undefined: there is none. */
  readonly next: string | undefined;
}

interface Export {
  /** Since when its lines wait for their reader; undefined: they are being read. */
  waitsSinceMs: number | undefined;
  ended: boolean;
}

export class LedgerHistory {
  readonly #ledger: LedgerStore;
  readonly #lines: LedgerLineStore;
  readonly #exportPageRows: number;
  readonly #clockMs: () => number;
  readonly #exporting = new Map<string, Export>();

  /** @param clockMs milliseconds of a clock that never goes back */
  constructor(
    stores: { readonly ledger: LedgerStore; readonly ledgerLines: LedgerLineStore },
    { exportPageRows = EXPORT_PAGE_ROWS, clockMs = () => performance.now() } = {},
  ) {
    this.#ledger = stores.ledger;
    this.#lines = stores.ledgerLines;
    this.#exportPageRows = exportPageRows;
    this.#clockMs = clockMs;
  }

  async balance(accountId: string): Promise<Balances> {
    const balances = await this.#ledger.balances(accountId);
    // Accounts are never removed.
    if (balances === undefined) throw new Error(`the ledger of an unknown account: ${accountId}`);
    return { available: balances.available, reserved: balances.reserved };
  }

  /** @param withReservations of no kind in particular: also what jobs held and gave back */
  async page(
    accountId: string,
    { filter, withReservations }: { filter: LedgerFilter; withReservations: boolean },
    after: PageCursor | undefined,
  ): Promise<LedgerPage> {
    const all = withReservations ? LEDGER_KINDS : MOVING_KINDS;
    const found = await this.#lines.page(accountId, {
      kinds: filter.kind === undefined ? all : [filter.kind],
      fromMs: 0,
      ...instantsOf(filter),
      after,
      limit: LINES_PAGE_ROWS + 1,
    });
    const { rows: lines, last } = pageOf(found, LINES_PAGE_ROWS);
    return { lines, next: last && cursorText(last) };
  }

  /**
   * Begins an export: `lines` are CSV (RFC 4180), the latest entries first, as they are read; what
   * is entered meanwhile is not among them. Its place is held until the last line or `end`, to be
   * called when its reader is gone, whatever it has read; or until another's needs it and this one's
   * reader is late: its lines then break off.
   * @throws ContractError RATE_LIMITED while the account has another, SERVICE_UNAVAILABLE while
   * others have all places
   */
  export(accountId: string, filter: LedgerFilter) {
    const options = { retryAfterS: RETRY_AFTER_S };
    if (this.#exporting.has(accountId)) {
      throw new ContractError(
        'RATE_LIMITED',
        'Another export of this account is running. Try again later.',
        options,
      );
    }
    if (this.#exporting.size >= EXPORTS_AT_ONCE_MAX && !this.#endLatest()) {
      throw new ContractError(
        'SERVICE_UNAVAILABLE',
        'Too many exports run at once. Try again later.',
        options,
      );
    }
    const own: Export = { waitsSinceMs: this.#clockMs(), ended: false };
    this.#exporting.set(accountId, own);
    const end = () => {
      if (!own.ended) this.#exporting.delete(accountId);
      own.ended = true;
    };
    return { lines: this.#watched(own, this.#csvLines(accountId, filter), end), end };
  }

  /** Takes the place of the export whose reader is latest; false: all of them are read. */
  #endLatest(): boolean {
    const lateMs = this.#clockMs() - EXPORT_READER_MS_MAX;
    let latest: [string, Export] | undefined;
    for (const entry of this.#exporting) {
      const sinceMs = entry[1].waitsSinceMs ?? Number.POSITIVE_INFINITY;
      if (sinceMs <= (latest?.[1].waitsSinceMs ?? lateMs)) latest = entry;
    }
    if (latest === undefined) return false;
    latest[1].ended = true;
    return this.#exporting.delete(latest[0]);
  }

  /** The place is given back before the reader knows that there is no more, who may ask again. */
  async *#watched(
    own: Export,
    lines: AsyncGenerator<string, void, void>,
    end: () => void,
  ): AsyncGenerator<string, void, void> {
    own.waitsSinceMs = undefined;
    try {
      for await (const text of lines) {
        own.waitsSinceMs = this.#clockMs();
        yield text;
        own.waitsSinceMs = undefined;
        if (own.ended) throw new Error('the reader of an export was late, and others waited');
      }
    } finally {
      end();
    }
  }

  async *#csvLines(accountId: string, filter: LedgerFilter): AsyncGenerator<string, void, void> {
    yield csvLine(['time', 'kind', 'credits', 'reference']);
    let after: PageCursor | undefined;
    for (;;) {
      const page = await this.#list(accountId, filter, after, this.#exportPageRows);
      if (page.length > 0) yield page.map(lineOf).join('');
      if (page.length < this.#exportPageRows) return;
      after = page.at(-1);
    }
  }

  #list(
    accountId: string,
    filter: LedgerFilter,
    after: PageCursor | undefined,
    limit: number,
  ): Promise<ListedEntry[]> {
    const listing = { kind: filter.kind, ...instantsOf(filter), after, limit };
    return this.#ledger.list(accountId, listing);
  }
}

function instantsOf({ from, to }: LedgerFilter) {
  return {
    ...(from === undefined ? {} : { fromMs: Date.parse(from) }),
    beforeMs: to === undefined ? undefined : Date.parse(to) + DAY_MS,
  };
}

function lineOf({ atMs, kind, amount, reference }: ListedEntry): string {
  return csvLine([new Date(atMs).toISOString(), kind, amount, reference]);
}

const CREDITS_PATH = `${ACCOUNT_PATH}/credits`;
const ORDERS_PATH = `${ACCOUNT_PATH}/orders`;
const READ = { config: { permission: 'credits.read' } } as const;

interface CreditServices {
  readonly ledgerHistory: LedgerHistory;
  readonly readUsage: Pick<ReadUsage, 'view'>;
  readonly orders: Pick<Orders, 'references'>;
}

export function registerCreditRoutes(account: FastifyInstance, services: CreditServices) {
  const { ledgerHistory } = services;
  account.get('/credits', READ, (_request, reply) => renderCredits(reply, services));
  account.get('/credits/export', READ, (request, reply) => {
    const { filter, wrong } = filterOf(request);
    if (Object.keys(wrong).length > 0) throw new PageError('badForm');
    const { lines, end } = ledgerHistory.export(visitOf(request).accountId, filter);
    // Whether its reader takes all of it or leaves.
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
  const asked = { filter, withReservations: typed.reservations !== '' };
  const page = isWrong
    ? { lines: [], next: undefined }
    : await ledgerHistory.page(accountId, asked, after);
  const orderIds = [...new Set(page.lines.flatMap(line => subjectOf(line).order ?? []))];
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
      ${creditsTabs(visit, 'credits')}
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

/** As typed; '' where it was not. */
type TypedFilter = ReturnType<typeof filterOf>['typed'];
/** Which field is wrong: in itself, or `order`, because the days are the wrong way round. */
type WrongFields = Partial<Record<'kind' | 'from' | 'to', 'form' | 'order'>>;

/** What is shown of the ledger: with reservations at one click, and any kind or days. */
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

/** What the entry did to the available credits; a charge takes what was reserved before. */
function signed({ kind, amount }: LedgerLine, formats: Formats): string {
  const count = formats.credits(amount);
  return kind === 'grant' || kind === 'release' ? `+${count}` : `\u2212${count}`;
}

const UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
const OF_ORDER = new RegExp(`^(order|refund|released):(${UUID})(?:$|:)`);
const OF_LOST_RESULT = new RegExp(`^lost:(${UUID})$`);
/** Of a job's id, beside its line: enough to tell the jobs of a page apart. */
const SHORT_ID_LENGTH = 8;

/** The order or the job of an entry; of what the operator entered its reference says what it is. */
function subjectOf({ kind, reference }: Pick<LedgerLine, 'kind' | 'reference'>) {
  if (kind !== 'grant' && kind !== 'revoke') return { words: kind, job: reference } as const;
  const [, why, order] = OF_ORDER.exec(reference) ?? [];
  if (order !== undefined) return { words: why === 'order' ? 'order' : 'refund', order } as const;
  const [, job] = OF_LOST_RESULT.exec(reference) ?? [];
  if (job !== undefined) return { words: 'lost', job } as const;
  return { words: kind, text: reference } as const;
}

function whatOf(
  line: LedgerLine,
  { credits }: Words,
  references: ReadonlyMap<string, string>,
): Child {
  const { words, order, job, text } = { order: undefined, job: undefined, ...subjectOf(line) };
  const label = credits.lines[words];
  if (order !== undefined) {
    const reference = references.get(order) ?? order.slice(0, SHORT_ID_LENGTH);
    return html`<a href=${`${ORDERS_PATH}/${order}`}>${fill(label, { order: reference })}</a>`;
  }
  if (job === undefined) return html`${label} <span class="soft">${text}</span>`;
  return html`${label} <a class="soft" href=${`${ACCOUNT_PATH}/jobs/${job}`} title=${job}><code>${job.slice(0, SHORT_ID_LENGTH)}</code></a>`;
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
