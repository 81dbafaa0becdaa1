/** A small service by docs/install.md, watched by Prometheus. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { SerialFn } from 'ava';
import sharp from 'sharp';
import { submitTo } from '../../control-plane/core/test/support/replicas.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { FleetControlPlane, FleetNode } from '../fleet/program.ts';
import { PrometheusServer, skipWithoutPrometheus } from '../monitoring/prometheus-server.ts';
import { ROOT, type WireJob } from '../running-service.ts';
import { at } from '../support/at.ts';
import { skipReason } from '../support/database.ts';
import { until } from '../support/processes.ts';
import type { Env } from '../support/program.ts';
import { RightsDatabase } from './rights-database.ts';

export type { Env } from '../support/program.ts';

const execute = promisify(execFile);
const READY_MS_MAX = 300_000;
export const OPERATOR_KEY = 'operator-key-of-the-runbook-0123456789';
export const SECRETS_KEY = 'ab'.repeat(32);
export const NODE_TOKEN = 'node-token-of-the-runbook';

export interface InstallationOptions {
  readonly planes?: number;
  readonly nodes?: number;
  readonly env?: Env;
  readonly nodeEnv?: Env;
  /** Preloaded by control planes. */
  readonly planeImports?: readonly string[];
  /** Preloaded by nodes, after the tiny plan. */
  readonly nodeImports?: readonly string[];
  /** Default: a directory of its own. */
  readonly storage?: string;
  /** Interval and timeout of scrapes; default: 1 s. */
  readonly scrapeS?: number;
  /** False: tests start the nodes. */
  readonly startNodes?: boolean;
}

export interface Command {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export const SKIP = skipReason('mysql') || skipWithoutPrometheus();

export class Installation {
  directory = '';
  storage = '';
  database!: RightsDatabase;
  planes: readonly FleetControlPlane[] = [];
  nodes: readonly FleetNode[] = [];
  prometheus!: PrometheusServer;
  apiKey = '';
  #env: Env = {};

  /** Before a file's tests, closed after them. */
  use(test: SerialFn, options: InstallationOptions | (() => InstallationOptions) = {}) {
    test.before(async () => {
      await this.#open(typeof options === 'function' ? options() : options);
    });
    test.after.always(() => this.#close());
  }

  /** Replaces it for a procedure with other needs. */
  async reopen(options: InstallationOptions): Promise<void> {
    await this.#close();
    await this.#open(options);
  }

  /** Account `shop` has credits; every program is ready. */
  async #open(options: InstallationOptions): Promise<void> {
    const { planes: planeCount = 1, nodes: nodeCount = 1 } = options;
    this.directory = mkdtempSync(path.join(tmpdir(), 'matting-runbook-'));
    this.storage = options.storage ?? path.join(this.directory, 'storage');
    mkdirSync(this.storage, { recursive: true });
    const command = `#!/bin/sh\nexec "${process.execPath}" bin/matting.ts "$@"\n`;
    writeFileSync(path.join(this.directory, 'matting'), command, { mode: 0o755 });
    this.database = await RightsDatabase.create();
    this.#env = {
      MATTING_DATA_DIR: this.storage,
      MATTING_DATABASE_URL: this.database.url,
      MATTING_SECRETS_KEY: SECRETS_KEY,
      MATTING_NODE_TOKEN: NODE_TOKEN,
      MATTING_OPERATOR_KEY: OPERATOR_KEY,
      TMPDIR: this.directory,
      ...options.env,
    };
    const ports = await findFreePorts(3 * planeCount + 2 * nodeCount);
    const common = { directory: this.directory, supervised: false };
    this.planes = Array.from({ length: planeCount }, (_, index) => {
      const [http = 0, registry = 0, metrics = 0] = ports.splice(0, 3);
      const env = { ...this.#env, MATTING_BASE_URL: `http://127.0.0.1:${http}` };
      const own = { ...common, name: `control-${index}`, env, imports: options.planeImports ?? [] };
      const place = { ports: { http, registry, metrics }, nodes: nodeCount };
      return new FleetControlPlane(THIS_VERSION, own, place);
    });
    const registries = this.planes.map(plane => `127.0.0.1:${plane.ports.registry}`).join();
    const nodeEnv = {
      MATTING_NODE_TOKEN: NODE_TOKEN,
      MATTING_REGISTRY_ADDRESS: registries,
      TMPDIR: this.directory,
      ...options.nodeEnv,
    };
    this.nodes = Array.from({ length: nodeCount }, (_, index) => {
      const [grpc = 0, http = 0] = ports.splice(0, 2);
      const imports = options.nodeImports ?? [];
      const own = { ...common, name: `node-${index}`, env: nodeEnv, imports };
      const place = { ports: { grpc, http }, planes: this.planes, model: 'tiny' } as const;
      return new FleetNode(THIS_VERSION, own, place);
    });
    const targets = {
      'matting-control': this.planes.map(({ ports: { metrics } }) => `127.0.0.1:${metrics}`),
      'matting-node': this.nodes.map(({ ports: { http } }) => `127.0.0.1:${http}`),
    };
    this.prometheus = await PrometheusServer.start(targets, options.scrapeS);
    await this.#begin(options.startNodes ?? true);
    await this.ready(options.startNodes === false ? 0 : this.nodes.length);
    // Prometheus sees no increase in a counter's first sample.
    await this.until('Prometheus has seen the control planes', async () => {
      const seen = await this.prometheus.query('up{job="matting-control"} == 1');
      return seen.length === this.planes.length;
    });
  }

