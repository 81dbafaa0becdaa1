/**
 * The ways to call ONNX Runtime: its binding to Node, and its C interface with each option
 * (docs/gpu.md). First in one process with several runs in flight on one session, then with engines
 * around it, then the whole service.
 */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import {
  C_INTERFACE_VARIABLE,
  cInterfaceOf,
  NODE_C_INTERFACE,
} from '../../inference-node/serving/providers/c-interface.ts';
import { RUNTIME_FOLDER_VARIABLE } from '../../inference-node/serving/providers/runtime-folder.ts';
import { measureCell } from './bare.ts';
import { type Card, shown } from './card.ts';
import type { InFlight } from './in-flight.ts';
import type { AddRow, CardOptions, Figures } from './options.ts';
import { measureService } from './service-load.ts';

const WAYS = ['binding', '', 'nhwc', 'blocking-waits', NODE_C_INTERFACE];
const IN_FLIGHT = [1, 2, 4];
const PROGRAM = path.join(import.meta.dirname, 'in-flight.ts');

export async function measureInterface(card: Card, addRow: AddRow): Promise<void> {
  const [graph] = card.options.graphs;
  if (graph === undefined) return;
  const model = await card.prepare(graph);
  for (const way of WAYS) {
    for (const inFlight of way === 'binding' ? [1] : IN_FLIGHT) {
      const cInterface = cInterfaceOf(envOf(card, way));
      const given = { model, cInterface, inFlight, each: card.options.each };
      await addRow(`${shownOf(way)}, in flight ${inFlight}`, () => measureAlone(card, given));
    }
  }
  for (const way of ['binding', NODE_C_INTERFACE]) {
    for (const engines of [1, 2]) {
      const measure = () => measureCell(card, graph, engines, envOf(card, way));
      await addRow(`${shownOf(way)}, engines ${engines}`, measure);
    }
  }
  const options: CardOptions = { ...card.options, plans: ['standard'], formats: ['png'] };
  // On a CPU a node has no choice.
  const ways = options.provider === 'cpu' ? ['binding'] : ['binding', 'c'];
  for (const way of ways) await measureService({ ...card, options }, addRow, way);
}

const shownOf = (way: string) => (way === 'binding' ? way : `C interface ${way}`.trim());

function envOf({ engineEnv }: Card, way: string): Record<string, string> {
  return way === 'binding' ? engineEnv : { ...engineEnv, [C_INTERFACE_VARIABLE]: way };
}

/** Of one process, which has nothing else to do. */
async function measureAlone(card: Card, given: InFlight): Promise<Figures> {
  const { [RUNTIME_FOLDER_VARIABLE]: folder, ...env } = card.engineEnv;
  const args = [PROGRAM, ...(folder === undefined ? [] : [folder]), JSON.stringify(given)];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    env: { ...env, UV_THREADPOOL_SIZE: String(given.inFlight) },
    signal: card.ending,
  });
  const toMs = performance.now();
  const figures = Object.entries(JSON.parse(stdout) as Record<string, number>);
  const alone = Object.fromEntries(figures.map(([name, value]) => [name, shown(value)]));
  return { ...alone, ...card.gpuBetween(toMs - 1000 * given.each, toMs) };
}
