/**
 * The whole service for a measurement: its own ports and data directory, real weights, and a client
 * that costs little. Ends with `close`.
 */
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import path from 'node:path';
import type { Bootstrap } from '../bin/bootstrap.ts';
import { loadSupervisorConfig, type SupervisorConfig } from '../bin/config.ts';
import { fetchModels } from '../bin/fetch-models.ts';
import { findStackPorts, startStack } from '../bin/stack.ts';
import { Terminal } from '../bin/terminal.ts';
import { at } from '../test/support/at.ts';
import {
  cpuMsOf,
  descendants,
  type Memory,
  memoryOf,
  type Program,
  pidOf,
  type TimesByPid,
  timesOf,
} from './processes.ts';

export interface Answer {
  readonly status: number;
  readonly file: Buffer;
  readonly warnings: readonly string[];
  /** The time from the first byte sent to the job's JSON. */
  readonly answerMs: number;
  /** The time from the first byte sent to the last byte of the cut-out. */
  readonly totalMs: number;
  readonly serverTiming: string;
}

export interface Service {
  readonly baseUrl: string;
  /** host:port of the node's gRPC interface. */
  readonly nodeAddress: string;
  readonly nodeToken: string;
  nodeLog(): string;
  /** The account has credits for everything. */
  readonly apiKey: string;
  /** The node's own page is there, and its metrics. */
  readonly nodeHttpUrl: string;
  /** Sends a file and fetches its cut-out. Rejects on anything but 200. */
  cutOut(file: Buffer, format?: string): Promise<Answer>;
  /** Memory of the node's main process and all its children, bytes. */
  nodeMemory(): Memory;
  /** Processor time so far of the control plane, the node and all its children. */
  allCpuMs(): number;
  /** The same by process, of those that are alive. */
  times(): TimesByPid;
  close(): Promise<void>;
}

const CONTROL_PLANE: Program = { main: 'control-plane/main.ts', variable: 'MATTING_PORT' };
const NODE: Program = { main: 'inference-node/main.ts', variable: 'MATTING_NODE_HTTP_PORT' };
/** Nothing is under way any more. */
const CLOSE_MAX_MS = 20_000;
const LAST_LINES = 6;
const LINE_CHARACTERS_MAX = 300;
const NODE_TOKEN = 'a-node-token-for-the-bench';

/** @param signal ends a start that takes too long. */
export async function openService(
  env: Record<string, string> = {},
  signal = new AbortController().signal,
): Promise<Service> {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
  const given = loadSupervisorConfig({ ...process.env, ...env });
  const ports = await findStackPorts();
  const config = {
    ...given,
    host: '127.0.0.1',
    ports,
    nodes: [{ model: undefined, port: ports.node, httpPort: ports.nodeHttp }],
    dataDir,
    nodeToken: NODE_TOKEN,
    env: { ...given.env, MATTING_SUBMISSIONS_PER_MINUTE: '1000000', ...env },
  } satisfies SupervisorConfig;
  const { MATTING_EXECUTION_PROVIDER: provider } = { ...given.env, ...env };
  const models = async (starting: AbortSignal) => {
    // Prepares for the CPU; a node on a GPU prepares its own, from weights that are there.
    if (provider === 'cuda') return;
    await fetchModels(config, new Terminal(), starting);
  };
  const account = { name: 'bench', credits: 100_000_000 };
  const say = (line: string) => console.error(line);
  let apiKey: string | undefined;
  const onAccount = (made: Bootstrap) => {
    apiKey = made.apiKey;
  };
  const nodeLogFile = path.join(dataDir, 'logs/inference-node.log');
  const stack = await startStack(config, { models, account, onAccount, say }, signal).catch(
    error => {
      // The node's log says more than the error, and is removed with the directory.
      for (const line of lastLines(nodeLogFile)) say(line);
      rmSync(dataDir, { recursive: true, force: true });
      throw error;
    },
  );
  const controlPlanePid = () => pidOf(CONTROL_PLANE, config.ports.http);
  const nodePid = () => pidOf(NODE, config.ports.nodeHttp);
  return {
    baseUrl: stack.localUrl,
    nodeAddress: `127.0.0.1:${config.ports.node}`,
    nodeToken: NODE_TOKEN,
    nodeLog: () => readFileSync(nodeLogFile, 'utf8'),
    apiKey: apiKey ?? '',
    nodeHttpUrl: `http://127.0.0.1:${config.ports.nodeHttp}`,
    cutOut: (file, format = 'png') => cutOut(stack.localUrl, apiKey ?? '', file, format),
    nodeMemory: () => memoryOf(nodePid()),
    allCpuMs: () => {
      const pids = [controlPlanePid(), nodePid(), ...descendants(nodePid())];
      return pids.reduce((sum, pid) => sum + cpuMsOf(pid), 0);
    },
    times: () => timesOf(controlPlanePid(), nodePid()),
    close: async () => {
      const hurry = setTimeout(() => void stack.hurry(), CLOSE_MAX_MS);
      await stack.stop();
      clearTimeout(hurry);
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

function lastLines(file: string): string[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n').slice(-LAST_LINES);
  return lines.map(line => line.slice(0, LINE_CHARACTERS_MAX));
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
  const job = (await answer.json()) as { result?: { url: string; warnings: string[] } };
  const answerMs = performance.now() - startedAt;
  if (answer.status !== 200 || job.result === undefined) {
    throw new Error(`${answer.status}: ${JSON.stringify(job)}`);
  }
  const download = await fetch(job.result.url);
  const result = Buffer.from(await download.arrayBuffer());
  const totalMs = performance.now() - startedAt;
  const serverTiming = answer.headers.get('server-timing') ?? '';
  const { warnings } = job.result;
  return { status: answer.status, file: result, warnings, answerMs, totalMs, serverTiming };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? at(sorted, middle)
    : (at(sorted, middle - 1) + at(sorted, middle)) / 2;
}

/** A figure's worth depends on this. */
export function machine(): Record<string, string | number> {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
  };
}
