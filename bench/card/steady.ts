/** Minutes at full load: whether memory, of the GPU and of the host, stays what it is. */
import { setTimeout as delay } from 'node:timers/promises';
import { at } from '../../test/support/at.ts';
import { drawPhotos } from '../photos.ts';
import type { Card } from './card.ts';
import { growthAfter, type Sample } from './figures.ts';
import { underLoad } from './load.ts';
import type { Section } from './section.ts';
import { describeNode, startService } from './started-service.ts';

interface Taken {
  readonly gpu: Sample[];
  readonly node: Sample[];
  readonly controlPlane: Sample[];
}

/** Pools, caches and heaps have grown by then; of a load that is shorter, a fifth of it. */
const SETTLED_MS = 60_000;
const SETTLED_SHARE = 0.2;
const SAMPLES = 120;
const SAMPLE_MIN_MS = 500;
const MEGABYTE = 1e6;
/** For the start, and what is under way at the end. */
const BESIDE_MS = 5000;

export async function measureSteady(card: Card, section: Section): Promise<void> {
  const { plans, minutes } = card.options;
  const plan = at(plans, plans.length - 1);
  const wantedMs = 60_000 * minutes;
  const needsMs = Math.min(wantedMs, BESIDE_MS) + BESIDE_MS;
  // gRPC: a control plane may be what limits REST, and then the node would not be full.
  const photo = at(await drawPhotos(), 0);
  await section.row(`${plan}, ${photo.name} to png, gRPC`, needsMs, async signal => {
    const service = await startService(card, plan, signal);
    try {
      section.note({ [plan]: await describeNode(service) });
      const forMs = Math.min(wantedMs, section.leftMs - BESIDE_MS);
      if (forMs <= 0) throw new Error("the service's start took the section's time");
      const fromMs = performance.now();
      const wanted = {
        ...{ target: service.targets.grpc, photo, format: 'png' as const },
        ...{ callers: service.callersOf('grpc'), threads: card.options.threads },
      };
      const { taken, figures } = await underLoad(wanted, async load => {
        load.begin();
        const taken = await sample(card, service, forMs, signal);
        return { taken, figures: await load.end() };
      });
      const settledMs = Math.min(SETTLED_MS, forMs * SETTLED_SHARE);
      return {
        minutes: (performance.now() - fromMs) / 60_000,
        minutesWanted: minutes,
        ...{ imagesPerS: figures.imagesPerS, p50Ms: figures.p50Ms, p99Ms: figures.p99Ms },
        ...{ failed: figures.failed, failures: figures.failures },
        ...describeMemory(taken, settledMs),
        ...card.gpuBetween(fromMs, performance.now()),
        samples: taken,
      };
    } finally {
      await service.close();
    }
  });
}

async function sample(
  card: Card,
  service: { resident(): { readonly controlPlane: number; readonly node: number } },
  forMs: number,
  signal: AbortSignal,
): Promise<Taken> {
  const taken: Taken = { gpu: [], node: [], controlPlane: [] };
  const beganMs = performance.now();
  const intervalMs = Math.max(SAMPLE_MIN_MS, forMs / SAMPLES);
  while (performance.now() - beganMs < forMs && !signal.aborted) {
    const atMs = Math.round(performance.now() - beganMs);
    const { memoryMib } = card.gpuNow() ?? {};
    const resident = service.resident();
    if (memoryMib !== undefined) taken.gpu.push({ atMs, value: memoryMib });
    taken.node.push({ atMs, value: Math.round(resident.node / MEGABYTE) });
    taken.controlPlane.push({ atMs, value: Math.round(resident.controlPlane / MEGABYTE) });
    await delay(intervalMs, undefined, { signal }).catch(() => undefined);
  }
  return taken;
}

function describeMemory({ gpu, node, controlPlane }: Taken, settledMs: number) {
  const last = (samples: readonly Sample[]) => samples.at(-1)?.value;
  return {
    settledS: settledMs / 1000,
    gpuMibAtTheEnd: last(gpu),
    gpuGrowth: finite(growthAfter(gpu, settledMs)),
    nodeMbAtTheEnd: last(node),
    nodeGrowth: finite(growthAfter(node, settledMs)),
    controlPlaneMbAtTheEnd: last(controlPlane),
    controlPlaneGrowth: finite(growthAfter(controlPlane, settledMs)),
  };
}

function finite(value: number): number | undefined {
  return Number.isFinite(value) ? value : undefined;
}
