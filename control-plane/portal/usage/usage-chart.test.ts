import test from 'ava';
import type { Visit } from '../session/visit.ts';
import { renderPart } from '../test/render-part.ts';
import { formatsIn, wordsIn } from '../words/words.ts';
import { usageChart } from './usage-chart.ts';
import { isoOfDay } from './usage-store.ts';

const LAST = 20_000;
const VISIT = { words: wordsIn('en'), formats: formatsIn('en') } as Visit;

interface Used {
  readonly day: number;
  readonly name: string | null;
  readonly images: number;
}

/** The rows of the chart's table. The first is the head. */
function tableOf(days: number, parts: readonly Used[], series?: readonly string[]) {
  const range = { from: isoOfDay(LAST - days + 1), to: isoOfDay(LAST) };
  const svg = renderPart(usageChart(VISIT, { ...range, parts, ...(series && { series }) }));
  const rows = [...svg.matchAll(/<tr>(.*?)<\/tr>/gs)].map(([, row = '']) =>
    [...row.matchAll(/<t[hd][^>]*>(.*?)<\/t[hd]>/gs)].map(([, cell = '']) => cell),
  );
  return { svg, rows };
}

test('a chart of usage › has every day, and the label of the last', t => {
  const { rows, svg } = tableOf(30, [{ day: LAST - 29, name: 'Shop', images: 3 }]);
  t.is(rows.length, 31);
  t.deepEqual(
    [rows[0], rows[1], rows[30]],
    [
      ['Day', 'Shop'],
      ['5 Sept 2024', '3'],
      ['4 Oct 2024', '0'],
    ],
  );
  t.regex(svg, /text-anchor="end">4 Oct<\/text>/);
});

test('a chart of usage › draws more days than can be told apart as weeks that end with the last day', t => {
  const parts = [0, 6, 7, 89].map(back => ({ day: LAST - back, name: 'Shop', images: 1 + back }));
  const { rows } = tableOf(90, parts);
  t.is(rows.length, 1 + 13);
  t.regex(rows.at(-1)?.join(' ') ?? '', /^28 Sept\s–\s4 Oct 2024 8$/);
  t.deepEqual(rows.at(-2)?.[1], '8');
  // What is left of the first week.
  t.regex(rows[1]?.join(' ') ?? '', /^7\s?–\s?12 Jul 2024 90$/);
});

test('a chart of usage › draws the most used by themselves and the others as one', t => {
  const parts = ['a', 'b', 'c', 'd', null].map((name, index) => ({
    ...{ day: LAST, name },
    images: (index + 1) * 10,
  }));
  const { rows } = tableOf(7, parts);
  t.deepEqual(rows[0], ['Day', 'Deleted key', 'd', 'c', 'Others']);
  t.deepEqual(rows.at(-1)?.slice(1), ['50', '40', '30', '30']);
  t.deepEqual(tableOf(7, parts.slice(1)).rows[0], ['Day', 'Deleted key', 'd', 'c', 'b']);
});

test('a chart of usage › keeps the order of series that are given, those without images too', t => {
  const { rows } = tableOf(7, [{ day: LAST, name: 'Failed', images: 2 }], ['Succeeded', 'Failed']);
  t.deepEqual(
    [rows[0]?.slice(1), rows.at(-1)?.slice(1)],
    [
      ['Succeeded', 'Failed'],
      ['0', '2'],
    ],
  );
});
