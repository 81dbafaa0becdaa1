/**
 * The whole service kept full, over REST and over gRPC: images a second by photo and format, how
 * long one takes then, who takes the processor's time, and what limits.
 */
import { cpus } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import type { OutputFormat } from '#contract/formats.ts';
import { type BenchPhoto, drawPhotos } from '../photos.ts';
import { PROCESS_ROLES, type ProcessRole, type TimesByPid } from '../processes.ts';
import type { Card } from './card.ts';
import { type LoadFigures, type LoadTarget, underLoad } from './load.ts';
import { type NodeCounts, readCounts } from './node-metrics.ts';
import { WARM_UP_SHARE } from './options.ts';
import type { Section } from './section.ts';
import { type Loads, limitOf } from './stage-limit.ts';
import { describeNode, type StartedService, startService } from './started-service.ts';

interface Case {
  readonly kind: LoadTarget['kind'];
  readonly photo: BenchPhoto;
  readonly format: OutputFormat;
}

/** A moment of the service: differences of two are what happened between them. */
interface Moment {
  readonly atMs: number;
  readonly times: TimesByPid;
  readonly counts: NodeCounts;
  /** Of all cores, whoever took them, ms. */
  readonly machineMs: number;
}

const INTERFACES = { rest: 'REST', grpc: 'gRPC' } as const;
/** Of a service that was never asked anything: what runs first is compiled. */
const FIRST_WARM_UP_MS = 2000;

export async function measureService(card: Card, section: Section): Promise<void> {
  const { plans, formats, sizes, each, threads } = card.options;
  const photos = (await drawPhotos()).slice(0, sizes);
  section.note({ rest: 'file as body, picture as answer', clientThreads: threads });
  const cases = casesOf(photos, formats);
  for (const plan of plans) {
    const nameOf = ({ kind, photo, format }: Case) =>
      `${plan}, ${photo.name} to ${format}, ${INTERFACES[kind]}`;
    const needsMs = 1000 * each * (1 + WARM_UP_SHARE);
    if (section.leftMs < needsMs) {
      for (const one of cases) section.leaveOut(nameOf(one));
      continue;
    }
    const service = await section.prepare(`${plan}, start`, signal =>
      startService(card, plan, signal),
    );
    if (service === undefined) continue;
    section.note({ [plan]: await describeNode(service) });
    try {
      for (const [index, one] of cases.entries()) {
        const warmMs = (index === 0 ? FIRST_WARM_UP_MS : 0) + 1000 * each * WARM_UP_SHARE;
        await section.row(nameOf(one), needsMs, () => measureCase(card, service, one, warmMs));
      }
    } finally {
      await service.close();
    }
  }
}

/** What says most comes first: time may end before the list does. */
export function casesOf(photos: readonly BenchPhoto[], formats: readonly OutputFormat[]): Case[] {
  const kinds = ['rest', 'grpc'] as const;
  return formats.flatMap(format =>
    photos.flatMap(photo => kinds.map(kind => ({ kind, photo, format }))),
  );
}

async function measureCase(card: Card, service: StartedService, one: Case, warmMs: number) {
  const { kind, photo, format } = one;
  const { threads, each } = card.options;
  const callers = service.callersOf(kind);
  const wanted = { target: service.targets[kind], photo, format, callers, threads };
  return await underLoad(wanted, async load => {
    await delay(warmMs);
    const before = await momentOf(service);
    load.begin();
    await delay(1000 * each);
    const after = await momentOf(service);
    return { callers, ...figuresOf(card, before, after, await load.end()) };
  });
}

async function momentOf(service: StartedService): Promise<Moment> {
  const counts = await readCounts(service.nodeHttpUrl);
  const cores = cpus().map(({ times: { idle, ...busy } }) => busy);
  const machineMs = cores.flatMap(busy => Object.values(busy)).reduce((sum, ms) => sum + ms, 0);
  return { atMs: performance.now(), times: service.times(), counts, machineMs };
}

function figuresOf(card: Card, before: Moment, after: Moment, load: LoadFigures) {
  const { answers: _, ...client } = load;
  const elapsedMs = after.atMs - before.atMs;
  const spent = spentBy(before.times, after.times);
  const coresOf = byRole(role => spent.cpuMs[role] / elapsedMs);
  const cpuMsAnImage = byRole(role => spent.cpuMs[role] / load.images);
  const machineCores = (after.machineMs - before.machineMs) / elapsedMs;
  const gpu = card.gpuBetween(before.atMs, after.atMs);
  const stageMs = stagesBetween(before.counts, after.counts);
  const inNodeMs = Object.values(stageMs).reduce((sum, ms) => sum + ms, 0);
  const loads: Loads = {
    ...{ cores: card.cores, gpuBusy: gpu.gpuBusy, coresOf },
    ...{ machineCores, clientBusy: load.clientBusy },
    controlPlaneBusy: spent.mainMs['control plane'] / elapsedMs,
    nodeBusy: spent.mainMs.node / elapsedMs,
    enginesBusy:
      (1000 * (after.counts.engineBusyS - before.counts.engineBusyS)) /
      (elapsedMs * Math.max(1, after.counts.engines)),
    workerWaitShare: (stageMs.worker_wait ?? 0) / inNodeMs,
  };
  const serviceMs = Object.values(cpuMsAnImage).reduce((sum, ms) => sum + ms, 0);
  return {
    ...client,
    ...gpu,
    limit: limitOf(loads),
    coresBusy: Object.values(coresOf).reduce((sum, each) => sum + each, 0),
    machineCores,
    coresFor100PerS: serviceMs / 10,
    ...{ coresOf, cpuMsAnImage, stageMs },
    controlPlaneBusy: loads.controlPlaneBusy,
    nodeBusy: loads.nodeBusy,
    enginesBusy: loads.enginesBusy,
  };
}

/** Of processes that live at the end; of those that are new since the beginning all of it. */
export function spentBy(before: TimesByPid, after: TimesByPid) {
  const cpuMs = byRole(() => 0);
  const mainMs = byRole(() => 0);
  for (const [pid, { role, cpuMs: until, mainCpuMs }] of after) {
    const from = before.get(pid);
    cpuMs[role] += until - (from?.cpuMs ?? 0);
    mainMs[role] += mainCpuMs - (from?.mainCpuMs ?? 0);
  }
  return { cpuMs, mainMs };
}

/** Means of the images that ended meanwhile, ms. */
function stagesBetween(before: NodeCounts, after: NodeCounts): Record<string, number> {
  const images = Math.max(1, after.images - before.images);
  return Object.fromEntries(
    [...after.stageS].map(([stage, sumS]) => {
      return [stage, (1000 * (sumS - (before.stageS.get(stage) ?? 0))) / images];
    }),
  );
}

function byRole(of: (role: ProcessRole) => number): Record<ProcessRole, number> {
  const entries = PROCESS_ROLES.map(role => [role, of(role)] as const);
  return Object.fromEntries(entries) as Record<ProcessRole, number>;
}
