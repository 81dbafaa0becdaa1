/** What the command line asks for. */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { OUTPUT_FORMATS, type OutputFormat } from '#contract/formats.ts';
import {
  BATCH_SIZES,
  EXECUTION_PROVIDERS,
  type ExecutionProvider,
  PRECISIONS,
  type Precision,
} from '../../inference-node/src/models/prepared-model.ts';
import { SECTIONS, type SectionName } from './card-file.ts';

/** A model at a size and in a precision. */
export interface GraphWanted {
  readonly model: string;
  readonly side: number;
  readonly precision: Precision;
}

export interface CardOptions {
  readonly only: readonly SectionName[];
  readonly provider: ExecutionProvider;
  /** That a section may take. */
  readonly seconds: number;
  /** That a figure is measured for, after a warm-up. */
  readonly each: number;
  readonly graphs: readonly GraphWanted[];
  readonly engines: readonly number[];
  readonly batches: readonly number[];
  /** Folders for the comparison of mattes; none: photos that are drawn. */
  readonly photos: readonly string[];
  readonly plans: readonly string[];
  readonly formats: readonly OutputFormat[];
  /** The smallest so many of the drawn photos. */
  readonly sizes: number;
  /** Of the steady load. */
  readonly minutes: number;
  /** Threads of callers. */
  readonly threads: number;
  readonly out: string;
}

/** Of what a figure is measured for: what is done before it counts. */
export const WARM_UP_SHARE = 0.25;

export const USAGE = `usage: bench/card/main.ts [options]
  --only bare,parity,service,faults,steady,goals   sections, in this order; all of them
  --provider cuda        or tensorrt, webgpu, cpu
  --seconds 600          that a section may take; what does not fit is named
  --each 5               seconds that a figure is measured for
  --graph isnet,1024,fp16   of bare and parity, may be given several times
  --engines 1,2,3,4      of bare
  --batches 1,2,4,8      images at once, of bare
  --photos FOLDER        of parity, may be given several times; NAME_alpha.png is NAME's reference
  --plans isnet,standard of service; faults take the first, steady the last
  --formats png,webp,avif   of service
  --sizes 3              the smallest so many of the photos of 0.25, 2 and 12 MP
  --minutes 10           of steady
  --threads 4            of callers
  --out FILE             bench/results/card.json, of other providers card-PROVIDER.json`;

const GRAPHS = [
  'isnet,1024,fp16',
  'isnet,1024,fp32',
  'isnet,768,fp16',
  'isnet,768,fp32',
  'modnet,448,fp32',
];
const THREADS_MAX = 16;
const RESULTS = path.join(import.meta.dirname, '../results');

/** @throws Error in words for the terminal. */
export function readOptions(args: readonly string[], cores: number): CardOptions {
  const text = (value: string) => ({ type: 'string', default: value }) as const;
  const several = { type: 'string', multiple: true } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ only: text(SECTIONS.join()), provider: text('cuda') },
      ...{ seconds: text('600'), each: text('5'), minutes: text('10'), sizes: text('3') },
      ...{ engines: text('1,2,3,4'), batches: text('1,2,4,8') },
      ...{ plans: text('isnet,standard'), formats: text('png,webp,avif') },
      ...{ graph: several, photos: several, out: { type: 'string' } },
      threads: text(String(Math.max(1, Math.min(4, Math.floor(cores / 4))))),
    },
  });
  const number = (name: 'seconds' | 'each' | 'minutes' | 'sizes' | 'threads', least: number) => {
    const value = Number(values[name]);
    if (!(value >= least)) throw new Error(`--${name} is a number of at least ${least}\n${USAGE}`);
    return value;
  };
  const numbers = (name: 'engines' | 'batches', known: readonly number[]) =>
    values[name].split(',').map(value => known[known.indexOf(Number(value))] ?? wrong(name, value));
  const upTo4 = [1, 2, 3, 4];
  const provider = oneOf(EXECUTION_PROVIDERS, values.provider, 'provider');
  const file = provider === 'cuda' ? 'card.json' : `card-${provider}.json`;
  return {
    only: values.only.split(',').map(name => oneOf(SECTIONS, name, 'only')),
    provider,
    ...{ seconds: number('seconds', 1), each: number('each', 0.1) },
    ...{ minutes: number('minutes', 0.1), sizes: number('sizes', 1) },
    threads: Math.min(THREADS_MAX, number('threads', 1)),
    graphs: (values.graph ?? GRAPHS).map(readGraph),
    engines: numbers('engines', upTo4),
    batches: numbers('batches', [1, ...BATCH_SIZES]),
    photos: values.photos ?? [],
    plans: values.plans.split(','),
    formats: values.formats.split(',').map(name => oneOf(OUTPUT_FORMATS, name, 'formats')),
    out: values.out ?? path.join(RESULTS, file),
  };
}

function readGraph(text: string): GraphWanted {
  const [model = '', side = '', precision = ''] = text.split(',');
  if (!/^\d+$/.test(side)) wrong('graph', text);
  return { model, side: Number(side), precision: oneOf(PRECISIONS, precision, 'graph') };
}

function oneOf<const Value extends string>(
  known: readonly Value[],
  given: string,
  name: string,
): Value {
  return known.find(value => value === given) ?? wrong(name, given);
}

function wrong(name: string, given: string): never {
  throw new Error(`--${name} cannot be ${given}\n${USAGE}`);
}
