/** Under a supervisor; each start may have another version. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '../support/processes.ts';
import { type Env, Program } from '../support/program.ts';
import { type InstalledVersion, mainOf } from './installed-version.ts';

export type { Env } from '../support/program.ts';

const RESTART_MS = 200;
const READY_MS_MAX = 240_000;

export interface ProgramOptions {
  readonly name: string;
  /** Node's, relative to the version's root; default: the program's own. */
  readonly args?: readonly string[];
  readonly env: Env;
  readonly directory: string;
  readonly imports?: readonly string[];
  /** False: nobody restarts it. */
  readonly supervised?: boolean;
}

export abstract class FleetProgram extends Program {
  readonly #argsOf: (version: InstalledVersion) => readonly string[];
  #version: InstalledVersion;
  readonly #hasSupervisor: boolean;
  #supervised: Promise<void> = Promise.resolve();
  #ending = false;
  #deaths = 0;

  constructor(
    version: InstalledVersion,
    { name, args, env, imports = [], supervised = true }: ProgramOptions,
    mainArgsOf: (version: InstalledVersion) => readonly string[],
  ) {
    const command = ['sh', 'bin/node24'];
    const first = imports.flatMap(file => ['--import', file]);
    const argsOf = (of: InstalledVersion) => [...first, ...mainArgsOf(of)];
    super(name, args ?? argsOf(version), env, { root: version.root, command });
    this.#version = version;
    this.#hasSupervisor = supervised;
    this.#argsOf = args === undefined ? argsOf : () => args;
  }

  get version(): InstalledVersion {
    return this.#version;
  }

  /** @param more variables for this start, not for restarts */
  override start(more: Env = {}): void {
    this.#ending = !this.#hasSupervisor;
    super.start(more);
    this.#supervised = this.exited.then(async () => {
      if (this.#ending) return;
      this.#deaths += 1;
      await delay(RESTART_MS);
      if (!this.#ending) this.start();
    });
  }

  async become(version: InstalledVersion): Promise<void> {
    await this.stop();
    this.#version = version;
    this.root = version.root;
    this.args = this.#argsOf(version);
    this.start();
    await this.untilReady();
  }

  override async stop(): Promise<number | null> {
    this.#ending = true;
    const code = await super.stop();
    await this.#supervised;
    assert.equal(code, 0, `${this.name} of ${this.version.name}: ${this.logTail()}`);
    return code;
  }

  /** As a crash of its machine; false: it is not running. */
  hit(): boolean {
    return this.signal('SIGKILL');
  }

  /** As a crash of its machine. Resolves once restarted. */
  async die(): Promise<void> {
    const deaths = this.#deaths;
    this.hit();
    await until(() => this.#deaths > deaths, { timeoutMs: READY_MS_MAX, what: 'its end' });
    await this.untilReady();
  }

  override async kill(): Promise<void> {
    this.#ending = true;
    await super.kill();
    await this.#supervised;
  }

  async untilReady(): Promise<void> {
    await until(() => this.isReady().catch(() => false), {
      timeoutMs: READY_MS_MAX,
      what: `${this.name} of ${this.version.name} is ready`,
      detail: () => this.logTail(),
    });
  }

  protected abstract isReady(): Promise<boolean>;
}

interface ControlPlanePorts {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

export class FleetControlPlane extends FleetProgram {
  readonly ports: ControlPlanePorts;
  /** Routable nodes that it needs to be ready. */
  nodes: number;

  constructor(
    version: InstalledVersion,
    options: ProgramOptions,
    place: { readonly ports: ControlPlanePorts; readonly nodes: number },
  ) {
    const { ports, nodes } = place;
    const env = {
      ...options.env,
      MATTING_PORT: String(ports.http),
      MATTING_REGISTRY_PORT: String(ports.registry),
      MATTING_METRICS_PORT: String(ports.metrics),
    };
    super(version, { ...options, env }, of => [mainOf(of, 'control-plane')]);
    this.ports = ports;
    this.nodes = nodes;
  }

  get url(): string {
    return `http://127.0.0.1:${this.ports.http}`;
  }

  get metricsUrl(): string {
    return `http://127.0.0.1:${this.ports.metrics}`;
  }

  protected async isReady(): Promise<boolean> {
    const ready = await fetch(`${this.url}/readyz`);
    await ready.arrayBuffer();
    const page = await fetch(`${this.metricsUrl}/metrics`);
    const line = /^matting_control_nodes\{state="routable"\} (\d+)$/m.exec(await page.text());
    return ready.ok && Number(line?.[1] ?? 0) === this.nodes;
  }
}

export interface NodePorts {
  readonly grpc: number;
  readonly http: number;
}

/** Replaces the models only. */
const TINY_PLAN = ['--import', './test/support/tiny-plan-hook.ts'];

export class FleetNode extends FleetProgram {
  readonly ports: NodePorts;
  /** Which must know a node before it counts as ready. */
  readonly #planes: readonly FleetControlPlane[];

  /** @param model `tiny`: a real node without its model (test/support/tiny-plan.ts) */
  constructor(
    version: InstalledVersion,
    options: ProgramOptions,
    place: {
      readonly ports: NodePorts;
      readonly planes: readonly FleetControlPlane[];
      readonly model: 'tiny' | 'u2netp';
    },
  ) {
    const env = {
      MATTING_NODE_ID: options.name,
      MATTING_NODE_PORT: String(place.ports.grpc),
      MATTING_NODE_HTTP_PORT: String(place.ports.http),
      MATTING_EXECUTION_PROVIDER: 'cpu',
      // Several nodes share one machine.
      MATTING_ENGINES: '1',
      MATTING_ENGINE_THREADS: '1',
      MATTING_PICTURE_WORKERS: '1',
      MATTING_MODEL_DIR: path.join(options.directory, options.name),
      ...options.env,
    };
    const model = place.model === 'tiny' ? TINY_PLAN : [];
    super(version, { ...options, env }, of => [...model, mainOf(of, 'inference-node')]);
    this.ports = place.ports;
    this.#planes = place.planes;
  }

  protected async isReady(): Promise<boolean> {
    const ready = await fetch(`http://127.0.0.1:${this.ports.http}/readyz`);
    await ready.arrayBuffer();
    return ready.ok;
  }

  override async untilReady(): Promise<void> {
    await super.untilReady();
    for (const plane of this.#planes) await plane.untilReady();
  }
}
