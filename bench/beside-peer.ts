/**
 * Plans beside another background remover (peer.ts) on real photos of three kinds: images a second
 * over REST, saturated, and the processor time of an image, both sides in turns in one run. The mix
 * is a third of each kind. Prints which photos it took.
 *
 * Usage: beside-peer.ts [--plans fast,isnet,standard] [--sizes 2] [--rounds 2] [--photos 4]
 *   FOLDER...   --photos: of each kind; --sizes: the smallest so many
 */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import type { OutputFormat } from '../proto/contract/formats.ts';
import { at } from '../test/support/at.ts';
import { openPeer, type Peer } from './peer.ts';
import {
  choosePhotos,
  judgePhotos,
  KIND_SIZES,
  PHOTO_KINDS,
  type PhotoKind,
  toBenchPhoto,
} from './photo-kinds.ts';
import type { BenchPhoto } from './photos.ts';
import { planSetting } from './quality/plan-node.ts';
import { writeResults } from './results.ts';
import { median, openService, type Service } from './service.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plans: { type: 'string', default: 'fast,isnet,standard' },
    sizes: { type: 'string', default: `${KIND_SIZES.length}` },
    rounds: { type: 'string', default: '2' },
    photos: { type: 'string', default: '4' },
  },
});
if (positionals.length === 0) throw new Error('usage: beside-peer.ts [options] FOLDER...');
const rounds = Number(values.rounds);
const FORMAT: OutputFormat = 'png';
const CALLERS = 6;
/** Each kind has so many. */
const SERVICE_RUNS_A_ROUND = 12;

/** An image takes so much on either side, ms. */
interface Cost {
  readonly serviceMs: number;
  readonly serviceCpuMs: number;
  readonly peerMs: number;
  readonly peerCpuMs: number;
}

type Photos = ReadonlyMap<PhotoKind, readonly BenchPhoto[]>;

/** Measures an image's elapsed and processor time when saturated, one photo after the other. */
async function serviceCost(service: Service, photos: readonly BenchPhoto[]) {
  let next = 0;
  const cpuMs = service.allCpuMs();
  const startedMs = performance.now();
  const caller = async () => {
    while (next < SERVICE_RUNS_A_ROUND) {
      const photo = at(photos, next++ % photos.length);
      await service.cutOut(photo.file, FORMAT);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return {
    serviceMs: (performance.now() - startedMs) / SERVICE_RUNS_A_ROUND,
    serviceCpuMs: (service.allCpuMs() - cpuMs) / SERVICE_RUNS_A_ROUND,
  };
}

async function peerCost(peer: Peer, photo: BenchPhoto) {
  const cpuMs = peer.cpuMs();
  const peerMs = await peer.run(photo, FORMAT);
  return { peerMs, peerCpuMs: peer.cpuMs() - cpuMs };
}

/** Runs one round more than `rounds`: the first warms up. Each kind, and their mean, is one row. */
async function measure(plan: string, size: string, service: Service, peer: Peer, photos: Photos) {
  const costs = new Map<PhotoKind | 'mix', Cost[]>();
  const add = (kind: PhotoKind | 'mix', cost: Cost) =>
    costs.set(kind, [...(costs.get(kind) ?? []), cost]);
  for (let round = 0; round <= rounds; round++) {
    const all: Cost[] = [];
    for (const some of photos.values()) {
      const ours = await serviceCost(service, some);
      all.push({ ...ours, ...(await peerCost(peer, at(some, round % some.length))) });
    }
    if (round === 0) continue;
    for (const [index, kind] of [...photos.keys()].entries()) add(kind, at(all, index));
    const mean = (pick: (cost: Cost) => number) =>
      all.reduce((sum, cost) => sum + pick(cost), 0) / all.length;
    add('mix', {
      serviceMs: mean(cost => cost.serviceMs),
      serviceCpuMs: mean(cost => cost.serviceCpuMs),
      peerMs: mean(cost => cost.peerMs),
      peerCpuMs: mean(cost => cost.peerCpuMs),
    });
  }
  return [...costs].map(([kind, some]) => ({
    plan,
    size,
    kind,
    ratio: round2(median(some.map(cost => cost.peerMs / cost.serviceMs))),
    spread: some.map(cost => round2(cost.peerMs / cost.serviceMs)).join(' '),
    cpuRatio: round2(median(some.map(cost => cost.peerCpuMs / cost.serviceCpuMs))),
    perS: round2(median(some.map(cost => 1000 / cost.serviceMs))),
    peerPerS: round2(median(some.map(cost => 1000 / cost.peerMs))),
    cpuMs: Math.round(median(some.map(cost => cost.serviceCpuMs))),
  }));
}

function round2(value: number): number {
  return Number(value.toFixed(2));
}

const judged = await judgePhotos(positionals);
const sizes = KIND_SIZES.slice(0, Number(values.sizes));
const chosen = PHOTO_KINDS.map(kind => {
  const photos = choosePhotos(judged, kind, Number(values.photos));
  if (photos.length === 0) throw new Error(`none of the photos is ${kind}`);
  const share = judged.filter(photo => photo.kind === kind).length / judged.length;
  console.log(
    `${kind}, ${Math.round(100 * share)} % of the folders' photos: ${photos.map(({ file }) => file).join(', ')}`,
  );
  return [kind, photos] as const;
});
const rows: Awaited<ReturnType<typeof measure>> = [];
const peer = openPeer();
try {
  for (const plan of values.plans.split(',')) {
    const named = await planSetting(plan);
    const service = await openService({ MATTING_ENGINES: `${availableParallelism()}`, ...named });
    try {
      for (const size of sizes) {
        const photos = new Map<PhotoKind, BenchPhoto[]>();
        for (const [kind, some] of chosen) {
          const prepared = some.map(({ file }) => toBenchPhoto(file, size));
          photos.set(kind, await Promise.all(prepared));
        }
        const measured = await measure(plan, size.name, service, peer, photos);
        for (const row of measured) console.log(JSON.stringify(row));
        rows.push(...measured);
      }
    } finally {
      await service.close();
    }
  }
} finally {
  await peer.close();
}
console.table(rows);
writeResults('beside-peer', {
  peer: peer.name,
  photos: Object.fromEntries(chosen),
  rows,
});
