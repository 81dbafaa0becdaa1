/**
 * What traces cost a control plane: processor time of a job by REST, its upload, its node's answer
 * and its caller in the same process, with traces off, on, and on with a caller that samples none.
 * Rounds in turn, so that what the machine does besides meets all alike; medians of the pairs. The
 * collector is a process of its own. Before, the price of asking for a span where there is none.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type Caller, pictureBody } from '../control-plane/core/test/support/replicas.ts';
import { Replicas } from '../control-plane/test/programs.ts';
import { traced } from '../program/tracing/active-span.ts';

const ROUNDS = Number(process.argv[2] ?? 20);
const JOBS_A_ROUND = Number(process.argv[3] ?? 100);
const JOBS_AT_ONCE = 4;
const CALLS = 5_000_000;

const COLLECTOR = `
  import { createServer } from 'node:http';
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.setHeader('content-type', 'application/json').end('{}'));
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));`;

async function startCollector(): Promise<{ readonly child: ChildProcess; readonly url: string }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', COLLECTOR], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (child.stdout === null) throw new Error('a collector without an output');
  const [port] = await once(child.stdout, 'data');
  return { child, url: `http://127.0.0.1:${String(port).trim()}` };
}

interface Service {
  readonly replicas: Replicas;
  readonly caller: Caller;
}

async function openService(env: Record<string, string>): Promise<Service> {
  const replicas = await Replicas.open('sqlite', { replicas: 1, env });
  const caller = await replicas.createCaller(1_000_000);
  await replicas.addNode({ imagesMax: 16 });
  return { replicas, caller };
}

/** Milliseconds of processor time a job. */
async function round({ replicas, caller }: Service, flags?: string): Promise<number> {
  const before = process.cpuUsage();
  for (let done = 0; done < JOBS_A_ROUND; done += JOBS_AT_ONCE) {
    const jobs = Array.from({ length: JOBS_AT_ONCE }, async () => {
      const ids = `${randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}`;
      const headers = flags === undefined ? {} : { traceparent: `00-${ids}-${flags}` };
      const { status } = await replicas.post(caller, pictureBody(), { headers });
      if (status !== 200) throw new Error(`a job ended with ${status}`);
    });
    await Promise.all(jobs);
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / JOBS_A_ROUND;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] as number)
    : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

async function priceOfAsking(): Promise<number> {
  const done = Promise.resolve();
  const work = () => done;
  const begin = { name: 'claim' } as const;
  const timed = (call: () => unknown) => {
    const from = process.cpuUsage();
    for (let i = 0; i < CALLS; i += 1) call();
    const { user } = process.cpuUsage(from);
    return (user * 1000) / CALLS;
  };
  const pairs = Array.from({ length: 7 }, () => timed(() => traced(begin, work)) - timed(work));
  return median(pairs);
}

console.log(`asking for a span where there is none: ${(await priceOfAsking()).toFixed(1)} ns`);
const collector = await startCollector();
const on = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
const [plain, plainAgain, tracing] = [
  await openService({}),
  await openService({}),
  await openService(on),
];
const variants: Readonly<Record<string, () => Promise<number>>> = {
  off: () => round(plain),
  'off, again': () => round(plainAgain),
  'on, sampled': () => round(tracing, '01'),
  'on, not sampled': () => round(tracing, '00'),
};
const names = Object.keys(variants);
const taken = new Map(names.map(name => [name, [] as number[]]));
for (let index = -1; index < ROUNDS; index += 1) {
  // Each place in the round in turn; the first round warms up.
  const order = names.map((_, at) => names[(at + Math.max(0, index)) % names.length] as string);
  for (const name of order) {
    const ms = await (variants[name] as () => Promise<number>)();
    if (index >= 0) taken.get(name)?.push(ms);
  }
}
const off = taken.get('off') ?? [];
for (const [name, values] of taken) {
  const differences = values.map((ms, index) => ms - (off[index] as number));
  const least = Math.min(...values).toFixed(2);
  const apart = `${median(differences).toFixed(3)} ms beside off`;
  console.log(`${name}: median ${median(values).toFixed(2)} ms a job, least ${least}, ${apart}`);
}
for (const { replicas } of [plain, plainAgain, tracing]) await replicas.close();
collector.child.kill();
