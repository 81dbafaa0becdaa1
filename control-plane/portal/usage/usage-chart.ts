/** What an account used, drawn: bars over days as SVG by attributes, and a table that says the same. */
import type { VNode } from 'preact';
import { html } from '../page/html.ts';
import type { Visit } from '../session/visit.ts';
import type { UsageView } from './read-usage.ts';
import { DAY_MS, dayOfIso, isoOfDay } from './usage-store.ts';

/** Images a day as bars: those that succeeded below those that failed, days without any too. */
export function usageChart(
  { words, formats }: Visit,
  title: string,
  { from, to, usage }: UsageView,
) {
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

interface Bar {
  /** The whole name: `21 Nov 2026`. */
  readonly label: string;
  /** What stands under it; bars whose names would overlap leave theirs out. */
  readonly shortLabel: string;
  /** From the bottom up. */
  readonly values: readonly number[];
}

interface BarChartProps {
  readonly title: string;
  /** Names of the parts of a bar, at least two. */
  readonly series: readonly string[];
  readonly bars: readonly Bar[];
  readonly format: (value: number) => string;
  /** Says that the table below is the chart. */
  readonly tableLabel: string;
  /** The heading of the table's first column. */
  readonly barLabel: string;
}

const WIDTH = 720;
const HEIGHT = 200;
const LEFT = 44;
const TOP = 10;
const BOTTOM = 24;
const GRID_LINES = 4;
const LABELS_MAX = 8;
/** A day with one picture among thousands is seen. */
const SEEN_MIN = 1.5;

export function barChart(props: BarChartProps): VNode {
  const { title, series, bars, format } = props;
  const most = Math.max(
    ...bars.map(({ values }) => values.reduce((sum, value) => sum + value, 0)),
    0,
  );
  const step = niceStep(most / GRID_LINES);
  const top = step * GRID_LINES;
  const plot = HEIGHT - TOP - BOTTOM;
  const heightOf = (value: number) => (value / top) * plot;
  const lines = Array.from({ length: GRID_LINES + 1 }, (_, index) => index * step);
  return html`<figure class="chart">
    ${legend(series)}
    <div class="chart-reach" tabindex="0" role="region" aria-label=${title}>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${title}>
      ${lines.map(value => {
        const y = HEIGHT - BOTTOM - heightOf(value);
        return html`<g><line class="grid" x1=${LEFT} x2=${WIDTH} y1=${y} y2=${y} />
          <text x=${LEFT - 8} y=${y + 4} text-anchor="end">${format(value)}</text></g>`;
      })}
      ${bars.map((bar, index) => drawBar(bar, index, heightOf, props))}
    </svg></div>
    ${chartTable(props)}
  </figure>`;
}

function drawBar(
  bar: Bar,
  index: number,
  heightOf: (value: number) => number,
  { bars: { length: count }, format, series }: BarChartProps,
): VNode {
  const slot = (WIDTH - LEFT) / count;
  const width = Math.min(slot * 0.72, 40);
  const x = LEFT + slot * index + (slot - width) / 2;
  let y = HEIGHT - BOTTOM;
  const parts = bar.values.map((value, part) => {
    if (value <= 0) return null;
    const height = Math.max(heightOf(value), SEEN_MIN);
    y -= height;
    return html`<rect class=${`series-${part}`} x=${round(x)} y=${round(y)} width=${round(width)}
      height=${round(height)} />`;
  });
  const every = Math.ceil(count / LABELS_MAX);
  const said = bar.values.map((value, part) => `${series[part]}: ${format(value)}`);
  return html`<g class="day"><title>${`${bar.label}\n${said.join('\n')}`}</title>
    <rect class="reach" x=${round(LEFT + slot * index)} y=${TOP} width=${round(slot)}
      height=${HEIGHT - TOP - BOTTOM} />
    ${parts}
    ${index % every === 0 ? html`<text x=${round(x + width / 2)} y=${HEIGHT - 6} text-anchor="middle">${bar.shortLabel}</text>` : null}
  </g>`;
}

function legend(series: readonly string[]): VNode {
  return html`<div class="legend" aria-hidden="true">${series.map(
    (name, index) => html`<span><svg width="10" height="10" viewBox="0 0 10 10"><rect
      class=${`series-${index}`} width="10" height="10" rx="2" /></svg>${name}</span>`,
  )}</div>`;
}

function chartTable({ title, series, bars, format, tableLabel, barLabel }: BarChartProps): VNode {
  return html`<details class="chart-table"><summary>${tableLabel}</summary>
    <table><caption class="silent">${title}</caption>
      <thead><tr><th scope="col">${barLabel}</th>
        ${series.map(name => html`<th scope="col" class="end">${name}</th>`)}</tr></thead>
      <tbody>${bars.map(
        bar => html`<tr><th scope="row">${bar.label}</th>
          ${bar.values.map(value => html`<td class="end">${format(value)}</td>`)}</tr>`,
      )}</tbody>
    </table>
  </details>`;
}

/** A round number of at least `least`: 1, 2 or 5 times a power of ten, whole. */
function niceStep(least: number): number {
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(times => times * power).find(step => step >= least) ?? least;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
