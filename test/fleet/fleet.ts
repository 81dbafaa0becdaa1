/** Each process may have another version. Needs: object-storage. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { ROOT, requireNothingLeft } from '../running-service.ts';
import { at } from '../support/at.ts';
import { type Route, roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';
import type { Ground } from './ground.ts';
import { type InstalledVersion, runCommand, THIS_VERSION } from './installed-version.ts';
import { type Env, FleetControlPlane, FleetNode, type FleetProgram } from './program.ts';

const CREDITS = 1_000_000;
const KEY = /\bmk_\w+/;
const MODEL_CACHE = {
  MATTING_MODEL_DIR: path.join(ROOT, 'model-cache'),
  MATTING_CPU_RUNTIME: 'onnxruntime',
};

export interface FleetOptions {
  /** The first version; default: this tree. */
  readonly version?: InstalledVersion;
  readonly controlPlanes: number;
  readonly nodes: number;
  readonly model: 'tiny' | 'u2netp';
  /** @param directory shared by all processes, removed with the fleet */
  readonly openGround: (directory: string) => Promise<Ground>;
  /** Additional variables of all processes. */
  readonly env?: Env;
}

interface Opened {
  readonly directory: string;
  readonly ground: Ground;
  readonly balancer: TcpProxy;
  readonly baseUrl: string;
  readonly env: Env;
}

export class Fleet {
  readonly account = 'shop';
  readonly ground: Ground;
  /** Leads to any control plane. */
  readonly baseUrl: string;
  readonly planes: readonly FleetControlPlane[];
  readonly nodes: readonly FleetNode[];
  apiKey = '';
  readonly #opened: Opened;

  private constructor(
    opened: Opened,
    planes: readonly FleetControlPlane[],
    nodes: readonly FleetNode[],
  ) {
    this.#opened = opened;
    this.ground = opened.ground;
    this.baseUrl = opened.baseUrl;
    this.planes = planes;
    this.nodes = nodes;
  }

  static async start(options: FleetOptions): Promise<Fleet> {
    const { version = THIS_VERSION, model } = options;
    if (model !== 'tiny') fetchWeights(model);
    const opened = await open(options, () => lead());
    const { directory, env } = opened;
    const ports = await findFreePorts(3 * options.controlPlanes + 2 * options.nodes);
    const planes = Array.from({ length: options.controlPlanes }, (_, index) => {
      const [http = 0, registry = 0, metrics = 0] = ports.splice(0, 3);
      const place = { ports: { http, registry, metrics }, nodes: options.nodes };
      return new FleetControlPlane(
        version,
        { name: `control-plane-${index}`, env, directory },
        place,
      );
    });
    const lead = roundRobin(planes.map(plane => plane.ports.http));
    const nodeEnv = {
      ...env,
      MATTING_REGISTRY_ADDRESS: planes.map(plane => `127.0.0.1:${plane.ports.registry}`).join(),
      ...(model === 'tiny' ? {} : { MATTING_MODEL: model, ...MODEL_CACHE }),
    };
    const nodes = Array.from({ length: options.nodes }, (_, index) => {
      const [grpc = 0, http = 0] = ports.splice(0, 2);
      const name = `node-${index}`;
      const own = { name, env: nodeEnv, directory };
      return new FleetNode(version, own, { ports: { grpc, http }, planes, model });
    });
    const fleet = new Fleet(opened, planes, nodes);
    try {
      await fleet.#setUp(version);
    } catch (error) {
      await fleet.kill();
      throw error;
    }
    return fleet;
  }

  get programs(): readonly FleetProgram[] {
    return [...this.planes, ...this.nodes];
  }

  plane(index: number): FleetControlPlane {
    return at(this.planes, index);
  }

  command(version: InstalledVersion, ...args: string[]): Promise<string> {
    return runCommand(version, args, this.#opened.env);
  }

  logTail(): string {
    return this.programs.map(program => program.logTail()).join('\n');
  }

  /** As a supervisor does; rejects if an exit code is not 0, or a process is left. */
  async close(): Promise<void> {
    for (const program of this.programs) await program.stop();
    await this.#release();
    await requireNothingLeft(this.#opened.directory);
  }

  async kill(): Promise<void> {
    for (const program of this.programs) await program.kill();
    await this.#release();
  }

  async #release(): Promise<void> {
    const { ground, balancer, directory } = this.#opened;
    await balancer.close();
    await ground.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 5 });
  }

  async #setUp(version: InstalledVersion): Promise<void> {
    await this.command(version, 'migrate');
    await this.command(version, 'accounts', 'create', this.account);
    await this.command(version, 'credits', 'grant', this.account, String(CREDITS));
    const said = await this.command(version, 'keys', 'create', '--account', this.account);
    this.apiKey = KEY.exec(said)?.[0] ?? '';
    if (this.apiKey === '') throw new Error(`no key: ${said}`);
    for (const program of this.programs) program.start();
    for (const program of this.programs) await program.untilReady();
  }
}

async function open(options: FleetOptions, lead: Route): Promise<Opened> {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-fleet-'));
  const ground = await options.openGround(directory);
  const balancer = await TcpProxy.open(lead);
  const baseUrl = `http://127.0.0.1:${balancer.port}`;
  const env = {
    ...ground.env,
    TMPDIR: directory,
    MATTING_DATA_DIR: directory,
    MATTING_DATABASE_URL: ground.databaseUrl,
    MATTING_BASE_URL: baseUrl,
    MATTING_NODE_TOKEN: randomBytes(16).toString('hex'),
    MATTING_SECRETS_KEY: randomBytes(32).toString('hex'),
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
    MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
    MATTING_READS_PER_MINUTE: '1000000',
    ...options.env,
  };
  return { directory, ground, balancer, baseUrl, env };
}

/** A fresh clone lacks them, and a node does not download them. */
function fetchWeights(model: string): void {
  const args = [path.join(ROOT, 'bin/matting.ts'), 'models', 'fetch', model];
  execFileSync(process.execPath, args, {
    env: { ...process.env, ...MODEL_CACHE },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}
