/**
 * A whole service of real processes whose every part can be killed and comes back: control planes
 * and nodes on fixed ports, as a supervisor would keep them, on the ground that a storm has chosen.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findFreePorts } from '../../bin/free-ports.ts';
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import { openStores, type Stores } from '../../control-plane/src/store/stores.ts';
import { SILENT_LOG } from '../support/database.ts';
import { descendantsOf, ROOT, requireNothingLeft, until } from '../support/running-service.ts';
import type { ChaosGround, GroundVictim } from './chaos-ground.ts';
import type { SeededRandom } from './seeded-random.ts';

const CONTROL_PLANE_MAIN = path.join(ROOT, 'control-plane/src/main.ts');
const NODE_MAIN = path.join(ROOT, 'inference-node/src/main.ts');
/** In place of the models of a node. */
const TINY_PLAN_HOOK = path.join(ROOT, 'test/support/tiny-plan-hook.ts');
const MODEL = 'u2netp';
const MODEL_DIR = path.join(ROOT, 'model-cache');
/** As long as a supervisor takes to notice. */
const RESTART_MS = 200;
const READY_TIMEOUT_MS = 120_000;

export type Victim = 'control plane' | 'node' | 'engine' | 'picture worker' | GroundVictim;

/** One program that is started again whenever it ends, until it is told to end. */
class Kept {
  readonly name: string;
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #log: number;
  #child: ChildProcess | undefined;
  #ending = false;
  #gone: Promise<unknown> = Promise.resolve();

  constructor(
    name: string,
    args: readonly string[],
    env: Readonly<Record<string, string>>,
    logFile: string,
  ) {
    this.name = name;
    this.#args = args;
    this.#env = env;
    this.#log = openSync(logFile, 'a');
  }

