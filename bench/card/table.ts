/** A section's rows as the Markdown table of docs/performance.md. Pure. */
import { shown } from './figures.ts';

export interface Row {
  /** What tells it from the other rows of its section. */
  readonly name: string;
  /** Why there are no figures, in one line. */
  readonly failed?: string;
  readonly figures: Readonly<Record<string, unknown>>;
}

export interface Column {
  readonly title: string;
  readonly of: (figures: Readonly<Record<string, unknown>>) => unknown;
}

export interface RatioColumn {
  /** The column of figures that the ratio is of. */
  readonly key: string;
  readonly title: string;
}

/** A line for each row; `ratio` adds each row's figure to that of the first row that has one. */
export function renderTable(
  first: string,
  columns: readonly Column[],
  rows: readonly Row[],
  ratio?: RatioColumn,
): string {
  const titles = [first, ...(ratio ? [ratio.title] : []), ...columns.map(({ title }) => title)];
  const reference = rows.map(({ figures }) => figures[ratio?.key ?? '']).find(isMeasured);
  const lines = rows.map(({ name, failed, figures }) => {
    if (failed !== undefined) {
      return [name, `failed: ${failed}`, ...titles.slice(2).map(() => '')];
    }
    const own = figures[ratio?.key ?? ''];
    const relative = isMeasured(own) && isMeasured(reference) ? own / reference : Number.NaN;
    return [
      name,
      ...(ratio ? [cell(relative)] : []),
      ...columns.map(({ of }) => cell(of(figures))),
    ];
  });
  return [titles, titles.map(() => '---'), ...lines].map(lineOf).join('\n');
}

function isMeasured(figure: unknown): figure is number {
  return typeof figure === 'number' && Number.isFinite(figure) && figure > 0;
}

function lineOf(cells: readonly string[]): string {
  const texts = cells.map(text => (text === '' ? ' |' : ` ${text.replaceAll('|', '/')} |`));
  return `|${texts.join('')}`;
}

function cell(figure: unknown): string {
  if (figure === undefined || figure === null) return '';
  if (typeof figure === 'number') return shown(figure);
  if (typeof figure === 'boolean') return figure ? 'yes' : 'no';
  return Array.isArray(figure) ? figure.join('; ') : String(figure);
}
