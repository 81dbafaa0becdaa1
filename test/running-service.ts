/** `matting up` as a child process; `close` fails if a process is left. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findStackPorts } from '../bin/stack.ts';
import { until } from './support/processes.ts';
import { Program, ROOT } from './support/program.ts';
import { CACHE_ENV } from './support/started-env.ts';

export { ROOT } from './support/program.ts';

const START_TIMEOUT_MS = 240_000;
const GONE_TIMEOUT_MS = 60_000;

export interface WireJob {
  readonly job_id: string;
  readonly status: string;
  readonly status_url: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly credits: { readonly reserved: number; readonly charged: number };
  readonly result?: {
    readonly url: string;
    readonly format: string;
    readonly contentType: string;
    readonly sizeBytes: number;
    readonly width: number;
    readonly height: number;
    readonly expiresAt: string;
  };
  readonly error?: { readonly code: string; readonly detail: string; readonly retryable: boolean };
  readonly models?: readonly { readonly name: string; readonly role: string }[];
  readonly code?: string;
  readonly detail?: string;
  readonly retryable?: boolean;
}

export interface RestAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: WireJob;
}

export interface RunningService {
  readonly process: Program;
  readonly dataDir: string;
  readonly env: Readonly<Record<string, string>>;
  output(): string;
  readonly baseUrl: string;
  readonly apiKey: string;
  post(
    body: unknown,
    options?: { path?: string; key?: string; headers?: object },
  ): Promise<RestAnswer>;
  get(url: string): Promise<RestAnswer>;
  credits(): Promise<{ available: number; reserved: number }>;
  final(jobId: string, timeoutMs?: number): Promise<WireJob>;
  close(): Promise<void>;
}

const dataDirs: string[] = [];
process.once('exit', () => {
  for (const dataDir of dataDirs) rmSync(dataDir, { recursive: true, force: true });
});

/** Its own directory, removed with this process, and free ports. */
export async function isolatedEnv(extra: Record<string, string> = {}) {
  const ports = await findStackPorts();
  const dataDir = mkdtempSync(path.join(tmpdir(), 'matting-e2e-'));
  dataDirs.push(dataDir);
  const inherited = Object.fromEntries(
    Object.entries(process.env).filter(
      (entry): entry is [string, string] =>
        entry[1] !== undefined &&
        !/^(NODE_|MATTING_)/.test(entry[0]) &&
        // ava's channel to a test file.
        entry[0] !== 'NODE_TEST_CONTEXT',
    ),
  );
  const env: Record<string, string> = {
    ...inherited,
    ...CACHE_ENV,
    MATTING_PORT: String(ports.http),
    MATTING_REGISTRY_PORT: String(ports.registry),
    MATTING_METRICS_PORT: String(ports.metrics),
    MATTING_NODE_PORT: String(ports.node),
    MATTING_NODE_HTTP_PORT: String(ports.nodeHttp),
    MATTING_DATA_DIR: dataDir,
    MATTING_MODEL_DIR: path.join(ROOT, 'model-cache'),
    MATTING_MODEL: 'u2netp',
    // By default no start downloads and compares OpenVINO.
    MATTING_CPU_RUNTIME: process.env.MATTING_TEST_CPU_RUNTIME ?? 'onnxruntime',
    MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
    ...extra,
  };
  return { env, dataDir, ports };
}

export function spawnMatting(args: readonly string[], env: Record<string, string>, cwd = ROOT) {
  const main = path.join(ROOT, 'bin/matting.ts');
  const program = new Program('matting', [main, ...args], env, { root: cwd });
  program.start();
  return { program, exited: program.exited, output: () => program.output };
}

/** @param prepare fills its data directory before the start */
export async function startService(
  extra: Record<string, string> = {},
  prepare?: (dataDir: string) => void,
): Promise<RunningService> {
  const { env, dataDir } = await isolatedEnv(extra);
  prepare?.(dataDir);
  const { program, exited, output } = spawnMatting(['up'], env);
  await until(() => /Ready: .*[\s\S]*curl/.test(output()) || !program.running, {
    timeoutMs: START_TIMEOUT_MS,
    what: 'the service is ready',
    detail: output,
  });
  // A run's summary shows 600 characters, so the latest lines come first.
  assert.ok(program.running, output().trim().split('\n').reverse().join('\n'));
  const baseUrl = `http://127.0.0.1:${env.MATTING_PORT}`;
  const apiKey = /API key[^\n]*:\s+(\S+)/.exec(output())?.[1] ?? '';
  const authorization = `Bearer ${apiKey}`;

  const answerOf = async (response: Response): Promise<RestAnswer> => ({
    status: response.status,
    headers: response.headers,
    body: (await response.json()) as WireJob,
  });
  const get = async (url: string) =>
    answerOf(await fetch(url, { headers: { authorization, 'idempotency-key': randomUUID() } }));
  const service: RunningService = {
    process: program,
    dataDir,
    env,
    output,
    baseUrl,
    apiKey,
    get,
    post: async (body, options = {}) =>
      answerOf(
        await fetch(`${baseUrl}${options.path ?? '/v1/matting'}`, {
          method: 'POST',
          headers: {
            authorization,
            'idempotency-key': options.key ?? randomUUID(),
            'content-type': 'application/json',
            ...options.headers,
          },
          body: typeof body === 'string' ? body : JSON.stringify(body),
        }),
      ),
    credits: async () => {
      const { body } = await get(`${baseUrl}/v1/account`);
      return body.credits as unknown as { available: number; reserved: number };
    },
    final: async (jobId, timeoutMs = 60_000) => {
      let job: WireJob | undefined;
      await until(
        async () => {
          job = (await get(`${baseUrl}/v1/matting/jobs/${jobId}`)).body;
          return job.status !== 'queued' && job.status !== 'processing';
        },
        { timeoutMs, what: `job ${jobId} is final`, detail: () => JSON.stringify(job) },
      );
      return job as unknown as WireJob;
    },
    close: async () => {
      program.signal('SIGTERM');
      await exited;
      await requireNothingLeft(dataDir);
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
  return service;
}

/** Processes that name the data directory in environment or arguments, and their descendants. */
export function processesOf(dataDir: string): { pid: number; command: string }[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap(name => {
      try {
        const environment = readFileSync(`/proc/${name}/environ`, 'utf8');
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        return environment.includes(dataDir) || command.includes(dataDir)
          ? [{ pid: Number(name), command }]
          : [];
      } catch {
        return []; // ended since the listing
      }
    });
}

export async function requireNothingLeft(dataDir: string): Promise<void> {
  await until(() => processesOf(dataDir).length === 0, {
    timeoutMs: GONE_TIMEOUT_MS,
    what: 'no process is left over',
    detail: () => JSON.stringify(processesOf(dataDir)),
  });
}