  start(): void {
    const child = spawn(process.execPath, this.#args, {
      cwd: ROOT,
      env: { PATH: process.env.PATH ?? '', ...this.#env },
      stdio: ['ignore', this.#log, this.#log],
    });
    this.#child = child;
    this.#gone = once(child, 'exit').then(async () => {
      if (this.#ending) return;
      await delay(RESTART_MS);
      if (!this.#ending) this.start();
    });
  }

  /** Undefined between its end and its next start. */
  get pid(): number | undefined {
    const child = this.#child;
    return child?.exitCode === null && child.signalCode === null ? child.pid : undefined;
  }

  /** False: it is not there to be hit. */
  signal(signal: NodeJS.Signals): boolean {
    return this.pid !== undefined && this.#child?.kill(signal) === true;
  }

  async end(): Promise<number | null | undefined> {
    this.#ending = true;
    this.signal('SIGTERM');
    await this.#gone;
    closeSync(this.#log);
    return this.#child?.exitCode;
  }
}

export interface ChaosAccount {
  readonly accountId: string;
  readonly apiKey: string;
}

export interface ChaosFleetOptions {
  readonly controlPlanes: number;
  readonly nodes: number;
  /** `tiny`: the nodes are real, their model is not (test/support/tiny-plan.ts). */
  readonly model: 'u2netp' | 'tiny';
  /** @param directory which all processes share, removed with the fleet */
  readonly openGround: (directory: string) => Promise<ChaosGround>;
  /** Variables of the control planes, besides those that the fleet needs. */
  readonly env?: Readonly<Record<string, string>>;
}

type Env = Readonly<Record<string, string>>;

function controlPlane(
  index: number,
  directory: string,
  ports: Readonly<Record<'http' | 'registry' | 'metrics', number>>,
  env: Env,
  more: Env = {},
): Kept {
  const name = `control-plane-${index}`;
  const all = {
    ...env,
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_BASE_URL: 'http://links.example',
    MATTING_PORT: String(ports.http),
    MATTING_REGISTRY_PORT: String(ports.registry),
    MATTING_METRICS_PORT: String(ports.metrics),
    MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
    MATTING_READS_PER_MINUTE: '1000000',
    ...more,
  };
  return new Kept(name, [CONTROL_PLANE_MAIN], all, path.join(directory, `${name}.log`));
}

function node(
  index: number,
  directory: string,
  ports: Readonly<Record<'port' | 'http', number>>,
  env: Env,
  model: ChaosFleetOptions['model'],
): Kept {
  const name = `node-${index}`;
  const models =
    model === MODEL
      ? { MATTING_MODEL: MODEL, MATTING_MODEL_DIR: MODEL_DIR }
      : { MATTING_MODEL_DIR: path.join(directory, name) };
  const all = {
    ...env,
    ...models,
    MATTING_NODE_ID: name,
    MATTING_NODE_PORT: String(ports.port),
    MATTING_NODE_HTTP_PORT: String(ports.http),
    MATTING_EXECUTION_PROVIDER: 'cpu',
    MATTING_ENGINES: '1',
    MATTING_ENGINE_THREADS: '1',
    MATTING_PICTURE_WORKERS: '2',
  };
  const args = model === MODEL ? [NODE_MAIN] : ['--import', TINY_PLAN_HOOK, NODE_MAIN];
  return new Kept(name, args, all, path.join(directory, `${name}.log`));
}

export class ChaosFleet {
  readonly directory: string;
  readonly stores: Stores;
  /** Base URLs of the control planes, without a trailing slash. */
  readonly urls: readonly string[];
  readonly apiKey: string;
  readonly accountId: string;
  readonly ground: ChaosGround;
  readonly #planes: readonly Kept[];
  readonly #nodes: readonly Kept[];

  private constructor(
    directory: string,
    ground: ChaosGround,
    stores: Stores,
    caller: ChaosAccount,
    planes: readonly { readonly kept: Kept; readonly url: string }[],
    nodes: readonly Kept[],
  ) {
    this.directory = directory;
    this.stores = stores;
    this.apiKey = caller.apiKey;
    this.accountId = caller.accountId;
    this.urls = planes.map(({ url }) => url);
    this.ground = ground;
    this.#planes = planes.map(({ kept }) => kept);
    this.#nodes = nodes;
  }

  static async start(options: ChaosFleetOptions): Promise<ChaosFleet> {
    if (options.model === MODEL) fetchWeights();
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-chaos-'));
    const ground = await options.openGround(directory);
    const stores = await openStores(ground.databaseUrl, {
      log: SILENT_LOG,
      migrations: 'run',
      renderOutboxBody: () => '{}',
    });
    const caller = await createAccount(stores, 'chaos');
    const ports = await findFreePorts(3 * options.controlPlanes + 2 * options.nodes);
    const common = {
      MATTING_DATA_DIR: directory,
      MATTING_NODE_TOKEN: `node-${randomUUID()}`,
    };
    const planes = Array.from({ length: options.controlPlanes }, (_, index) => {
      const [http = 0, registry = 0, metrics = 0] = ports.splice(0, 3);
      const env = { ...common, ...ground.env, MATTING_DATABASE_URL: ground.databaseUrl };
      const kept = controlPlane(index, directory, { http, registry, metrics }, env, options.env);
      return { kept, registry, url: `http://127.0.0.1:${http}` };
    });
    const registries = planes.map(({ registry }) => `127.0.0.1:${registry}`).join();
    const nodes = Array.from({ length: options.nodes }, (_, index) => {
      const [port = 0, http = 0] = ports.splice(0, 2);
      const env = { ...common, MATTING_REGISTRY_ADDRESS: registries };
      return node(index, directory, { port, http }, env, options.model);
    });
    const fleet = new ChaosFleet(directory, ground, stores, caller, planes, nodes);
    for (const kept of [...fleet.#planes, ...fleet.#nodes]) kept.start();
    for (const url of fleet.urls) {
      await until(() => isReady(url), {
        timeoutMs: READY_TIMEOUT_MS,
        what: `${url} is ready`,
        detail: () => fleet.logTail(),
      });
    }
    return fleet;
  }

  /** With credits for everything it will ever submit. */
  createAccount(name: string): Promise<ChaosAccount> {
    return createAccount(this.stores, name);
  }

  /** Rows of jobs that succeeded and did not expire; of one account, or of all. */
  async succeededJobs(accountId?: string): Promise<number> {
    const database = await openDatabase(this.ground.databaseUrl, { log: SILENT_LOG });
    try {
      let select = database.kysely
        .selectFrom('jobs')
        .select(eb => eb.fn.countAll<number>().as('jobs'))
        .where('state', '=', 'succeeded');
      if (accountId !== undefined) select = select.where('account_id', '=', accountId);
      return Number((await select.executeTakeFirstOrThrow()).jobs);
    } finally {
      await database.close();
    }
  }

  /** False: there was nothing of the kind to hit just now. */
  async kill(victim: Victim, random: SeededRandom): Promise<boolean> {
    switch (victim) {
      case 'control plane':
        return random.pick(this.#planes)?.signal('SIGKILL') ?? false;
      case 'node':
        return random.pick(this.#nodes)?.signal('SIGKILL') ?? false;
      case 'engine':
        return this.#killChild('engine-child', random);
      case 'picture worker':
        return this.#killChild('picture-worker', random);
      case 'database':
      case 'store':
        await this.ground.kill(victim, random);
        return true;
    }
  }

  /** The last lines of every program, for a failure's message. */
  logTail(): string {
    return [...this.#planes, ...this.#nodes]
      .map(({ name }) => {
        const text = readFileSync(path.join(this.directory, `${name}.log`), 'utf8');
        return `--- ${name}\n${text.split('\n').slice(-15).join('\n')}`;
      })
      .join('\n');
  }

  /** SIGTERM to all; rejects where one does not end with 0, or a process is left over. */
  async close(): Promise<void> {
    await this.stores.close();
    const kept = [...this.#planes, ...this.#nodes];
    const codes = await Promise.all(kept.map(program => program.end()));
    await this.ground.close();
    await requireNothingLeft(this.directory);
    const bad = kept.filter((_, index) => codes[index] !== 0).map(({ name }) => name);
    if (bad.length > 0) throw new Error(`did not end with 0: ${bad.join()}\n${this.logTail()}`);
    rmSync(this.directory, { recursive: true, force: true });
  }

  #killChild(program: string, random: SeededRandom): boolean {
    const children = this.#nodes
      .flatMap(({ pid }) => (pid === undefined ? [] : descendantsOf(pid)))
      .filter(({ command }) => command.includes(program));
    const child = random.pick(children);
    if (child === undefined) return false;
    try {
      process.kill(child.pid, 'SIGKILL');
      return true;
    } catch {
      return false; // ended since the listing
    }
  }
}

/** A clone that ran nothing yet has none; a node does not fetch them. */
function fetchWeights(): void {
  const { status, stderr } = spawnSync(
    process.execPath,
    [path.join(ROOT, 'bin/matting.ts'), 'models', 'fetch', MODEL],
    { env: { ...process.env, MATTING_MODEL_DIR: MODEL_DIR }, encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`the weights of ${MODEL} could not be fetched: ${stderr}`);
}

async function createAccount(stores: Stores, name: string): Promise<ChaosAccount> {
  const account = await stores.accounts.create(name);
  if (account === undefined) throw new Error('the chaos needs a database of its own');
  await stores.ledger.grant(account.id, 1_000_000, name);
  const { token } = await stores.apiKeys.create(account.id, name);
  return { accountId: account.id, apiKey: token };
}

async function isReady(url: string): Promise<boolean> {
  return fetch(`${url}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  );
}
