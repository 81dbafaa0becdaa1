/**
 * A whole service of real processes whose every part can be killed and comes back: control planes
 * and nodes on fixed ports, as a supervisor would keep them, on one MariaDB server and one storage
 * directory.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { findFreePorts } from '../../bin/free-ports.ts';
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import { openStores, type Stores } from '../../control-plane/src/store/stores.ts';
import { SILENT_LOG } from '../support/database.ts';
import { MariadbServer } from '../support/mariadb-server.ts';
import { descendantsOf, ROOT, requireNothingLeft, until } from '../support/running-service.ts';

const CONTROL_PLANE_MAIN = path.join(ROOT, 'control-plane/src/main.ts');
const NODE_MAIN = path.join(ROOT, 'inference-node/src/main.ts');
const MODEL = 'u2netp';
const MODEL_DIR = path.join(ROOT, 'model-cache');
const DATABASE = 'matting_chaos';
/** As long as a supervisor takes to notice. */
const RESTART_MS = 200;
const READY_TIMEOUT_MS = 120_000;

export type Victim = 'control plane' | 'node' | 'engine' | 'picture worker' | 'database';

/** One program that is started again whenever it ends, until it is told to end. */
class Kept {
  readonly name: string;
  readonly #main: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #log: number;
  #child: ChildProcess | undefined;
  #ending = false;
  #gone: Promise<unknown> = Promise.resolve();

  constructor(name: string, main: string, env: Readonly<Record<string, string>>, logFile: string) {
    this.name = name;
    this.#main = main;
    this.#env = env;
    this.#log = openSync(logFile, 'a');
  }

  start(): void {
    const child = spawn(process.execPath, [this.#main], {
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
  /** Variables of the control planes, besides those that the fleet needs. */
  readonly env?: Readonly<Record<string, string>>;
}

export class ChaosFleet {
  readonly directory: string;
  readonly stores: Stores;
  /** Base URLs of the control planes, without a trailing slash. */
  readonly urls: readonly string[];
  readonly apiKey: string;
  readonly accountId: string;
  readonly #server: MariadbServer;
  readonly #databaseUrl: string;
  readonly #planes: readonly Kept[];
  readonly #nodes: readonly Kept[];

  private constructor(
    directory: string,
    { server, databaseUrl }: { readonly server: MariadbServer; readonly databaseUrl: string },
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
    this.#server = server;
    this.#databaseUrl = databaseUrl;
    this.#planes = planes.map(({ kept }) => kept);
    this.#nodes = nodes;
  }

  static async start(options: ChaosFleetOptions): Promise<ChaosFleet> {
    fetchWeights();
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-chaos-'));
    const server = await MariadbServer.create();
    const databaseUrl = await createDatabase(server);
    const stores = await openStores(databaseUrl, {
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
    const registries: number[] = [];
    const planes = Array.from({ length: options.controlPlanes }, (_, index) => {
      const [http, registry, metrics] = ports.splice(0, 3);
      assert.ok(registry !== undefined);
      registries.push(registry);
      const name = `control-plane-${index}`;
      const env = {
        ...common,
        MATTING_DATABASE_URL: databaseUrl,
        MATTING_SECRETS_KEY: 'ab'.repeat(32),
        MATTING_BASE_URL: 'http://links.example',
        MATTING_PORT: String(http),
        MATTING_REGISTRY_PORT: String(registry),
        MATTING_METRICS_PORT: String(metrics),
        MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
        MATTING_READS_PER_MINUTE: '1000000',
        ...options.env,
      };
      const log = path.join(directory, `${name}.log`);
      return {
        kept: new Kept(name, CONTROL_PLANE_MAIN, env, log),
        url: `http://127.0.0.1:${http}`,
      };
    });
    const nodes = Array.from({ length: options.nodes }, (_, index) => {
      const [port, http] = ports.splice(0, 2);
      const name = `node-${index}`;
      const env = {
        ...common,
        MATTING_NODE_ID: name,
        MATTING_NODE_PORT: String(port),
        MATTING_NODE_HTTP_PORT: String(http),
        MATTING_REGISTRY_ADDRESS: registries.map(port => `127.0.0.1:${port}`).join(),
        MATTING_MODEL: MODEL,
        MATTING_MODEL_DIR: MODEL_DIR,
        MATTING_EXECUTION_PROVIDER: 'cpu',
        MATTING_ENGINES: '1',
        MATTING_ENGINE_THREADS: '1',
        MATTING_PICTURE_WORKERS: '2',
      };
      return new Kept(name, NODE_MAIN, env, path.join(directory, `${name}.log`));
    });
    const fleet = new ChaosFleet(directory, { server, databaseUrl }, stores, caller, planes, nodes);
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
    const database = await openDatabase(this.#databaseUrl, { log: SILENT_LOG });
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
  async kill(victim: Victim, random: { pick<T>(items: readonly T[]): T | undefined }) {
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
        await this.#server.kill();
        await this.#server.start();
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
    await this.#server.kill();
    await requireNothingLeft(this.directory);
    const bad = kept.filter((_, index) => codes[index] !== 0).map(({ name }) => name);
    if (bad.length > 0) throw new Error(`did not end with 0: ${bad.join()}\n${this.logTail()}`);
    rmSync(this.directory, { recursive: true, force: true });
  }

  #killChild(program: string, random: { pick<T>(items: readonly T[]): T | undefined }): boolean {
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

async function createDatabase(server: MariadbServer): Promise<string> {
  const urlOf = (name: string) =>
    `mysql://root@localhost/${name}?socket=${encodeURIComponent(server.socket)}`;
  const database = await openDatabase(urlOf('mysql'), { log: SILENT_LOG });
  try {
    await sql.raw(`create database ${DATABASE}`).execute(database.kysely);
  } finally {
    await database.close();
  }
  return urlOf(DATABASE);
}
