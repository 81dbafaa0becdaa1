/**
 * A service whose every process may be of another version: control planes and nodes on one database
 * and one storage, behind one address, set up by the commands that operators use.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findFreePorts } from '../../bin/free-ports.ts';
import type { ChaosGround } from '../chaos/chaos-ground.ts';
import { Balancer } from '../e2e/balancer.ts';
import { at } from '../support/at.ts';
import { requireNothingLeft } from '../support/running-service.ts';
import { type InstalledVersion, runCommand } from './installed-version.ts';
import {
  type Env,
  TINY_PLAN,
  UpgradableControlPlane,
  UpgradableNode,
  type UpgradableProgram,
} from './upgradable-program.ts';

const CREDITS = 1_000_000;
const ACCOUNT = 'shop';
/** As the command prints it. */
const KEY = /\bmk_\w+/;

export interface FleetOptions {
  /** What everything is of at first. */
  readonly version: InstalledVersion;
  readonly controlPlanes: number;
  readonly nodes: number;
  /** `tiny`: the nodes are real, their model is not (test/support/tiny-plan.ts). */
  readonly model: 'tiny' | 'u2netp';
  /** Of u2netp: prepared weights. */
  readonly modelDir?: string;
  /** @param directory which all processes share, removed with the fleet */
  readonly openGround: (directory: string) => Promise<ChaosGround>;
}

interface Opened {
  readonly directory: string;
  readonly ground: ChaosGround;
  readonly balancer: Balancer;
  readonly baseUrl: string;
  /** Of control planes and of their commands. */
  readonly env: Env;
}

export class UpgradableFleet {
  readonly account = ACCOUNT;
  readonly ground: ChaosGround;
  /** Leads to any control plane. */
  readonly baseUrl: string;
  readonly planes: readonly UpgradableControlPlane[];
  readonly nodes: readonly UpgradableNode[];
  apiKey = '';
  readonly #opened: Opened;

  private constructor(
    opened: Opened,
    planes: readonly UpgradableControlPlane[],
    nodes: readonly UpgradableNode[],
  ) {
    this.#opened = opened;
    this.ground = opened.ground;
    this.baseUrl = opened.baseUrl;
    this.planes = planes;
    this.nodes = nodes;
  }

  static async start(options: FleetOptions): Promise<UpgradableFleet> {
    const { version } = options;
    const opened = await open(options);
    const { directory, balancer, env } = opened;
    const ports = await findFreePorts(3 * options.controlPlanes + 2 * options.nodes);
    const planes = Array.from({ length: options.controlPlanes }, (_, index) => {
      const [http = 0, registry = 0, metrics = 0] = ports.splice(0, 3);
      const place = { ports: { http, registry, metrics }, nodes: options.nodes };
      const own = { name: `control-plane-${index}`, env, directory };
      return new UpgradableControlPlane(version, own, place);
    });
    balancer.serve(planes.map(plane => plane.ports.http));
    const registries = planes.map(plane => `127.0.0.1:${plane.ports.registry}`).join();
    const nodes = Array.from({ length: options.nodes }, (_, index) => {
      const [grpc = 0, http = 0] = ports.splice(0, 2);
      const own = { ...env, MATTING_REGISTRY_ADDRESS: registries };
      return createNode(`node-${index}`, options, {
        env: own,
        directory,
        place: { ports: { grpc, http }, planes: () => planes },
      });
    });
    const fleet = new UpgradableFleet(opened, planes, nodes);
    try {
      await fleet.#setUp(version);
    } catch (error) {
      await fleet.kill();
      throw error;
    }
    return fleet;
  }

  get programs(): readonly UpgradableProgram[] {
    return [...this.planes, ...this.nodes];
  }

  plane(index: number): UpgradableControlPlane {
    return at(this.planes, index);
  }

  /** A command of the service as the operator gives it, of either version. */
  command(version: InstalledVersion, ...args: string[]): Promise<string> {
    return runCommand(version, args, this.#opened.env);
  }

  /** Ends all as a supervisor does; rejects where one does not end with 0, or a process is left. */
  async close(): Promise<void> {
    for (const program of this.programs) await program.stop();
    await this.#release();
    await requireNothingLeft(this.#opened.directory);
  }

  /** Ends all at once, after a failure. */
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
    await this.command(version, 'accounts', 'create', ACCOUNT);
    await this.command(version, 'credits', 'grant', ACCOUNT, String(CREDITS));
    const said = await this.command(version, 'keys', 'create', '--account', ACCOUNT);
    this.apiKey = KEY.exec(said)?.[0] ?? '';
    if (this.apiKey === '') throw new Error(`no key: ${said}`);
    for (const program of this.programs) program.start();
    for (const program of this.programs) await program.untilReady();
  }
}

async function open(options: FleetOptions): Promise<Opened> {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-fleet-'));
  const ground = await options.openGround(directory);
  const balancer = new Balancer();
  const baseUrl = await balancer.listen();
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
  };
  return { directory, ground, balancer, baseUrl, env };
}

function createNode(
  name: string,
  options: FleetOptions,
  own: {
    readonly env: Env;
    readonly directory: string;
    readonly place: ConstructorParameters<typeof UpgradableNode>[2];
  },
): UpgradableNode {
  const { model, modelDir } = options;
  const isTiny = model === 'tiny';
  const env = {
    ...own.env,
    ...(isTiny ? {} : { MATTING_MODEL: model }),
    MATTING_MODEL_DIR: (!isTiny && modelDir) || path.join(own.directory, name),
    MATTING_EXECUTION_PROVIDER: 'cpu',
    // Several of them share what one machine has.
    MATTING_ENGINES: '1',
    MATTING_ENGINE_THREADS: '1',
    MATTING_PICTURE_WORKERS: '1',
  };
  const args = isTiny ? TINY_PLAN : [];
  return new UpgradableNode(
    options.version,
    { name, args, env, directory: own.directory },
    own.place,
  );
}
