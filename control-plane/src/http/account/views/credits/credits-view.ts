/** The credits of an account: its balance, and every entry of its ledger. */
import type { VNode } from 'preact';
import { LEDGER_KINDS, type LedgerKind } from '../../../../domain/ledger.ts';
import type { Formats } from '../../words/formats.ts';
import type { Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import { filterForm, selectField, textField } from '../components/fields.ts';
import { dataTable, figures, pager, section, tabs, withQuery } from '../components/lists.ts';
import { emptyState, time } from '../components/marks.ts';
import { type Child, html } from '../html.ts';

/** Below /account. */
export interface CreditsPaths {
  readonly credits: string;
  readonly export: string;
  readonly packages: string;
  readonly orders: string;
  readonly jobs: string;
}

/** As typed; '' where it was not. */
export interface TypedFilter {
  readonly kind: string;
  readonly from: string;
  readonly to: string;
}

export interface EntryRow {
  readonly atMs: number;
  readonly kind: LedgerKind;
  readonly amount: number;
  readonly reference: string;
}

export interface CreditsProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly paths: CreditsPaths;
  readonly available: number;
  readonly reserved: number;
  readonly filter: TypedFilter;
  /** What is wrong with a field of the filter, in words. */
  readonly errors: Partial<Record<keyof TypedFilter, string>>;
  readonly entries: readonly EntryRow[];
  readonly next: string | undefined;
  readonly isFirst: boolean;
  readonly mayOrder: boolean;
}

export function creditsPage(props: CreditsProps): VNode {
  const { words, formats, available, reserved } = props;
  const { credits } = words;
  return html`<div>
    ${creditsTabs(words, props.paths, 'credits', props.mayOrder)}
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
          href: withQuery(props.paths.export, { ...props.filter }),
          label: credits.export,
          download: true,
        }),
      },
      ledgerFilter(props),
      Object.keys(props.errors).length > 0 ? null : ledgerTable(props),
      ledgerPager(props),
    )}
  </div>`;
}

/** The pages about credits; ordering is for owners. */
export function creditsTabs(
  words: Words,
  paths: CreditsPaths,
  active: 'credits' | 'packages' | 'orders',
  mayOrder: boolean,
): VNode {
  const { credits, orders } = words;
  const all = [
    { href: paths.credits, label: credits.tab, active: active === 'credits' },
    { href: paths.packages, label: orders.buy, active: active === 'packages' },
    { href: paths.orders, label: orders.title, active: active === 'orders' },
  ];
  const seen = all.filter(({ href }) => mayOrder || href !== paths.packages);
  return tabs(credits.title, seen);
}

function ledgerFilter({ words, paths, filter, errors }: CreditsProps): VNode {
  const { credits, common } = words;
  const kinds = LEDGER_KINDS.map(kind => ({ value: kind, label: credits.kinds[kind] }));
  return filterForm(
    paths.credits,
    selectField({
      name: 'kind',
      label: credits.kind,
      value: filter.kind,
      error: errors.kind,
      options: [{ value: '', label: credits.allKinds }, ...kinds],
    }),
    textField({
      name: 'from',
      type: 'date',
      label: credits.from,
      value: filter.from,
      error: errors.from,
    }),
    textField({ name: 'to', type: 'date', label: credits.to, value: filter.to, error: errors.to }),
    html`<div class="actions">
      ${button({ label: common.apply, kind: 'secondary' })}
      ${isFiltered(filter) ? linkButton({ href: paths.credits, label: common.clear, kind: 'quiet' }) : null}
    </div>`,
  );
}

function isFiltered(filter: TypedFilter): boolean {
  return Object.values(filter).some(text => text !== '');
}

function ledgerTable({ words, formats, paths, entries, filter }: CreditsProps): VNode {
  const { credits } = words;
  return dataTable({
    caption: credits.ledger,
    columns: [
      { label: credits.time },
      { label: credits.kind },
      { label: credits.amount, align: 'end' },
      { label: credits.reference },
    ],
    rows: entries.map(entry => [
      time(entry.atMs, formats.exactTime(entry.atMs)),
      credits.kinds[entry.kind],
      signed(entry, formats),
      referenceOf(entry, paths),
    ]),
    empty: emptyState(
      isFiltered(filter)
        ? { title: credits.nothingFound }
        : { title: credits.empty, text: credits.emptyText },
    ),
  });
}

/** What the entry did to the available credits; a charge takes what was reserved before. */
function signed({ kind, amount }: EntryRow, formats: Formats): string {
  const count = formats.credits(amount);
  if (kind === 'charge') return count;
  return kind === 'grant' || kind === 'release' ? `+${count}` : `\u2212${count}`;
}

const OF_ORDER = /^(?:order|refund):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:$|:)/;

/** A link where the reference is an order or a job. */
function referenceOf({ kind, reference }: EntryRow, paths: CreditsPaths): Child {
  const order = OF_ORDER.exec(reference)?.[1];
  const isMovement = kind === 'grant' || kind === 'revoke';
  if (isMovement && order === undefined) return reference;
  const href = isMovement ? `${paths.orders}/${order}` : `${paths.jobs}/${reference}`;
  return html`<a href=${href}>${reference}</a>`;
}

function ledgerPager({ words, paths, filter, next, isFirst }: CreditsProps): VNode | null {
  return pager(words.common, {
    next: next === undefined ? undefined : withQuery(paths.credits, { ...filter, after: next }),
    first: isFirst ? undefined : withQuery(paths.credits, { ...filter }),
  });
}
