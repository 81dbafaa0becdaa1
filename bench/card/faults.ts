/**
 * What a fault of an engine or of the provider does to images: under load an engine is killed, one
 * is stopped, and the file that engines need is taken away. Every image must be answered, rightly,
 * whatever it waits for; the node must be well again, and say what happened.
 */
import { setTimeout as delay } from 'node:timers/promises';
import sharp from 'sharp';
import {
  compareAlphas,
  PARITY_MEAN_DIFFERENCE_MAX,
} from '../../inference-node/src/engine/choice/parity.ts';
import { at } from '../../test/support/at.ts';
import { type BenchPhoto, drawPhotos } from '../photos.ts';
import type { Card } from './card.ts';
import { type KeptAnswer, type LoadFigures, startLoad } from './load.ts';
import { openRestCaller } from './rest-caller.ts';
import { type Section, WrongFigures } from './section.ts';
import { describeNode, type StartedService, startService } from './started-service.ts';
import { fileOfEngines, putBack, takeAway } from './taken-away.ts';
import { WatchedNode } from './watched-node.ts';

interface Strike {
  readonly name: string;
  /** @returns the process that must be gone before all is well. */
  readonly strike: (node: WatchedNode, signal: AbortSignal) => Promise<number>;
}

interface Striking {
  readonly card: Card;
  readonly service: StartedService;
  readonly photo: BenchPhoto;
  /** What the photo's cut-out is when nothing is wrong. */
  readonly expected: Buffer;
}

/** Long enough that every engine has tried to start several times. */
const AWAY_MS = 20_000;
/** A node that is down takes a while to come back, longer on a GPU; images wait for it. */
const GRACE_MS = 600_000;
/** Runs of an engine that is stopped end after 10 s. */
const STRIKE_NEEDS_MS = 25_000;

export async function measureFaults(card: Card, section: Section): Promise<void> {
  const plan = at(card.options.plans, 0);
  const file = fileOfEngines(card, plan);
  putBack(file);
  const strikes: Strike[] = [
    { name: 'an engine killed', strike: async node => signalOne(node, 'SIGKILL') },
    { name: 'an engine stopped', strike: async node => signalOne(node, 'SIGSTOP') },
    {
      name: "the engines' file taken away, one killed",
      strike: async (node, signal) => {
        takeAway(file);
        try {
          const pid = signalOne(node, 'SIGKILL');
          await delay(AWAY_MS, undefined, { signal });
          return pid;
        } finally {
          putBack(file);
        }
      },
    },
  ];
  const env = { MATTING_NO_NODE_GRACE_MS: String(GRACE_MS) };
  const engines = process.env.MATTING_ENGINES ?? '2';
  const service = await startService(card, plan, section.signal, {
    ...{ MATTING_ENGINES: engines, ...env },
  });
  try {
    section.note({ [plan]: await describeNode(service), takenAway: file });
    const photo = at(await drawPhotos(), 0);
    const expected = await askOnce(service, photo);
    const striking = { card, service, photo, expected };
    for (const { name, strike } of strikes) {
      await section.row(name, STRIKE_NEEDS_MS, signal => measureStrike(striking, strike, signal));
    }
  } finally {
    await service.close();
  }
}

function signalOne(node: WatchedNode, signal: NodeJS.Signals): number {
  const pid = at(node.engines(), 0);
  process.kill(pid, signal);
  return pid;
}

async function askOnce(service: StartedService, photo: BenchPhoto): Promise<Buffer> {
  const caller = openRestCaller(service.baseUrl, service.apiKey);
  try {
    return (await caller.cutOut(photo, 'png')).file;
  } finally {
    caller.close();
  }
}

async function measureStrike(
  { card, service, photo, expected }: Striking,
  strike: Strike['strike'],
  signal: AbortSignal,
) {
  const { each, threads } = card.options;
  const load = startLoad({
    ...{ target: service.targets.rest, photo, format: 'png', keepAnswers: true, threads },
    callers: service.callersOf('rest'),
  });
  const node = new WatchedNode(service);
  load.begin();
  let well = false;
  const struckMs = performance.now();
  let wellAfterS: number | undefined;
  try {
    await delay(1000 * each, undefined, { signal });
    const pid = await strike(node, signal);
    await node.untilWellWithout(pid, signal);
    wellAfterS = (performance.now() - struckMs) / 1000 - each;
    well = true;
    await delay(1000 * each, undefined, { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    await node.end();
  }
  const figures = await load.end();
  const judged = await judgeAnswers(figures, expected);
  const measured = {
    well,
    wellAfterS,
    ...judged,
    answeredLater: figures.answeredLater,
    failures: figures.failures,
    longestS: figures.longestMs / 1000,
    states: node.states.join(' → '),
    said: node.log(),
  };
  if (judged.notRight === 0 && well) return measured;
  const lost = `${judged.notRight} images were not answered rightly`;
  throw new WrongFigures(well ? lost : `the node was not well again; ${lost}`, measured);
}

/** `notRight`: refused, failed, or another cut-out than when nothing is wrong. */
export async function judgeAnswers(
  figures: Pick<LoadFigures, 'answered' | 'answers' | 'failed'>,
  expected: Buffer,
) {
  const truth = await alphaOf(expected);
  let wrong = 0;
  let looked = 0;
  for (const { count, file } of figures.answers) {
    looked += count;
    if (!(await isRight(file, truth))) wrong += count;
  }
  const { answered, failed } = figures;
  const different = figures.answers.length;
  const unseen = answered - looked;
  return { answered, notRight: failed + wrong + unseen, failed, wrong, unseen, different };
}

async function isRight(file: KeptAnswer['file'], truth: Uint8Array): Promise<boolean> {
  try {
    return compareAlphas(await alphaOf(file), truth).mean <= PARITY_MEAN_DIFFERENCE_MAX;
  } catch {
    // No picture, or one of another size.
    return false;
  }
}

async function alphaOf(file: Uint8Array): Promise<Buffer> {
  return await sharp(file).ensureAlpha().extractChannel('alpha').raw().toBuffer();
}
