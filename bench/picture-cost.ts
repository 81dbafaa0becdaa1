/**
 * Measures what an image costs beside the models: processor time of picture workers, node and
 * control plane, by kind of picture. Pictures go through the service over REST as a caller sends
 * them, and their cut-outs come back. With `--beside` the service of another checkout takes turns.
 *
 * Memory is what the node with its children holds at the end (PSS, bytes).
 *
 * node bench/picture-cost.ts [FOLDER OF PHOTOS] [--beside CHECKOUT] [--images 12] [--rounds 3]
 *   [--callers 2] [--kinds '512 px PNG to PNG']
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { spentBy } from './card/service-load.ts';
import { KINDS, photosOf } from './photos.ts';
import { PROCESS_ROLES, type ProcessRole } from './processes.ts';
import { writeResults } from './results.ts';
import { median, type Service } from './service.ts';

/** Idle processes take this long, so that their cost can be told from that of images. */
const IDLE_MS = 5000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    beside: { type: 'string' },
    images: { type: 'string', default: '12' },
    rounds: { type: 'string', default: '3' },
    callers: { type: 'string', default: '2' },
    kinds: { type: 'string', multiple: true },
  },
});
const images = Number(values.images);
const callers = Number(values.callers);
const kinds = KINDS.filter(({ name }) => values.kinds?.includes(name) ?? true);

/** Opens the service of a checkout with that checkout's own programs. */
async function openFrom(checkout: string): Promise<Service> {
  const { openService } = await import(path.join(path.resolve(checkout), 'bench/service.ts'));
  return await (openService as () => Promise<Service>)();
}

type Cost = Record<ProcessRole | 'bytes', number>;

async function costOf(service: Service, files: readonly Buffer[], format: string): Promise<Cost> {
  const before = service.times();
  let next = 0;
  let bytes = 0;
  const caller = async () => {
    while (next < images) {
      const file = files[next++ % files.length]!;
      const answer = await service.cutOut(file, format);
      bytes += answer.file.length;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  const { cpuMs: spent } = spentBy(before, service.times());
  const each = PROCESS_ROLES.map(role => [role, spent[role] / images] as const);
  return { ...Object.fromEntries(each), bytes: bytes / images } as Cost;
}

async function idleCost(service: Service): Promise<Record<string, number>> {
  const before = service.times();
  await new Promise(resolve => setTimeout(resolve, IDLE_MS));
  const { cpuMs: spent } = spentBy(before, service.times());
  const aSecond = (ms: number) => (1000 * ms) / IDLE_MS;
  return { 'control plane': aSecond(spent['control plane']), node: aSecond(spent.node) };
}

const here = path.resolve(import.meta.dirname, '..');
const checkouts = [here, ...(values.beside === undefined ? [] : [values.beside])];
const services: Service[] = [];
try {
  for (const checkout of checkouts) services.push(await openFrom(checkout));
  const table: Record<string, Record<string, string | number>> = {};
  for (const kind of kinds) {
    const files = await photosOf(kind, positionals[0]);
    // The first round of each does not count, since V8 compiles then.
    for (const service of services) await costOf(service, files, kind.format);
    const rounds: Cost[][] = services.map(() => []);
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const [at, service] of services.entries()) {
        rounds[at]!.push(await costOf(service, files, kind.format));
      }
    }
    const costs = [...PROCESS_ROLES, 'bytes' as const].map(of => {
      const [mine = 0, other] = rounds.map(each => median(each.map(cost => cost[of])));
      const shown = Math.round(mine);
      return [of, other === undefined ? shown : `${shown} (${(mine / other).toFixed(2)})`];
    });
    table[kind.name] = Object.fromEntries(costs);
    console.table({ [kind.name]: table[kind.name] });
  }
  const idle: Record<string, number>[] = [];
  for (const service of services) idle.push(await idleCost(service));
  const nodeMemory = services.map(service => service.nodeMemory().pss);
  const run = { photos: positionals[0] ?? 'drawn', images, callers, rounds: values.rounds };
  writeResults('picture-cost', { ...run, msAnImage: table, msASecondIdle: idle, nodeMemory });
} finally {
  for (const service of services) await service.close();
}
