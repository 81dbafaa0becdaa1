/**
 * Two control planes and three inference nodes, each a process of its own over TLS, are restarted
 * one after the other under load. The client is the package that callers use: it
 * must not see a failure, and every image must be the right one, charged once.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import sharp from 'sharp';
import { findFreePorts } from '../../bin/free-ports.ts';
import { MattingClient } from '../../client/src/index.ts';
import type { Stores } from '../../control-plane/src/store/stores.ts';
import { storesOn } from '../../control-plane/test/store/fixtures.ts';
import { TestAuthority } from '../support/certificates.ts';
import { createTestDatabase, skipReason, type TestDatabase } from '../support/database.ts';
import { ROOT, until } from '../support/running-service.ts';
import { Balancer } from './balancer.ts';

const OPERATOR_KEY = 'an-operator-key-for-a-rolling-restart';
const NODE_TOKEN = 'a-node-token-for-a-rolling-restart';
const SERVER_NAME = 'matting.internal';
/** Requests at once: more than the nodes take, so that some wait in every queue there is. */
const CALLERS = 8;
const START_TIMEOUT_MS = 120_000;

interface ControlPorts {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

let directory: string;
let database: TestDatabase;
let stores: Stores;
let balancer: Balancer;
let baseUrl: string;
let apiKey: string;
let accountId: string;
let planes: readonly ControlPlaneProcess[];
let nodes: readonly NodeProcess[];
const programs: Program[] = [];

/** One program that is started again and again with the same environment. */
class Program {
  readonly name: string;
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  #child: ChildProcess | undefined;
  #exited: Promise<number | null> = Promise.resolve(null);
  #messages: Set<unknown> = new Set();
  output = '';

  constructor(name: string, args: readonly string[], env: Readonly<Record<string, string>>) {
    this.name = name;
    this.#args = args;
    this.#env = env;
    programs.push(this);
  }

  start(): void {
    const child = spawn(process.execPath, this.#args, {
      cwd: ROOT,
      env: { PATH: process.env.PATH, TMPDIR: directory, ...this.#env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    this.#messages = new Set();
    this.#exited = new Promise(resolve => child.once('close', resolve));
    child.stderr.setEncoding('utf8').on('data', text => {
      this.output += text;
    });
    createInterface(child.stdout).on('line', line => {
      const { msg, level } = JSON.parse(line);
      this.#messages.add(msg);
      if (level >= 50) this.output += `${line}\n`;
    });
  }

  said(message: string): boolean {
    return this.#messages.has(message);
  }

  /** As a supervisor ends it. */
  async stop(): Promise<void> {
    this.#child?.kill('SIGTERM');
    assert.equal(await this.#exited, 0, `${this.name}: ${this.output}`);
  }

  async kill(): Promise<void> {
    this.#child?.kill('SIGKILL');
    await this.#exited;
  }
}

class ControlPlaneProcess extends Program {
  readonly ports: ControlPorts;

  constructor(name: string, ports: ControlPorts, env: Readonly<Record<string, string>>) {
    super(name, ['control-plane/src/main.ts'], {
      ...env,
      MATTING_PORT: String(ports.http),
      MATTING_REGISTRY_PORT: String(ports.registry),
      MATTING_METRICS_PORT: String(ports.metrics),
    });
    this.ports = ports;
  }

  /** It serves, and all nodes are there for it. */
  async ready(nodesWanted: number): Promise<void> {
    const { http, metrics } = this.ports;
    const wanted = new RegExp(`^matting_control_nodes\\{state="routable"\\} ${nodesWanted}$`, 'm');
    const isReady = async () => {
      const [state, page] = await Promise.all([
        fetch(`http://127.0.0.1:${http}/readyz`),
        fetch(`http://127.0.0.1:${metrics}/metrics`).then(answer => answer.text()),
      ]);
      await state.arrayBuffer();
      return state.ok && wanted.test(page);
    };
    await until(() => isReady().catch(() => false), {
      timeoutMs: START_TIMEOUT_MS,
      what: `${this.name} has ${nodesWanted} nodes`,
      detail: () => programs.map(({ name, output }) => `${name}: ${output}`).join('\n'),
    });
  }
}

class NodeProcess extends Program {
  constructor(name: string, env: Readonly<Record<string, string>>) {
    const hook = path.join(ROOT, 'test/support/tiny-plan-hook.ts');
    super(name, ['--import', hook, 'inference-node/src/main.ts'], {
      ...env,
      MATTING_NODE_ID: name,
      MATTING_NODE_PORT: '0',
      MATTING_NODE_HTTP_PORT: '0',
      MATTING_MODEL_DIR: path.join(directory, name),
      MATTING_EXECUTION_PROVIDER: 'cpu',
      MATTING_ENGINES: '1',
      MATTING_ENGINE_THREADS: '1',
      MATTING_PICTURE_WORKERS: '1',
      MATTING_NODE_MEGAPIXELS_MAX: '200',
    });
  }
}

async function tlsEnv(authority: TestAuthority): Promise<Record<string, string>> {
  const { cert, key } = authority.issue('fleet', [SERVER_NAME]);
  const at = (name: string) => path.join(directory, name);
  await writeFile(at('own.pem'), cert);
  await writeFile(at('own.key'), key);
  await writeFile(at('ca.pem'), authority.cert);
  return {
    MATTING_TLS_CERT_FILE: at('own.pem'),
    MATTING_TLS_KEY_FILE: at('own.key'),
    MATTING_TLS_CLIENT_CA_FILE: at('ca.pem'),
    MATTING_TLS_SERVER_CA_FILE: at('ca.pem'),
    MATTING_TLS_SERVER_NAME: SERVER_NAME,
  };
}

before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-rolling-'));
  database = await createTestDatabase(skipReason('mysql') === false ? 'mysql' : 'sqlite');
  stores = storesOn(await database.open());
  const account = await stores.accounts.create('caller');
  assert.ok(account);
  accountId = account.id;
  await stores.ledger.grant(accountId, 100_000, 'test');
  apiKey = (await stores.apiKeys.create(accountId, 'test')).token;
  balancer = new Balancer();
  baseUrl = await balancer.listen();
  const fleet = { MATTING_NODE_TOKEN: NODE_TOKEN, ...(await tlsEnv(new TestAuthority())) };
  const [http, registry, metrics, http2, registry2, metrics2] = await findFreePorts(6);
  const ports = [
    { http, registry, metrics },
    { http: http2, registry: registry2, metrics: metrics2 },
  ];
  planes = ports.map(
    (own, index) =>
      new ControlPlaneProcess(`control-plane-${index}`, own, {
        ...fleet,
        MATTING_DATA_DIR: path.join(directory, 'data'),
        MATTING_DATABASE_URL: database.url,
        MATTING_SECRETS_KEY: 'ab'.repeat(32),
        MATTING_BASE_URL: baseUrl,
        MATTING_OPERATOR_KEY: OPERATOR_KEY,
        // Some answers come in time and some do not.
        MATTING_SYNC_WAIT_MS: '1500',
        MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
        MATTING_READS_PER_MINUTE: '1000000',
      }),
  );
  const registries = planes.map(plane => `127.0.0.1:${plane.ports.registry}`).join();
  nodes = [0, 1, 2].map(
    index => new NodeProcess(`node-${index}`, { ...fleet, MATTING_REGISTRY_ADDRESS: registries }),
  );
  balancer.serve(planes.map(plane => plane.ports.http));
  for (const program of [...planes, ...nodes]) program.start();
  for (const plane of planes) await plane.ready(nodes.length);
});

after(async () => {
  for (const program of programs) await program.kill();
  await balancer?.close();
  await database?.close();
  await rm(directory, { recursive: true, force: true });
});

/** Uniform and of a size of its own: its cut-out's size and alpha tell whose it is. */
interface Picture {
  readonly width: number;
  readonly height: number;
  readonly brightness: number;
}

function pictureOf(number: number): Picture {
  return {
    width: 16 + (number % 97),
    height: 16 + (number % 89),
    brightness: 140 + ((number * 7) % 116),
  };
}

function encode({ width, height, brightness }: Picture): Promise<Buffer> {
  const background = { r: brightness, g: brightness, b: brightness };
  const create = { width, height, channels: 3 as const, background };
  return sharp({ create }).png().toBuffer();
}

async function requireCutOutOf(picture: Picture, file: Uint8Array): Promise<void> {
  const { data, info } = await sharp(file).raw().toBuffer({ resolveWithObject: true });
  assert.deepEqual([info.width, info.height, info.channels], [picture.width, picture.height, 4]);
  assert.ok(
    Math.abs(data.readUInt8(3) - picture.brightness) <= 2,
    `${data[3]} for ${picture.brightness}`,
  );
}

class Load {
  readonly #client: MattingClient;
  #going = true;
  #number = 0;
  readonly #done: Promise<void>[];
  images = 0;

