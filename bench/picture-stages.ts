/**
 * Measures the processor time of a picture beside the models by stage, with the functions and flags
 * of a picture worker. The plan's models run once a picture. With `--beside` another checkout takes
 * turns, picture by picture. Times are medians in ms; `ratio` is the median of pairs.
 *
 * node bench/picture-stages.ts FOLDER OF PHOTOS [--beside CHECKOUT] [--rounds 8] [--plan standard]
 *   [--keep DIRECTORY OF MATTES] [--kinds '512 px PNG to PNG']
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { type Profiler, Session } from 'node:inspector';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { decodeFile } from '../inference-node/serving/picture/codecs/decode.ts';
import type { RoleMatte } from '../inference-node/serving/picture/matte/merge-mattes.ts';
import { WORKER_ENV, WORKER_FLAGS } from '../inference-node/serving/picture/pool/worker-process.ts';
import { KINDS, photosOf } from './photos.ts';
import { openModelRunner } from './quality/model-runner.ts';
import { entriesOf, openReplay } from './quality/plan-runner.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

/** A function's time, with that of functions without a line here that it calls. */
const STAGES: Readonly<Record<string, readonly string[]>> = {
  decode: ['decodeFile'],
  'model inputs': ['createModelInput'],
  'enlarge mattes': ['matteAt'],
  'merge mattes': ['mergeMattes', 'mergeSources'],
  areas: ['fillAreas'],
  islands: ['fadeIslands'],
  guide: ['createGuide'],
  colours: ['applyColours'],
  haze: ['clearHaze'],
  'guided filter': ['fit'],
  'filter at full size': ['applyAtFullSize', 'atSizeOf'],
  'foreground on the grid': ['averageTo', 'solveGrid'],
  'certain colours': ['takeCertain'],
  'foreground in tiles': ['estimateForeground', 'solveTiles'],
  subject: ['findSubject'],
  'alpha into pixels': ['applyAlpha', 'multiplySourceAlpha'],
  encode: ['encodePixels', 'encodePng', 'encodeWebp'],
  collection: ['(garbage collector)'],
};
const STAGE_OF = new Map(
  Object.entries(STAGES).flatMap(([stage, names]) => names.map(name => [name, stage] as const)),
);
const SAMPLE_US = 250;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    beside: { type: 'string' },
    rounds: { type: 'string', default: '8' },
    plan: { type: 'string', default: 'standard' },
    keep: { type: 'string' },
    kinds: { type: 'string', multiple: true },
  },
});
const CHOICES = { refinement: true, foregroundEstimation: true, resultKind: 'cutout' };
const OPTIONS = { declared: undefined, onOpened: () => undefined };

type Times = Map<string, number>;
type Work = (file: Buffer, mattes: readonly RoleMatte[], outputFormat: string) => Promise<void>;

async function workOf(checkout: string): Promise<Work> {
  const folder = path.join(path.resolve(checkout), 'inference-node/serving/picture');
  const files = ['codecs/decode.ts', 'matte/model-input.ts', 'worker/finish.ts'];
  const all = await Promise.all(files.map(file => import(path.join(folder, file))));
  const { decodeFile, createModelInput, finishPicture } = Object.assign({}, ...all);
  return async (file, mattes, outputFormat) => {
    const picture = await decodeFile(file, OPTIONS);
    for (const size of mattes) createModelInput(picture, size);
    await finishPicture(picture, mattes, { ...CHOICES, outputFormat });
  };
}

const session = new Session();
session.connect();
session.post('Profiler.enable');
session.post('Profiler.setSamplingInterval', { interval: SAMPLE_US });

const msOf = ({ user, system }: NodeJS.CpuUsage) => (user + system) / 1000;

/** A collection between pictures does not count: workers make one for 32 MB of pixels. */
async function timesOf(work: () => Promise<void>): Promise<Times> {
  globalThis.gc?.();
  const [all, main] = [process.cpuUsage(), process.threadCpuUsage()];
  await work();
  const [total, own] = [msOf(process.cpuUsage(all)), msOf(process.threadCpuUsage(main))];
  const times: Times = new Map(Object.entries({ all: total, 'other threads': total - own }));
  // The profiler costs time, so a second run splits the first one's.
  globalThis.gc?.();
  session.post('Profiler.start');
  await work();
  session.post('Profiler.stop', (_, { profile }) => {
    const busy = stagesIn(profile).filter(stage => stage !== '(idle)');
    for (const stage of busy) times.set(stage, (times.get(stage) ?? 0) + own / busy.length);
  });
  return times;
}

function stagesIn({ nodes, samples = [] }: Profiler.Profile): string[] {
  const nodeOf = new Map(nodes.map(node => [node.id, node]));
  const stages = new Map<number, string>();
  const visit = (id: number, caller: string) => {
    const { callFrame, children = [] } = nodeOf.get(id)!;
    const name = callFrame.functionName;
    const stage = name === '(idle)' ? name : (STAGE_OF.get(name) ?? caller);
    stages.set(id, stage);
    for (const child of children) visit(child, stage);
  };
  visit(nodes[0]!.id, 'rest');
  return samples.map(id => stages.get(id)!);
}

async function measure(): Promise<void> {
  const models = openModelRunner(values.keep);
  const checkouts = [path.resolve(import.meta.dirname, '..'), values.beside ?? []].flat();
  const works = await Promise.all(checkouts.map(workOf));
  try {
    const entries = await entriesOf(values.plan);
    for (const kind of KINDS.filter(({ name }) => values.kinds?.includes(name) ?? true)) {
      const measured: Times[][] = works.map(() => []);
      const pictures = await Promise.all(
        (await photosOf(kind, positionals[0])).map(async file => {
          const replay = openReplay(entries, models, await decodeFile(file, OPTIONS));
          return { file, mattes: (await replay()).mattes };
        }),
      );
      for (let round = -2; round < Number(values.rounds); round++) {
        for (const { file, mattes } of pictures) {
          for (const [at, work] of works.entries()) {
            const times = await timesOf(() => work(file, mattes, kind.format));
            if (round >= 0) measured[at]!.push(times);
          }
        }
      }
      const rows = ['all', ...Object.keys(STAGES), 'rest', 'other threads'].map(stage => {
        const [mine = [], other] = measured.map(all => all.map(times => times.get(stage) ?? 0));
        const ms = Number(median(mine).toFixed(1));
        if (other === undefined) return [stage, { ms }] as const;
        const ratio = median(mine.map((time, at) => time / other[at]!)).toFixed(3);
        return [stage, { ms, beside: Number(median(other).toFixed(1)), ratio }] as const;
      });
      const table = Object.fromEntries(rows);
      console.log(kind.name);
      console.table(table);
      writeResults(`picture-stages ${kind.name}`, table);
    }
  } finally {
    await models.close();
  }
}

if (process.send === undefined) {
  const env = { ...process.env, ...WORKER_ENV };
  const child = fork(import.meta.filename, process.argv.slice(2), { execArgv: WORKER_FLAGS, env });
  const [code] = await once(child, 'exit');
  process.exitCode = code ?? 1;
} else {
  await measure();
  process.disconnect();
}
