/**
 * The whole service for a measurement: its own ports and data directory, real weights, and a client
 * that costs little. Ends with `close`.
 */
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import path from 'node:path';
import { loadSupervisorConfig } from '../bin/config.ts';
import { fetchModels } from '../bin/fetch-models.ts';
import { type Bootstrap, findStackPorts, startStack } from '../bin/stack.ts';
import { Terminal } from '../bin/terminal.ts';
import { at } from '../test/support/at.ts';

export interface Answer {
  readonly status: number;
  readonly file: Buffer;
  /** From the first byte sent to the job's JSON. */
  readonly answerMs: number;
  /** From the first byte sent to the last byte of the cut-out. */
  readonly totalMs: number;
  readonly serverTiming: string;
}

export interface Service {
  readonly baseUrl: string;
  /** host:port of the node's gRPC interface. */
  readonly nodeAddress: string;
  readonly nodeToken: string;
  /** Sends a file and fetches its cut-out. Rejects on anything but 200. */
  cutOut(file: Buffer, format?: string): Promise<Answer>;
  /** Memory of the node's main process and all its children, bytes. */
  nodeMemory(): { readonly rss: number; readonly pss: number; readonly processes: number };
  /** Processor time so far of the two main processes, without the node's children. */
  mainCpuMs(): MainCpuMs;
  /** Processor time so far of the control plane, the node and all its children. */
  allCpuMs(): number;
  close(): Promise<void>;
}

export interface MainCpuMs {
  readonly controlPlane: number;
  readonly node: number;
}

const CONTROL_PLANE = { main: 'control-plane/src/main.ts', variable: 'MATTING_PORT' } as const;
const NODE = { main: 'inference-node/src/main.ts', variable: 'MATTING_NODE_HTTP_PORT' } as const;
const NODE_TOKEN = 'a-node-token-for-the-bench';

export async function openService(env: Record<string, string> = {}): Promise<Service> {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
  const given = loadSupervisorConfig({ ...process.env, ...env });
  const config = {
    ...given,
    host: '127.0.0.1',
    ports: await findStackPorts(),
    dataDir,
    nodeToken: NODE_TOKEN,
    env: { ...given.env, MATTING_SUBMISSIONS_PER_MINUTE: '1000000', ...env },
  };
  const { signal } = new AbortController();
  const models = async (starting: AbortSignal) => {
    await fetchModels(config, new Terminal(), starting);
  };
  const account = { name: 'bench', credits: 100_000 };
  const say = (line: string) => console.error(line);
  let apiKey: string | undefined;
  const onAccount = (made: Bootstrap) => {
    apiKey = made.apiKey;
  };
  const stack = await startStack(config, { models, account, onAccount, say }, signal);
  return {
    baseUrl: stack.localUrl,
    nodeAddress: `127.0.0.1:${config.ports.node}`,
    nodeToken: NODE_TOKEN,
    cutOut: (file, format = 'png') => cutOut(stack.localUrl, apiKey ?? '', file, format),
    nodeMemory: () => nodeMemory(pidOf(NODE, config.ports.nodeHttp)),
    mainCpuMs: () => ({
      controlPlane: cpuMsOf(pidOf(CONTROL_PLANE, config.ports.http)),
      node: cpuMsOf(pidOf(NODE, config.ports.nodeHttp)),
    }),
    allCpuMs: () => {
      const node = pidOf(NODE, config.ports.nodeHttp);
      const pids = [pidOf(CONTROL_PLANE, config.ports.http), node, ...descendants(node)];
      return pids.reduce((sum, pid) => sum + cpuMsOf(pid), 0);
    },
    close: async () => {
      await stack.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

async function cutOut(
  baseUrl: string,
  apiKey: string,
  file: Buffer,
  format: string,
): Promise<Answer> {
  const body = `{"image_base64":"${file.toString('base64')}","output_format":"${format}"}`;
  const startedAt = performance.now();
  const answer = await fetch(`${baseUrl}/v1/matting`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'idempotency-key': randomUUID(),
      'content-type': 'application/json',
    },
    body,
  });
  const job = (await answer.json()) as { result?: { url: string } };
  const answerMs = performance.now() - startedAt;
  if (answer.status !== 200 || job.result === undefined) {
    throw new Error(`${answer.status}: ${JSON.stringify(job)}`);
  }
  const download = await fetch(job.result.url);
  const result = Buffer.from(await download.arrayBuffer());
  const totalMs = performance.now() - startedAt;
  const serverTiming = answer.headers.get('server-timing') ?? '';
  return { status: answer.status, file: result, answerMs, totalMs, serverTiming };
}

/** Its children are found by their parent. */
function nodeMemory(root: number): { rss: number; pss: number; processes: number } {
  const pids = [root, ...descendants(root)];
  let rss = 0;
  let pss = 0;
  for (const pid of pids) {
    const rollup = `/proc/${pid}/smaps_rollup`;
    if (!existsSync(rollup)) continue;
    const text = readFileSync(rollup, 'utf8');
    rss += 1024 * Number(/^Rss:\s+(\d+)/m.exec(text)?.[1] ?? 0);
    pss += 1024 * Number(/^Pss:\s+(\d+)/m.exec(text)?.[1] ?? 0);
  }
  return { rss, pss, processes: pids.length };
}

function processes(): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number);
}

function descendants(parent: number): number[] {
  const children = processes().filter(pid => {
    const stat = existsSync(`/proc/${pid}/stat`) ? readFileSync(`/proc/${pid}/stat`, 'utf8') : '';
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent;
  });
  return children.flatMap(pid => [pid, ...descendants(pid)]);
}

/** A program is found by the port that it was given. */
function pidOf({ main, variable }: typeof NODE | typeof CONTROL_PLANE, port: number): number {
  const found = processes().find(pid => {
    try {
      return (
        readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(main) &&
        readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`\0${variable}=${port}\0`)
      );
    } catch {
      return false; // gone since the listing, or another user's
    }
  });
  if (found === undefined) throw new Error(`${main} was not found`);
  return found;
}

/** Processor time of all its threads, not of its children. */
export function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // Fields 14 and 15, in ticks of 10 ms; the second may hold blanks.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? at(sorted, middle)
    : (at(sorted, middle - 1) + at(sorted, middle)) / 2;
}

/** What a figure is worth depends on this. */
export function machine(): Record<string, string | number> {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
  };
}