  constructor(client: MattingClient) {
    this.#client = client;
    this.#done = Array.from({ length: CALLERS }, () => this.#call());
    // Looked at when the load is over; a failure before is none of the runtime's business.
    for (const done of this.#done) done.catch(() => undefined);
  }

  async finish(): Promise<void> {
    this.#going = false;
    await Promise.all(this.#done);
  }

  /** Resolves when so many more images are done. */
  async more(images: number): Promise<void> {
    const wanted = this.images + images;
    while (this.images < wanted) await Promise.race([delay(20), Promise.all(this.#done)]);
  }

  async #call(): Promise<void> {
    while (this.#going) {
      const picture = pictureOf(this.#number++);
      const { bytes } = await this.#client.cutOut({ image: await encode(picture) });
      await requireCutOutOf(picture, bytes);
      this.images += 1;
    }
  }
}

test('a rolling restart under load shows no failure to a client that retries', async () => {
  const metrics = planes[0]?.ports.metrics;
  const answer = await fetch(`http://127.0.0.1:${metrics}/operator/nodes/node-1/info`, {
    headers: { authorization: `Bearer ${OPERATOR_KEY}` },
  });
  const info = (await answer.json()) as { nodeId: string; plan: string };
  assert.deepEqual([info.nodeId, info.plan], ['node-1', 'tiny']);

  const load = new Load(new MattingClient({ baseUrl, apiKey }));
  await load.more(CALLERS);
  for (const program of [nodes[0], planes[0], nodes[1], planes[1], nodes[2]]) {
    assert.ok(program);
    await program.stop();
    // What is left carries on.
    await load.more(2);
    program.start();
    for (const plane of planes) await plane.ready(nodes.length);
    await load.more(2);
  }
  await load.finish();

  const jobs = await stores.jobs.list({
    states: ['accepted', 'fetching', 'ready', 'running', 'succeeded', 'failed'],
    accountId,
    endedWithinMs: 3_600_000,
    limit: 100_000,
  });
  assert.equal(jobs.length, load.images, 'a job an image');
  assert.ok(jobs.every(job => job.state === 'succeeded'));
  // Everything was drained: nothing died with anybody.
  assert.equal(Math.max(...jobs.map(job => job.lostAttempts + job.takeovers)), 0);
  const credits = await stores.ledger.credits(accountId);
  assert.deepEqual([credits?.sums.charge, credits?.reserved], [load.images, 0]);
  assert.deepEqual(await stores.ledger.check(), []);
  for (const program of [...nodes, ...planes]) {
    await program.stop();
    assert.equal(program.output, '', program.name);
  }
});
