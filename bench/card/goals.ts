/** What is wanted of a card, beside what the file of results has. Pure. */
import type { CardResults } from './card-file.ts';
import type { Row } from './table.ts';

interface Goal {
  readonly name: string;
  readonly wanted: string;
  /** Undefined: not measured. */
  readonly measured: number | undefined;
  /** Undefined: it says nothing by itself. */
  readonly met: (measured: number) => boolean | undefined;
}

const BARE_WANTED_PER_S = 250;
const SERVICE_OF_BARE_MIN = 0.8;
const CORES_BUSY_MIN = 12;
const WEBP_WANTED_PER_S = 90;
const STANDARD_OF_ISNET_MIN = 0.5;
const DIFFERENCE_MAX = 0.3;
const QUALITY_RATIO_MAX = 1.01;
const GROWTH_MAX = 1.05;

export const GRAPH_WANTED = 'isnet 1024 fp16';
const SMALL = '0.25 MP png to png';

/** Rows of the section `goals`. */
export function goalsOf(results: CardResults): Row[] {
  return goals(results).map(({ name, wanted, measured, met }) => ({
    name,
    figures: {
      measured: measured ?? 'not measured',
      wanted,
      met: measured === undefined ? undefined : met(measured),
    },
  }));
}

function goals(results: CardResults): Goal[] {
  const bare = most(figures(results, 'bare', `${GRAPH_WANTED},`, 'imagesPerS'));
  const small = most(servicePerS(results, 'isnet', SMALL));
  const cores = most(figures(results, 'service', `isnet, ${SMALL},`, 'coresBusy'));
  const webp = most(servicePerS(results, 'isnet', '2 MP jpeg to webp'));
  const standard = most(servicePerS(results, 'standard', SMALL));
  const quality = figures(results, 'parity', '', 'worstQualityRatio');
  const lost = figures(results, 'faults', '', 'notRight');
  const atLeast = (least: number) => (measured: number) => measured >= least;
  const atMost = (greatest: number) => (measured: number) => measured <= greatest;
  const serviceOfBare = ratio(small, bare);
  const grown = ['gpuGrowth', 'nodeGrowth', 'controlPlaneGrowth'].flatMap(key =>
    figures(results, 'steady', '', key),
  );
  return [
    {
      ...{ name: `bare images/s, ${GRAPH_WANTED}`, wanted: `at least ${BARE_WANTED_PER_S}` },
      ...{ measured: bare, met: atLeast(BARE_WANTED_PER_S) },
    },
    {
      name: 'service at 512 x 512 to bare',
      wanted: `at least ${SERVICE_OF_BARE_MIN}, or ${CORES_BUSY_MIN} cores busy`,
      measured: serviceOfBare,
      met: measured => measured >= SERVICE_OF_BARE_MIN || (cores ?? 0) >= CORES_BUSY_MIN,
    },
    { name: 'cores busy then', wanted: '', measured: cores, met: () => undefined },
    {
      ...{ name: '2 MP JPEG to WebP, images/s', wanted: `at least ${WEBP_WANTED_PER_S}` },
      ...{ measured: webp, met: atLeast(WEBP_WANTED_PER_S) },
    },
    {
      ...{ name: '`standard` to isnet alone', wanted: `at least ${STANDARD_OF_ISNET_MIN}` },
      ...{ measured: ratio(standard, small), met: atLeast(STANDARD_OF_ISNET_MIN) },
    },
    {
      name: 'mattes against the CPU in fp32, worst mean difference, levels of 255',
      wanted: `at most ${DIFFERENCE_MAX}`,
      measured: most(figures(results, 'parity', '', 'meanLevels')),
      met: atMost(DIFFERENCE_MAX),
    },
    {
      ...{
        name: 'quality to the CPU in fp32, worst ratio',
        wanted: `at most ${QUALITY_RATIO_MAX}`,
      },
      ...{ measured: most(quality), met: atMost(QUALITY_RATIO_MAX) },
    },
    {
      ...{ name: 'images not answered rightly in faults', wanted: 'none' },
      ...{ measured: most(lost), met: atMost(0) },
    },
    {
      ...{ name: 'growth of memory after the first minute', wanted: `at most ${GROWTH_MAX}` },
      ...{ measured: most(grown), met: atMost(GROWTH_MAX) },
    },
  ];
}

function servicePerS(results: CardResults, plan: string, what: string): number[] {
  return figures(results, 'service', `${plan}, ${what},`, 'imagesPerS');
}

/** Of the rows whose names begin so. */
function figures(
  results: CardResults,
  section: keyof CardResults['sections'],
  begins: string,
  key: string,
): number[] {
  const rows = results.sections[section]?.rows ?? [];
  return rows
    .filter(({ name }) => name.startsWith(begins))
    .flatMap(row => {
      const figure = row.figures[key];
      return typeof figure === 'number' && Number.isFinite(figure) ? [figure] : [];
    });
}

function most(values: readonly number[]): number | undefined {
  return values.length === 0 ? undefined : Math.max(...values);
}

function ratio(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? undefined : one / other;
}
