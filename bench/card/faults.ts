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
import { type KeptAnswer, type LoadFigures, underLoad } from './load.ts';
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
  const file = await fileOfEngines(card, plan);
  if (file !== undefined) putBack(file);
  const strikes: Strike[] = [
    { name: 'an engine killed', strike: async node => signalOne(node, 'SIGKILL') },
    { name: 'an engine stopped', strike: async node => signalOne(node, 'SIGSTOP') },
    ...(file === undefined ? [] : [takingAway(file)]),
  ];
  const service = await startService(card, plan, section.signal, {
    MATTING_ENGINES: process.env.MATTING_ENGINES ?? '2',
    MATTING_NO_NODE_GRACE_MS: String(GRACE_MS),
  });
  try {
    section.note({ [plan]: await describeNode(service), takenAway: file ?? 'nothing' });
    const photo = at(await drawPhotos(), 0);
    const expected = await askOnce(service, photo);
    const striking = { card, service, photo, expected };
    for (const { name, strike } of strikes) {
      const needsMs = STRIKE_NEEDS_MS + 2000 * card.options.each;
      await section.row(name, needsMs, signal => measureStrike(striking, strike, signal));
    }
  } finally {
    await service.close();
  }
}

function takingAway(file: string): Strike {
  return {
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
  };
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
  const callers = service.callersOf('rest');
  const asked = { photo, format: 'png', keepAnswers: true } as const;
  const wanted = { target: service.targets.rest, ...asked, callers, threads };
  const { watched, figures } = await underLoad(wanted, async load => {
    load.begin();
    const watched = await watchStrike(service, strike, 1000 * each, signal);
    return { watched, figures: await load.end() };
  });
  const { answeredLater, failures, longestMs } = figures;
  const measured = {
    ...{ ...watched, ...(await judgeAnswers(figures, expected)) },
    ...{ answeredLater, failures, longestS: longestMs / 1000 },
  };
  if (measured.notRight === 0 && measured.well) return measured;
  const lost = `${measured.notRight} images were not answered rightly`;
  throw new WrongFigures(measured.well ? lost : `the node was not well again; ${lost}`, measured);
}

/** @param besideMs how long all is well before, and is watched after it is well again. */
async function watchStrike(
  service: StartedService,
  strike: Strike['strike'],
  besideMs: number,
  signal: AbortSignal,
) {
  const node = new WatchedNode(service);
  let wellAfterS: number | undefined;
  try {
    await delay(besideMs, undefined, { signal });
    const struckMs = performance.now();
    const pid = await strike(node, signal);
    await node.untilWellWithout(pid, signal);
    wellAfterS = (performance.now() - struckMs) / 1000;
    await delay(besideMs, undefined, { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    await node.end();
  }
  const said = { states: node.states.join(' → '), said: node.log() };
  return { well: wellAfterS !== undefined, wellAfterS, ...said };
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
