/**
 * Stacked bars of usage by day. Positions along the days are percentages and heights are pixels, so
 * that text keeps its size on every screen. A table has the same values.
 */
import { DAY_MS } from '@matting/program/durations.ts';
import type { VNode } from 'preact';
import { html } from '../page/html.ts';
import type { Visit } from '../session/visit.ts';
import { dayOfIso } from './usage-store.ts';

/** More days become weeks, so that bars stay distinct and the page below 80 KB. */
const DAYS_DRAWN_MAX = 45;
const WEEK = 7;
/** Smaller groups share the last colour. */
const SERIES_MAX = 4;

interface Part {
  readonly day: number;
  readonly name: string | null;
  readonly images: number;
}

interface UsageChartProps {
  /** `2026-11-21`, both included. */
  readonly from: string;
  readonly to: string;
  readonly parts: readonly Part[];
  /** Undefined: the most used groups, and the others as one. */
  readonly series?: readonly string[];
}

/** Includes empty days or weeks. The last bar ends with the last day. */
export function usageChart(
  { words, formats }: Visit,
  { from, to, parts, series: fixed }: UsageChartProps,
): VNode {
  const { usage } = words;
  const last = dayOfIso(to) ?? 0;
  const count = last - (dayOfIso(from) ?? last) + 1;
  const size = count > DAYS_DRAWN_MAX ? WEEK : 1;
  const named = parts.map(part => ({ ...part, name: part.name ?? usage.unknown }));
  const series = fixed ?? mostUsed(named, usage.others);
  const values = Array.from({ length: Math.ceil(count / size) }, () => series.map(() => 0));
  for (const { day, name, images } of named) {
    const bar = values.at(-1 - Math.floor((last - day) / size));
    const found = series.indexOf(name);
    const index = found < 0 ? series.length - 1 : found;
    if (bar !== undefined) bar[index] = (bar[index] ?? 0) + images;
  }
  const bars = values.map((all, index) => {
    const end = last - (values.length - 1 - index) * size;
    const begin = Math.max(end - size + 1, last - count + 1);
    const label =
      begin === end ? formats.date(end * DAY_MS) : formats.days(begin * DAY_MS, end * DAY_MS);
    return { label, shortLabel: formats.dayOfYear(end * DAY_MS), values: all };
  });
  return barChart({
    title: size === 1 ? usage.chart : usage.chartWeeks,
    series,
    bars,
    format: formats.credits,
    tableLabel: words.common.chartTable,
    barLabel: size === 1 ? usage.groups.day : usage.week,
  });
}

function mostUsed(parts: readonly { name: string; images: number }[], others: string): string[] {
  const sums = new Map<string, number>();
  for (const { name, images } of parts) sums.set(name, (sums.get(name) ?? 0) + images);
  const names = [...sums].sort(([, one], [, other]) => other - one).map(([name]) => name);
  return names.length <= SERIES_MAX ? names : [...names.slice(0, SERIES_MAX - 1), others];
}

interface Bar {
  readonly label: string;
  readonly shortLabel: string;
  readonly values: readonly number[];
}

interface BarChartProps {
  readonly title: string;
  readonly series: readonly string[];
  readonly bars: readonly Bar[];
  readonly format: (value: number) => string;
  readonly tableLabel: string;
  readonly barLabel: string;
  /** The values are averages, so the legend shows no sum of them. */
  readonly areMeans?: boolean;
}

const HEIGHT = 220;
const TOP = 8;
const BOTTOM = 24;
const PLOT = HEIGHT - TOP - BOTTOM;
const GRID_LINES_MAX = 5;
const DIGIT_WIDTH = 7;
const LABELS_MAX = 7;
/** Keeps a day with one picture among thousands visible. */
const SEEN_MIN = 1.5;
const BAR_SHARE = { few: 0.5, many: 0.7 };
const FEW_BARS = 10;
const TIP_WIDTH = 208;
const TIP_LINE = 17;
const TIP_NAME_LENGTH = 18;

export function barChart(props: BarChartProps): VNode {
  const { title, bars, format } = props;
  const most = Math.max(...bars.map(({ values }) => sumOf(values)), 0);
  const step = niceStep(most / GRID_LINES_MAX);
  const lines = Array.from(
    { length: Math.max(Math.ceil(most / step), 1) + 1 },
    (_, at) => at * step,
  );
  const top = lines.at(-1) ?? step;
  const yOf = (value: number) => round(HEIGHT - BOTTOM - (value / top) * PLOT);
  const axis = Math.max(...lines.map(value => format(value).length)) * DIGIT_WIDTH + 2;
  return html`<figure class="chart">
    ${legend(props)}
    <div class="chart-area">
      <svg width=${axis} height=${HEIGHT} aria-hidden="true">${lines.map(
        value =>
          html`<text x=${axis} y=${yOf(value) + 4} text-anchor="end">${format(value)}</text>`,
      )}</svg>
      <svg width="100%" height=${HEIGHT} role="img" aria-label=${title}>
        ${lines.map(value => html`<line class="grid" x1="0" x2="100%" y1=${yOf(value)} y2=${yOf(value)} />`)}
        ${bars.map((bar, index) => drawBar(bar, columnOf(index, bars.length), yOf))}
        ${shortLabels(bars)}
        ${bars.map((bar, index) => drawTip(bar, columnOf(index, bars.length), props))}
      </svg>
    </div>
    ${chartTable(props)}
  </figure>`;
}

