/** Images a day as bars: those that succeeded below those that failed, days without any too. */
import type { VNode } from 'preact';
import { DAY_MS, dayOfIso, isoOfDay, type UsageFigures } from '../../../domain/account/usage.ts';
import type { Formats } from '../words/formats.ts';
import type { Words } from '../words/words.ts';
import { type Bar, barChart } from './components/chart.ts';

export interface UsageDay extends UsageFigures {
  /** `2026-11-21`. */
  readonly day: string;
}

export function usageChart(props: {
  readonly words: Words;
  readonly formats: Formats;
  readonly title: string;
  /** The first and the last day. */
  readonly from: string;
  readonly to: string;
  readonly days: readonly UsageDay[];
}): VNode {
  const { words, formats, title } = props;
  return barChart({
    title,
    series: [words.overview.succeeded, words.overview.failed],
    bars: barsOf(props),
    format: value => formats.credits(value),
    tableLabel: words.common.chartTable,
    barLabel: words.overview.day,
  });
}

function barsOf({ formats, from, to, days }: Parameters<typeof usageChart>[0]): Bar[] {
  const byDay = new Map(days.map(day => [day.day, day]));
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
  return bars;
}
