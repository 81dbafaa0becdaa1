/** The tables of docs/performance.md, of the sections that a file of results has. */
import type { CardResults, SectionName, SectionResult } from './card-file.ts';
import { goalsOf } from './goals.ts';
import { type Column, type RatioColumn, renderTable } from './table.ts';

interface Layout {
  readonly first: string;
  readonly ratio?: RatioColumn;
  readonly columns: readonly Column[];
}

const column = (title: string, key: string): Column => ({ title, of: figures => figures[key] });
const within = (title: string, key: string, inner: string): Column => ({
  title,
  of: figures => (figures[key] as Record<string, unknown> | undefined)?.[inner],
});

const RATE = column('images/s', 'imagesPerS');
const TIMES = [column('p50, ms', 'p50Ms'), column('p99, ms', 'p99Ms')];
const BUSY = column('GPU busy', 'gpuBusy');

const LAYOUTS: Readonly<Record<SectionName, Layout>> = {
  bare: {
    first: 'Engines that always find work',
    ratio: { key: 'imagesPerS', title: 'To the first' },
    columns: [
      ...[RATE, ...TIMES, BUSY, column('GPU memory, MiB', 'gpuMemoryMib')],
      column('run without the hop, ms', 'warmMs'),
      column('engine, ms of a core an image', 'engineCpuMsAnImage'),
      ...[column('feeding', 'feedCpuMsAnImage'), column('feeding thread busy', 'feedBusy')],
      column('ready after, s', 'readyS'),
    ],
  },
  parity: {
    first: 'Mattes against the CPU in fp32',
    columns: [
      ...[column('photos', 'photos'), column('mean difference, levels', 'meanLevels')],
      ...[column('worst photo, mean', 'worstMeanLevels'), column('which', 'worstPhoto')],
      ...[column('greatest, levels', 'greatestLevel'), within('SAD', 'ratios', 'sad')],
      ...[within('MSE', 'ratios', 'mse'), within('gradient', 'ratios', 'gradient')],
      ...[within('MAE', 'ratios', 'mae'), within('soft region', 'ratios', 'softMae')],
    ],
  },
  service: {
    first: 'The service, kept full',
    ratio: { key: 'imagesPerS', title: 'To the first' },
    columns: [
      ...[RATE, ...TIMES, BUSY, column('limit', 'limit'), column('cores busy', 'coresBusy')],
      column('cores for 100 images/s', 'coresFor100PerS'),
      within('control plane, ms of a core an image', 'cpuMsAnImage', 'control plane'),
      within('node', 'cpuMsAnImage', 'node'),
      within('picture workers', 'cpuMsAnImage', 'picture workers'),
      within('engines', 'cpuMsAnImage', 'engines'),
      ...[column('client, cores', 'clientCores'), column('failed', 'failed')],
    ],
  },
  faults: {
    first: 'Under load',
    columns: [
      ...[column('answered', 'answered'), column('not rightly', 'notRight')],
      ...[column('after the call', 'answeredLater'), column('longest, s', 'longestS')],
      ...[column('well again', 'well'), column('after, s', 'wellAfterS')],
      ...[column('/info', 'states'), column('log', 'said')],
    ],
  },
  steady: {
    first: 'At full load',
    columns: [
      ...[column('minutes', 'minutes'), RATE, BUSY, column('failed', 'failed')],
      ...[column('GPU memory, MiB', 'gpuMibAtTheEnd'), column('growth', 'gpuGrowth')],
      ...[column('node, MB', 'nodeMbAtTheEnd'), column('growth', 'nodeGrowth')],
      column('control plane, MB', 'controlPlaneMbAtTheEnd'),
      column('growth', 'controlPlaneGrowth'),
    ],
  },
  goals: {
    first: 'Wanted',
    columns: [column('measured', 'measured'), column('wanted', 'wanted'), column('met', 'met')],
  },
};

/** One section; empty where there is none. */
export function describeSection(name: SectionName, results: CardResults): string {
  const { first, columns, ratio } = LAYOUTS[name];
  if (name === 'goals') return `\n${renderTable(first, columns, goalsOf(results))}\n`;
  const section = results.sections[name];
  if (section === undefined) return '';
  const table = renderTable(first, columns, section.rows, ratio);
  return `\n${table}\n\n${notesOf(section).join('\n')}\n`;
}

function notesOf({ measuredAt, seconds, facts, leftOut, failed }: SectionResult): string[] {
  const shown = Object.entries(facts).map(([name, fact]) => `${name}: ${fact}`);
  return [
    `${measuredAt}, ${seconds} s: ${shown.join('; ')}`,
    ...(failed === undefined ? [] : [`Ended early: ${failed}`]),
    ...(leftOut.length === 0 ? [] : [`Left out, for want of time: ${leftOut.join('; ')}`]),
  ];
}
