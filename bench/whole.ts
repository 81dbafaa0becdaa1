/**
 * The one table: what each layer adds to the model, on this machine, in one run.
 *
 *   bare        one picture of the model's size through an engine, nothing else
 *   pipeline    decode, engine, refine, encode in this process
 *   gRPC        the same through a node, called directly
 *   REST        the same through the control plane, the download of the cut-out included
 *
 * Latency: one caller; the layers take turns on every photo and format, medians of rounds, as
 * ratios to bare. Throughput: as many callers as keep the node full, as ratios to bare engines that
 * are kept full in the same round; this client's processor time is taken out of the clock, since it
 * runs on the same cores.
 *
 * node bench/whole.ts [--rounds 3] [--requests 24] [--photos 3]
 */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { type OutputFormat, TRANSPARENT_FORMATS } from '../proto/contract/formats.ts';
import { openInProcess } from './in-process.ts';
import { openNodeCaller } from './node-caller.ts';
import { type BenchPhoto, drawPhotos } from './photos.ts';
import { writeResults } from './results.ts';
import { median, openService } from './service.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    requests: { type: 'string', default: '24' },
    photos: { type: 'string', default: '3' },
  },
});
const rounds = Number(values.rounds);
const requests = Number(values.requests);
/** At most so many of the smallest photos are taken. */
const photosMax = Number(values.photos);
const MEGABYTE = 1e6;

type Layer = 'pipeline' | 'gRPC' | 'REST';
type CutOut = (photo: BenchPhoto, format: OutputFormat) => Promise<unknown>;

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
}

/** Runs a second, this process's own processor time taken out. */
async function rateOf(work: () => Promise<unknown>): Promise<number> {
  const cpu = process.cpuUsage();
  let left = requests;
  const elapsedMs = await timed(() =>
    Promise.all(
      Array.from({ length: callers }, async () => {
        while (left-- > 0) await work();
      }),
    ),
  );
  const used = process.cpuUsage(cpu);
  const clientMs = (used.user + used.system) / 1000 / availableParallelism();
  return (1000 * requests) / (elapsedMs - clientMs);
}

const inProcess = await openInProcess();
const service = await openService();
const node = openNodeCaller(service.nodeAddress, service.nodeToken);
/** The node admits so many: it is never without work and never refuses. */
const callers = await node.imagesMax();
const layers: Readonly<Record<Layer, CutOut>> = {
  pipeline: inProcess.cutOut,
  gRPC: node.cutOut,
  REST: (photo, format) => service.cutOut(photo.file, format),
};
const names = Object.keys(layers) as Layer[];

async function latencyOf(photo: BenchPhoto, format: OutputFormat) {
  const bareMs: number[] = [];
  const layerMs: Record<Layer, number[]> = { pipeline: [], gRPC: [], REST: [] };
  // The first round warms up.
  for (let round = 0; round <= rounds; round++) {
    const bare = await timed(inProcess.bare);
    if (round > 0) bareMs.push(bare);
    for (const name of names) {
      const ms = await timed(() => layers[name](photo, format));
      if (round > 0) layerMs[name].push(ms);
    }
  }
  const bare = median(bareMs);
  const ratio = (name: Layer) => median(layerMs[name]) / bare;
  return {
    photo: photo.name,
    format,
    bareMs: bare,
    pipeline: ratio('pipeline'),
    gRPC: ratio('gRPC'),
    REST: ratio('REST'),
  };
}

async function throughputOf(photo: BenchPhoto, format: OutputFormat) {
  const barePerS = await rateOf(inProcess.bare);
  const ratio = async (name: Layer) => (await rateOf(() => layers[name](photo, format))) / barePerS;
  const [pipeline, gRPC, REST] = [
    await ratio('pipeline'),
    await ratio('gRPC'),
    await ratio('REST'),
  ];
  return { photo: photo.name, format, barePerS, pipeline, gRPC, REST };
}

try {
  const photos = (await drawPhotos()).slice(0, photosMax);
  const latency: Awaited<ReturnType<typeof latencyOf>>[] = [];
  const throughput: Awaited<ReturnType<typeof throughputOf>>[] = [];
  for (const photo of photos) {
    for (const format of TRANSPARENT_FORMATS) latency.push(await latencyOf(photo, format));
  }
  print('latency, one caller: ratios to a bare run', latency, 'bareMs');
  for (const photo of photos) {
    for (const format of ['png', 'webp'] as const) {
      throughput.push(await throughputOf(photo, format));
    }
  }
  print('throughput, saturated: ratios to bare engines', throughput, 'barePerS');
  const { rss, pss, processes } = service.nodeMemory();
  const engineMb = inProcess.engineMemory() / MEGABYTE;
  writeResults('whole', {
    model: inProcess.description,
    engines: inProcess.engines,
    engineMb,
    nodeMb: rss / MEGABYTE,
    nodeProportionalMb: pss / MEGABYTE,
    nodeProcesses: processes,
    latency,
    throughput,
  });
} finally {
  node.close();
  await service.close();
  await inProcess.close();
}

type Row = {
  readonly photo: string;
  readonly format: string;
  readonly pipeline: number;
  readonly gRPC: number;
  readonly REST: number;
};

function print<Bare extends string>(
  title: string,
  rows: readonly (Row & Readonly<Record<Bare, number>>)[],
  bare: Bare,
): void {
  console.log(`\n${title} (${inProcess.description})`);
  const cells = (...texts: string[]) => texts.map(text => text.padEnd(13)).join('');
  console.log(cells('photo', 'to', bare, ...names));
  for (const row of rows) {
    const ratios = names.map(name => row[name].toFixed(3));
    console.log(cells(row.photo, row.format, row[bare].toFixed(2), ...ratios));
  }
}