/** Start, width and middle of a bar's column, as shares of the chart. */
function columnOf(index: number, count: number) {
  return { begin: index / count, width: 1 / count, middle: (index + 0.5) / count };
}

type Place = ReturnType<typeof columnOf>;

function drawBar({ values }: Bar, { width, middle }: Place, yOf: (value: number) => number) {
  const share = width * (width * FEW_BARS >= 1 ? BAR_SHARE.few : BAR_SHARE.many);
  let y = yOf(0);
  return values.map((value, part) => {
    if (value <= 0) return null;
    const height = Math.max(round(yOf(0) - yOf(value)), SEEN_MIN);
    y = round(y - height);
    return html`<rect class=${`series-${part}`} x=${percent(middle - share / 2)} y=${y}
      width=${percent(share)} height=${height} />`;
  });
}

/** Labels bars at equal distances from the last one backwards. A phone shows every second label. */
function shortLabels(bars: readonly Bar[]) {
  const last = bars.length - 1;
  const every = Math.max(Math.ceil(last / (LABELS_MAX - 1)), 1);
  return bars.map(({ shortLabel }, index) => {
    if ((last - index) % every !== 0) return null;
    const { begin, width, middle } = columnOf(index, bars.length);
    const isSecond = ((last - index) / every) % 2 === 1;
    const [x, anchor] =
      bars.length <= FEW_BARS
        ? [middle, 'middle']
        : index === last
          ? [begin + width, 'end']
          : index === 0
            ? [begin, 'start']
            : [middle, 'middle'];
    return html`<text class=${isSecond && bars.length > 4 ? 'wide' : undefined} x=${percent(x)}
      y=${HEIGHT - 6} text-anchor=${anchor}>${shortLabel}</text>`;
  });
}

/** A tip that shows while the pointer is on its column. It is below all bars, so it covers none. */
function drawTip(bar: Bar, { begin, width, middle }: Place, { series, format }: BarChartProps) {
  const used = bar.values.flatMap((value, part) => (value > 0 ? [{ value, part }] : []));
  const lines = used.map(({ value, part }, index) => {
    const y = 20 + (index + 1) * TIP_LINE;
    const name = cut(series[part] ?? '');
    return html`<rect class=${`series-${part}`} x="10" y=${y - 9} width="9" height="9" rx="2" />
      <text x="25" y=${y}>${name}</text>
      <text x=${TIP_WIDTH - 10} y=${y} text-anchor="end">${format(value)}</text>`;
  });
  return html`<g class="day">
    <rect class="reach" x=${percent(begin)} y=${TOP} width=${percent(width)} height=${PLOT} />
    <svg class="tip" x=${percent(middle)} y="0"><g transform=${`translate(${-Math.round(TIP_WIDTH * middle)})`}>
      <rect class="tip-ground" width=${TIP_WIDTH} height=${30 + used.length * TIP_LINE} rx="6" />
      <text class="tip-title" x="10" y="20">${bar.label}</text>
      <text class="tip-title" x=${TIP_WIDTH - 10} y="20" text-anchor="end">${format(sumOf(bar.values))}</text>
      ${lines}
    </g></svg>
  </g>`;
}

function legend({ series, bars, format, areMeans }: BarChartProps) {
  const sums = series.map((_, part) => sumOf(bars.map(({ values }) => values[part] ?? 0)));
  return html`<div class="legend" aria-hidden="true">${series.map(
    (name, part) => html`<span><svg width="10" height="10" viewBox="0 0 10 10"><rect
      class=${`series-${part}`} width="10" height="10" rx="2" /></svg>${name} ${areMeans ? null : html`<b>${format(sums[part] ?? 0)}</b>`}</span>`,
  )}</div>`;
}

function chartTable({ title, series, bars, format, tableLabel, barLabel }: BarChartProps): VNode {
  return html`<details class="chart-table"><summary>${tableLabel}</summary>
    <div class="table-reach" role="region" aria-label=${title} tabindex="0"><table>
      <caption class="silent">${title}</caption>
      <thead><tr><th scope="col">${barLabel}</th>
        ${series.map(name => html`<th scope="col" class="end">${name}</th>`)}</tr></thead>
      <tbody>${bars.map(
        bar => html`<tr><th scope="row">${bar.label}</th>
          ${bar.values.map(value => html`<td class="end">${format(value)}</td>`)}</tr>`,
      )}</tbody>
    </table></div>
  </details>`;
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** 1, 2 or 5 times a power of ten, at least `least`. */
function niceStep(least: number): number {
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(times => times * power).find(step => step >= least) ?? least;
}

function cut(text: string): string {
  const letters = [...text];
  return letters.length <= TIP_NAME_LENGTH
    ? text
    : `${letters.slice(0, TIP_NAME_LENGTH - 1).join('')}…`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function percent(share: number): string {
  return `${Math.round(share * 1e4) / 100}%`;
}
