/** Jobs and nodes of a simulation. All random numbers come from the seed, before it begins. */
import assert from 'node:assert/strict';
import type { GroupPlacement } from '@matting/queue/fair-order.ts';
import type { JobClass, QueueJob } from '@matting/queue/job.ts';
import type { InputFormat, OutputFormat } from '../../proto/contract/formats.ts';

export interface Scenario {
  readonly nodes: number;
  readonly jobs: number;
  readonly replicas: number;
  readonly load: number;
  readonly seed: number;
  readonly groups?: GroupPlacement;
  /** Nodes that are gone, for good, once this share of the jobs has come. */
  readonly vanishing?: { readonly share: number; readonly afterShare: number };
}

export interface SimulatedJob {
  /** In the order of arrival. */
  readonly index: number;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly class: JobClass;
  readonly arrivesMs: number;
  readonly pixels: number;
  readonly inputFormat: InputFormat;
  readonly outputFormat: OutputFormat;
  /** The job names it; absent: the default. */
  readonly model?: string;
  readonly group?: QueueJob['group'];
  readonly luck: number;
}

export interface NodeKind {
  readonly slowness: number;
  readonly engines: number;
  readonly share: number;
  /** A node with little memory has it: for all images together, and for one alone. */
  readonly memory?: { readonly megapixelsMax: number; readonly megapixelsAloneMax: number };
  /** It serves this model; absent: the default. */
  readonly model?: string;
}

const KINDS: readonly NodeKind[] = [
  { slowness: 0.5, engines: 1, share: 0.2 },
  { slowness: 1, engines: 1, share: 0.4 },
  { slowness: 1, engines: 2, share: 0.2 },
  { slowness: 1.5, engines: 1, share: 0.2 },
];

/** Megapixels: thumbnails, web pictures, phones, cameras, and the largest there may be. */
const SIZES = [
  { megapixels: 0.5, share: 0.2 },
  { megapixels: 2, share: 0.3 },
  { megapixels: 12, share: 0.4 },
  { megapixels: 24, share: 0.08 },
  { megapixels: 60, share: 0.02 },
];
const INPUTS = [
  { format: 'jpeg', share: 0.7 },
  { format: 'png', share: 0.2 },
  { format: 'webp', share: 0.1 },
] as const;
const OUTPUTS = [
  { format: 'png', share: 0.6 },
  { format: 'webp', share: 0.3 },
  { format: 'avif', share: 0.1 },
] as const;

/** Callers: a few send most of it, and there are more lanes than a round reads. */
const ACCOUNTS = Array.from({ length: 24 }, (_, at) => ({
  name: `account-${at}`,
  weight: 1 / (at + 1),
}));
const ACCOUNTS_WEIGHT = ACCOUNTS.reduce((sum, { weight }) => sum + weight, 0);
const CALLERS = ACCOUNTS.map(({ name, weight }) => ({ name, share: weight / ACCOUNTS_WEIGHT }));
const KEYS = 2;
const CLASSES = [
  { class: 'sync', share: 0.7 },
  { class: 'async', share: 0.3 },
] as const;

const INFER_MS = 250;
export const HEAVY = { name: 'heavy', inferMs: 4000 } as const;
export const DECODE_MS_PER_MEGAPIXEL = {
  jpeg: 10,
  png: 25,
  webp: 20,
  avif: 40,
  jxl: 60,
  heic: 200,
} as const;
export const ENCODE_MS_PER_MEGAPIXEL = {
  png: 50,
  webp: 35,
  avif: 65,
  jxl: 90,
  jpeg: 35,
  zip: 55,
} as const;
export const STARTED_MS = 1000;
/** Spread of what images of one size and format cost: about a quarter up or down. */
const LUCK_SIGMA = 0.25;

/** Mulberry32. */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function drawn<T extends { readonly share: number }>(of: readonly T[], random: () => number): T {
  let left = random();
  for (const entry of of) {
    left -= entry.share;
    if (left < 0) return entry;
  }
  const last = of.at(-1);
  assert.ok(last !== undefined, 'there is something to draw from');
  return last;
}

export function makeFleet({ nodes }: Scenario): NodeKind[] {
  // The kinds go by quota, not by chance, so that fleets of ten are alike.
  return KINDS.flatMap(kind => Array<NodeKind>(Math.round(nodes * kind.share)).fill(kind));
}

export function serviceMs(job: SimulatedJob, slowness: number): number {
  const megapixels = job.pixels / 1e6;
  const perMegapixel =
    DECODE_MS_PER_MEGAPIXEL[job.inputFormat] + ENCODE_MS_PER_MEGAPIXEL[job.outputFormat];
  return inferMs(slowness, job.model) + slowness * megapixels * perMegapixel * job.luck;
}

export function inferMs(slowness: number, model?: string): number {
  return slowness * (model === undefined ? INFER_MS : HEAVY.inferMs);
}

export function makeJobs(scenario: Scenario, fleet: readonly NodeKind[]): SimulatedJob[] {
  const random = createRandom(scenario.seed);
  const jobs = Array.from({ length: scenario.jobs }, (_, index) => ({
    index,
    arrivesMs: 0,
    ...drawnCaller(random),
    pixels: drawn(SIZES, random).megapixels * 1e6 * (0.7 + 0.6 * random()),
    inputFormat: drawn(INPUTS, random).format,
    outputFormat: drawn(OUTPUTS, random).format,
    luck: Math.exp(LUCK_SIGMA * gaussian(random)),
  }));
  const meanMs = jobs.reduce((sum, job) => sum + serviceMs(job, 1), 0) / jobs.length;
  const perMs = fleet.reduce((sum, node) => sum + node.engines / node.slowness, 0) / meanMs;
  let atMs = STARTED_MS;
  return jobs.map(job => {
    atMs += -Math.log(1 - random()) / (scenario.load * perMs);
    return { ...job, arrivesMs: atMs };
  });
}

function drawnCaller(random: () => number) {
  const accountId = drawn(CALLERS, random).name;
  const apiKeyId = `${accountId}-${Math.floor(random() * KEYS)}`;
  return { accountId, apiKeyId, class: drawn(CLASSES, random).class };
}

/** Box and Muller. */
function gaussian(random: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
