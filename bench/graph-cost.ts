/**
 * What graphs cost on this CPU, in turns: processor time of a run and its peak of memory above the
 * loaded graph, each in a process of its own, with the options of an engine.
 *
 *   node bench/graph-cost.ts [--side PIXELS] [--turns N] [--mend] FILE...
 *
 * `--side`: where a graph leaves it open. `--mend`: each file beside its mended form, as ratios.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { mendDeformableConvolutions } from '../inference-node/model-tools/onnx/mend.ts';
import { liftConstants } from '../inference-node/model-tools/onnx/rewrites.ts';
import { InferenceSession, Tensor } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { decodeModel, encodeModel } from '../inference-node/serving/onnx/graph.ts';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';

const THREADS = 2;
/** The second shows what the first left to it. */
const RUNS = 2;

interface Cost {
  readonly cpuSeconds: number;
  readonly peakMb: number;
  readonly loadedMb: number;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    side: { type: 'string', default: '1024' },
    turns: { type: 'string', default: '3' },
    mend: { type: 'boolean', default: false },
    child: { type: 'boolean', default: false },
  },
});
const [file = ''] = positionals;
if (values.child) process.stdout.write(JSON.stringify(await measure(file, Number(values.side))));
else await compare(positionals);

async function compare(given: readonly string[]): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), 'graph-cost-'));
  try {
    const files = values.mend ? await withMended(given, folder) : given;
    const costs = new Map<string, Cost[]>(files.map(name => [name, []]));
    for (let turn = 0; turn < Number(values.turns); turn++) {
      for (const [name, found] of costs) {
        const cost = measureApart(name);
        found.push(cost);
        console.log(`${path.basename(name)}: ${describe(cost)}`);
      }
    }
    const medians = [...costs].map(
      ([name, found]) => [path.basename(name), middle(found)] as const,
    );
    for (const [name, cost] of medians) console.log(`median of ${name}: ${describe(cost)}`);
    for (let at = 1; values.mend && at < medians.length; at += 2) {
      const [stock, mended] = [medians[at - 1]?.[1], medians[at]?.[1]];
      if (stock === undefined || mended === undefined) continue;
      const time = (mended.cpuSeconds / stock.cpuSeconds).toFixed(3);
      console.log(
        `mended by stock: time ${time}, peak ${(mended.peakMb / stock.peakMb).toFixed(3)}`,
      );
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function withMended(given: readonly string[], folder: string): Promise<string[]> {
  const files: string[] = [];
  for (const stock of given) {
    const graph = liftConstants(decodeModel(readFileSync(stock), stock));
    const mended = mendDeformableConvolutions(graph, 'deform-conv');
    const target = path.join(folder, `mended-${path.basename(stock)}`);
    writeFileSync(target, Buffer.concat([...encodeModel(mended.graph)]));
    console.log(`${path.basename(stock)}: ${mended.blocks.length} blocks mended`);
    files.push(stock, target);
  }
  return files;
}

function measureApart(name: string): Cost {
  const args = [import.meta.filename, '--child', '--side', values.side, name];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${name}: ${stderr}`);
  return JSON.parse(stdout) as Cost;
}

async function measure(name: string, side: number): Promise<Cost> {
  const session = await InferenceSession.create(name, {
    ...{ executionProviders: ['cpu'], intraOpNumThreads: THREADS, interOpNumThreads: 1 },
    ...{ executionMode: 'sequential', enableMemPattern: false, logSeverityLevel: 3 },
  });
  const [input] = session.inputMetadata;
  if (input?.isTensor !== true) throw new Error('the graph takes no tensor');
  const [height = side, width = side] = input.shape
    .slice(2)
    .map(dim => (typeof dim === 'number' && dim > 0 ? dim : side));
  const rgb = drawCheckPicture(width, height);
  const pixels = width * height;
  const planes = Float32Array.from(
    { length: 3 * pixels },
    (_, at) => (rgb[3 * (at % pixels) + Math.floor(at / pixels)] ?? 0) / 64 - 2,
  );
  const feeds = { [input.name]: new Tensor('float32', planes, [1, 3, height, width]) };
  const loadedKb = memoryKb('VmRSS');
  // Forgets the peak of loading.
  writeFileSync('/proc/self/clear_refs', '5');
  const cpuSeconds: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    const before = process.cpuUsage();
    await session.run(feeds);
    const { user, system } = process.cpuUsage(before);
    cpuSeconds.push((user + system) / 1e6);
  }
  const peakMb = (memoryKb('VmHWM') - loadedKb) / 1e3;
  return { cpuSeconds: median(cpuSeconds), peakMb, loadedMb: loadedKb / 1e3 };
}

function memoryKb(field: string): number {
  const status = readFileSync('/proc/self/status', 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
}

function middle(costs: readonly Cost[]): Cost {
  const of = (field: keyof Cost) => median(costs.map(cost => cost[field]));
  return { cpuSeconds: of('cpuSeconds'), peakMb: of('peakMb'), loadedMb: of('loadedMb') };
}

/** Its own: service.ts would stand in the memory that is measured. */
function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;
}

function describe({ cpuSeconds, peakMb, loadedMb }: Cost): string {
  const memory = `${peakMb.toFixed(0)} MB above ${loadedMb.toFixed(0)} MB`;
  return `${cpuSeconds.toFixed(1)} s of processor time a run, ${memory}`;
}
