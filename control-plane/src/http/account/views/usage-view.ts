/** What an account used: by day as a chart, by key, outcome or format as a table; as CSV. */
import type { VNode } from 'preact';
import {
  USAGE_GROUPS,
  USAGE_KEPT_DAYS,
  type UsageFigures,
  type UsageGroup,
} from '../../../domain/account/usage.ts';
import type { Formats } from '../words/formats.ts';
import { fill, type Words } from '../words/words.ts';
import { button, linkButton } from './components/buttons.ts';
import { filterForm, selectField, textField } from './components/fields.ts';
import { dataTable, figures, panel, section, withQuery } from './components/lists.ts';
import { type Child, html } from './html.ts';
import { type UsageDay, usageChart } from './usage-chart.ts';

/** As typed; '' where it was not. */
export interface TypedUsage {
  readonly from: string;
  readonly to: string;
  readonly group: string;
}

export interface UsageRow extends UsageFigures {
  /** Of a day its date; null: not known any more. */
  readonly name: string | null;
  /** Beside it: the part of a key that is no secret. */
  readonly detail?: string | undefined;
}

export interface UsageProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly typed: TypedUsage;
  /** What is wrong with a field, in words: then there are no figures. */
  readonly errors: Partial<Record<'from' | 'to', string>>;
  readonly figures:
    | {
        readonly group: UsageGroup;
        readonly total: UsageFigures;
        readonly from: string;
        readonly to: string;
        readonly rows: readonly UsageRow[];
      }
    | undefined;
}

const PATH = '/account/usage';

export function usagePage(props: UsageProps): VNode {
  const { words, typed } = props;
  const { usage } = words;
  const shown = props.figures;
  const href = withQuery(`${PATH}.csv`, { ...typed });
  return html`<div>
    ${filterOf(props)}
    ${shown === undefined ? null : figures(totalFigures(props, shown.total))}
    ${
      shown === undefined
        ? null
        : section(
            {
              title: usage.groups[shown.group],
              actions: linkButton({ href, label: usage.export, download: true }),
            },
            bodyOf(props, shown),
          )
    }
    <p class="hint">${fill(usage.kept, { days: USAGE_KEPT_DAYS })}</p>
  </div>`;
}

function filterOf({ words, typed, errors }: UsageProps): VNode {
  const { usage, common } = words;
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

function totalFigures({ words, formats }: UsageProps, total: UsageFigures) {
  const { usage } = words;
  const { images, failed, credits } = total;
  return [
    { label: usage.images, value: formats.credits(images), note: usage.imagesNote },
    { label: usage.failed, value: formats.credits(failed), note: usage.failedNote },
    { label: usage.credits, value: formats.credits(credits), note: usage.creditsNote },
  ];
}

function bodyOf(props: UsageProps, shown: NonNullable<UsageProps['figures']>): Child {
  const { words, formats } = props;
  const { group, rows, from, to } = shown;
  const table = usageTable(props, group, rows);
  if (group !== 'day' || rows.length === 0) return table;
  const days: UsageDay[] = rows.map(({ name, ...row }) => ({ ...row, day: name ?? '' }));
  const chart = usageChart({ words, formats, title: words.usage.chart, from, to, days });
  return html`<div class="stack">${panel(chart)}${table}</div>`;
}

function usageTable({ words, formats }: UsageProps, group: UsageGroup, rows: readonly UsageRow[]) {
  const { usage } = words;
  const number = (label: string) => ({ label, align: 'end' as const });
  return dataTable({
    caption: usage.groups[group],
    columns: [
      { label: usage.groups[group] },
      number(usage.images),
      number(usage.failed),
      number(usage.credits),
    ],
    rows: rows.map(row => [
      nameOf(words, formats, group, row),
      formats.credits(row.images),
      formats.credits(row.failed),
      formats.credits(row.credits),
    ]),
    empty: html`<p class="padded soft">${usage.empty}</p>`,
  });
}

function nameOf(
  { usage }: Words,
  formats: Formats,
  group: UsageGroup,
  { name, detail }: UsageRow,
): Child {
  if (name === null) return html`<span class="soft">${usage.unknown}</span>`;
  if (group === 'day') return formats.date(Date.parse(name));
  if (group === 'outcome') return name === 'failed' ? usage.outcomes.failed : usage.succeeded;
  if (detail === undefined) return name;
  return html`${name} <code>${detail}</code>`;
}
