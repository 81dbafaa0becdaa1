/** The options of the command line, and the results of a measurement. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import {
  EXECUTION_PROVIDERS,
  PRECISIONS,
} from '../../inference-node/serving/models/prepared-model.ts';
import { OUTPUT_FORMATS } from '../../proto/contract/formats.ts';

const USAGE = `usage: bench/card/main.ts [options]
  --provider cuda        or cpu
  --only bare,service,interface   sections; the first two
  --each 5               seconds that a figure is measured for
  --graph isnet,1024,fp16   of bare, may be given several times
  --engines 1,2,3,4      of bare
  --plans isnet,standard of service: a plan, or a model alone
  --formats png,webp     of service
  --threads 4            of callers`;
const GRAPHS = ['isnet,1024,fp16', 'isnet,1024,fp32', 'modnet,448,fp32'];
const SECTIONS = ['bare', 'service', 'interface'] as const;

export type CardOptions = ReturnType<typeof readOptions>;
export type Figures = Readonly<Record<string, number | string | undefined>>;
/** Measures and keeps one row; what goes wrong is the row's alone. */
export type AddRow = (name: string, measure: () => Promise<Figures>) => Promise<void>;

/** @throws Error in words for the terminal. */
export function readOptions() {
  const text = (value: string) => ({ type: 'string', default: value }) as const;
  const { values } = parseArgs({
    options: {
      ...{ provider: text('cuda'), only: text('bare,service'), each: text('5') },
      engines: text('1,2,3,4'),
      ...{ plans: text('isnet,standard'), formats: text('png,webp') },
      graph: { type: 'string', multiple: true },
      threads: text(String(Math.max(1, Math.min(4, Math.floor(availableParallelism() / 4))))),
    },
  });
  const oneOf = <const Value>(known: readonly Value[], given: string): Value => {
    const found = known.find(value => String(value) === given);
    if (found === undefined) throw new Error(`${given} is none of ${known.join(', ')}\n${USAGE}`);
    return found;
  };
  const listOf = <const Value>(known: readonly Value[], given: string) =>
    given.split(',').map(value => oneOf(known, value));
  return {
    provider: oneOf(EXECUTION_PROVIDERS, values.provider),
    only: listOf(SECTIONS, values.only),
    each: Number(values.each),
    engines: listOf([1, 2, 3, 4], values.engines),
    plans: values.plans.split(','),
    formats: listOf(OUTPUT_FORMATS, values.formats),
    threads: Number(values.threads),
    graphs: (values.graph ?? GRAPHS).map(graph => {
      const [model = '', side = '', precision = ''] = graph.split(',');
      return { model, side: Number(side), precision: oneOf(PRECISIONS, precision) };
    }),
  };
}