  /** First the setup commands of docs/install.md, then the programs. */
  async #begin(startNodes: boolean): Promise<void> {
    const asOwner = { MATTING_DATABASE_URL: this.database.migratorUrl };
    await this.matting('migrate', asOwner);
    await this.matting('accounts create shop');
    await this.matting('credits grant shop 100000');
    this.apiKey = await this.createKey('shop', 'runbook');
    for (const program of [...this.planes, ...(startNodes ? this.nodes : [])]) program.start();
  }

  /** Each control plane has `nodes` routable nodes. */
  async ready(nodes = this.nodes.length): Promise<void> {
    for (const plane of this.planes) {
      plane.nodes = nodes;
      await plane.untilReady();
    }
  }

  /** In the project's directory, with the control planes' variables. */
  async run(line: string, more: Env = {}): Promise<Command> {
    const PATH = `${this.directory}:${process.env.PATH}`;
    const env = { PATH, HOME: this.directory, ...this.#env, ...more };
    const options = { cwd: ROOT, env, encoding: 'utf8' as const };
    try {
      const { stdout, stderr } = await execute('sh', ['-c', line], options);
      return { code: 0, out: stdout, err: stderr };
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return { code, out: stdout, err: stderr };
    }
  }

  async matting(args: string, more: Env = {}): Promise<Command> {
    const done = await this.run(`matting ${args}`, more);
    assert.equal(done.code, 0, `matting ${args}: ${done.out}${done.err}`);
    return done;
  }

  async createKey(account: string, name: string): Promise<string> {
    const { out } = await this.matting(`keys create --account ${account} --name ${name}`);
    const key = /\bmk_\w+/.exec(out)?.[0] ?? '';
    assert.notEqual(key, '', out);
    return key;
  }

  async cutOut(body?: unknown): Promise<WireJob> {
    const job = await this.final(await this.submit(body));
    assert.equal(job.status, 'succeeded', JSON.stringify(job));
    return job;
  }

  /** With additional variables. */
  async restart(variables: Env = {}, meanwhile?: () => Promise<unknown>): Promise<void> {
    const plane = at(this.planes, 0);
    await plane.stop();
    await meanwhile?.();
    plane.start(variables);
    await this.ready();
  }

  /** On failure the message has the programs' logs. */
  until(
    what: string,
    holds: () => Promise<boolean> | boolean,
    timeoutMs = READY_MS_MAX,
  ): Promise<void> {
    let last: unknown = '';
    const now = async () => holds();
    const look = () =>
      now().catch(error => {
        last = error;
        return false;
      });
    return until(look, { timeoutMs, what, detail: () => `${last}\n${this.#logs()}` });
  }

  async post(
    body: unknown,
    { plane = 0, path: place = '/v1/matting/jobs', key = this.apiKey } = {},
  ) {
    const { url } = at(this.planes, plane);
    const response = await submitTo(url, key, body, { path: place });
    return { status: response.status, job: (await response.json()) as WireJob };
  }

  /** Asynchronous; returns the id. */
  async submit(body?: unknown): Promise<string> {
    const { status, job } = await this.post(body ?? { image_base64: await pictureBase64() });
    assert.equal(status, 202, JSON.stringify(job));
    return job.job_id;
  }

  async job(id: string, key = this.apiKey): Promise<WireJob> {
    const response = await fetch(`${this.planes[0]?.url}/v1/matting/jobs/${id}`, {
      headers: { authorization: `Bearer ${key}`, 'idempotency-key': randomUUID() },
    });
    return (await response.json()) as WireJob;
  }

  async final(id: string, key?: string): Promise<WireJob> {
    let job: WireJob | undefined;
    await this.until(`job ${id} is final`, async () => {
      job = await this.job(id, key);
      return job.status === 'succeeded' || job.status === 'failed';
    });
    return job!;
  }

  async #close(): Promise<void> {
    for (const program of [...this.nodes, ...this.planes]) await program.kill();
    await this.prometheus?.close();
    await this.database?.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  #logs(): string {
    return [...this.planes, ...this.nodes].map(program => program.logTail()).join('\n');
  }
}

/** @param brightness for the tiny plan: 0 takes no time, 1 about 0.1 s of an idle core */
export async function pictureBase64(width = 64, height = width, brightness = 0): Promise<string> {
  const level = Math.round(255 * brightness);
  const background = { r: level, g: level, b: level };
  const picture = sharp({ create: { width, height, channels: 3, background } });
  return (await picture.png().toBuffer()).toString('base64');
}
