/** Credits: balance, ledger by kind and days, and the ledger as CSV. */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { may } from '../../../domain/account/roles.ts';
import { LEDGER_KINDS } from '../../../domain/ledger.ts';
import type { LedgerFilter, LedgerHistory } from '../../../services/sales/ledger-history.ts';
import { parsePlace } from '../../../services/sales/page-place.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { PageError } from '../session/page-error.ts';
import { signedInOf } from '../session/signed-in.ts';
import { type CreditsPaths, creditsPage, type TypedFilter } from '../views/credits/credits-view.ts';

export const CREDITS_PATHS: CreditsPaths = {
  credits: `${ACCOUNT_PATH}/credits`,
  export: `${ACCOUNT_PATH}/credits/export`,
  packages: `${ACCOUNT_PATH}/orders/packages`,
  orders: `${ACCOUNT_PATH}/orders`,
  jobs: `${ACCOUNT_PATH}/jobs`,
};

const READ = { config: { permission: 'credits.read' } } as const;
const NO_FILTER: LedgerFilter = { kind: undefined, from: undefined, to: undefined };

export interface CreditRouteServices {
  readonly ledgerHistory: LedgerHistory;
}

export function registerCreditRoutes(
  account: FastifyInstance,
  { ledgerHistory }: CreditRouteServices,
): void {
  account.get('/credits', READ, async (request, reply) => {
    const { accountId, role } = signedInOf(request);
    const { filter, typed, wrong } = filterOf(request);
    const after = placeOf(request);
    const { available, reserved } = await ledgerHistory.balance(accountId);
    const isWrong = Object.keys(wrong).length > 0;
    const { entries, next } = isWrong
      ? { entries: [], next: undefined }
      : await ledgerHistory.page(accountId, filter, after);
    const words = wordsOf(request);
    const fieldWords = {
      kind: words.credits.badKind,
      from: words.credits.badDay,
      to: words.credits.badDay,
    };
    return renderPage(request, reply, {
      title: words.credits.title,
      lead: words.credits.lead,
      active: 'credits',
      status: isWrong ? 422 : 200,
      main: creditsPage({
        words,
        formats: formatsOf(request),
        paths: CREDITS_PATHS,
        available,
        reserved,
        filter: typed,
        errors: Object.fromEntries(
          Object.entries(wrong).map(([field, kind]) => [
            field,
            kind === 'order' ? words.credits.badOrder : fieldWords[field as keyof TypedFilter],
          ]),
        ),
        entries,
        next,
        isFirst: after === undefined,
        mayOrder: may(role, 'orders.manage'),
      }),
    });
  });
  account.get('/credits/export', READ, (request, reply) => {
    const { accountId } = signedInOf(request);
    const { filter, wrong } = filterOf(request);
    if (Object.keys(wrong).length > 0) throw new PageError('badForm');
    const { lines, end } = ledgerHistory.export(accountId, filter);
    // Whether its reader takes all of it or leaves.
    const stream = Readable.from(lines, { objectMode: false }).once('close', end);
    return reply
      .headers({
        'content-type': 'text/csv; charset=utf-8; header=present',
        'content-disposition': 'attachment; filename="credits.csv"',
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
      })
      .send(stream);
  });
}

/** Which field is wrong: in itself, or `order`, because the days are the wrong way round. */
type WrongFields = Partial<Record<keyof TypedFilter, 'form' | 'order'>>;

interface ReadFilter {
  readonly filter: LedgerFilter;
  readonly typed: TypedFilter;
  readonly wrong: WrongFields;
}

function filterOf(request: FastifyRequest): ReadFilter {
  const typed = {
    kind: queryText(request, 'kind'),
    from: queryText(request, 'from'),
    to: queryText(request, 'to'),
  };
  const kind = LEDGER_KINDS.find(known => known === typed.kind);
  const wrong: WrongFields = {};
  if (typed.kind !== '' && kind === undefined) wrong.kind = 'form';
  for (const field of ['from', 'to'] as const) {
    if (typed[field] !== '' && !isDay(typed[field])) wrong[field] = 'form';
  }
  const { from, to } = typed;
  const areDays = from !== '' && to !== '' && wrong.from === undefined && wrong.to === undefined;
  if (areDays && from > to) wrong.to = 'order';
  const given = (text: string) => (text === '' ? undefined : text);
  const filter = { ...NO_FILTER, kind, from: given(from), to: given(to) };
  return { filter, typed, wrong };
}

/** '' where it is absent. @throws PageError given twice */
function queryText(request: FastifyRequest, name: string): string {
  const value = (request.query as Record<string, unknown>)[name] ?? '';
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

/** Days that there are, written as a browser's date field sends them. */
function isDay(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false;
  const atMs = Date.parse(text);
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(text);
}
