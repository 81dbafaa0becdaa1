import assert from 'node:assert/strict';
import { credentials, Server, ServerCredentials, type sendUnaryData, status } from '@grpc/grpc-js';
import {
  Command,
  type DeregisterRequest,
  type HeartbeatRequest,
  type NodeRegistryServer,
  NodeRegistryService,
  type RegisterRequest,
} from '@matting/proto/gen/matting/v1/node_registry.ts';
import { soon, until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { pino } from 'pino';
import { Registration } from './registration.ts';

const test = ava.serial;

const TOKEN = 'a-token-of-sixteen-or-more';
const NEXT_TOKEN = 'the-next-token-of-the-fleet';
let token = TOKEN;
const BOUNDS = {
  callTimeoutMs: 2000,
  backoffMinMs: 10,
  backoffMaxMs: 40,
  heartbeatMinMs: 5,
  heartbeatMaxMs: 1000,
};

type Seen =
  | { kind: 'register'; request: RegisterRequest; token: string }
  | { kind: 'heartbeat'; request: HeartbeatRequest }
  | { kind: 'deregister'; request: DeregisterRequest };

class Registry {
  readonly seen: Seen[] = [];
  command: Command = Command.COMMAND_UNSPECIFIED;
  /** If set, the only answer. */
  failure: status | undefined;
  #server: Server | undefined;
  #arrived = Promise.withResolvers<void>();

  async open(port = 0): Promise<number> {
    const server = new Server();
    const answer = <Response>(
      seen: Seen,
      callback: sendUnaryData<Response>,
      response: Response,
    ): void => {
      if (this.failure !== undefined) {
        callback({ code: this.failure, details: 'as told' });
        return;
      }
      this.seen.push(seen);
      this.#arrived.resolve();
      this.#arrived = Promise.withResolvers();
      callback(null, response);
    };
    const service: NodeRegistryServer = {
      register: ({ request, metadata }, callback) => {
        const token = String(metadata.get('authorization')[0]);
        const response = { heartbeatIntervalMs: 10, leaseMs: 15_000 };
        answer({ kind: 'register', request, token }, callback, response);
      },
      heartbeat: ({ request }, callback) => {
        const response = { leaseMs: 15_000, command: this.command };
        answer({ kind: 'heartbeat', request }, callback, response);
      },
      deregister: ({ request }, callback) => {
        answer({ kind: 'deregister', request }, callback, {});
      },
    };
    server.addService(NodeRegistryService, service);
    this.#server = server;
    return await new Promise((resolve, reject) => {
      server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error, bound) =>
        error ? reject(error) : resolve(bound),
      );
    });
  }

  close(): void {
    this.#server?.forceShutdown();
  }

  count(kind: Seen['kind']): number {
    return this.seen.filter(seen => seen.kind === kind).length;
  }

  async until(kind: Seen['kind'], times = 1): Promise<void> {
    while (this.count(kind) < times) await soon(`${times} ${kind}`, this.#arrived.promise);
  }
}

const opened: Registry[] = [];
let registration: Registration | undefined;
let commands: boolean[];
let lines: { level: number; msg: string }[];

async function openRegistry(port?: number): Promise<{ registry: Registry; address: string }> {
  const registry = new Registry();
  opened.push(registry);
  return { registry, address: `127.0.0.1:${await registry.open(port)}` };
}

function begin(...registryAddresses: string[]): Registration {
  registration = new Registration({
    registryAddresses,
    identity: { nodeId: 'node-1', bootId: 'boot-1', version: '1.2.3' },
    address: '10.0.0.1:50051',
    httpAddress: '10.0.0.1:50052',
    token: () => token,
    security: { credentials: credentials.createInsecure(), options: {} },
    onDrainCommand: drain => commands.push(drain),
    log: pino({ level: 'info' }, { write: line => lines.push(JSON.parse(line)) }),
    bounds: BOUNDS,
  });
  return registration;
}

async function deadAddress(): Promise<string> {
  const { registry, address } = await openRegistry();
  registry.close();
  return address;
}

async function untilSaid(message: string): Promise<void> {
  await until(`the line "${message}"`, () => lines.some(({ msg }) => msg === message));
}

test.beforeEach(() => {
  commands = [];
  lines = [];
});

test.afterEach.always(async () => {
  await registration?.leave();
  registration = undefined;
  for (const registry of opened.splice(0)) registry.close();
});

test('does no harm while nobody answers, logs that once, and ends on request', async t => {
  begin(await deadAddress(), await deadAddress());
  await untilSaid('no control plane answers; trying on');
  // Further rounds, which it does not log.
  await new Promise(resolve => setTimeout(resolve, 5 * BOUNDS.backoffMaxMs));
  await registration?.leave();
  const warnings = lines.filter(({ level }) => level >= 40);
  t.deepEqual(
    warnings.map(({ msg }) => msg),
    ['no control plane answers; trying on'],
  );
});

test('registers with its token, beats with its boot id, and deregisters', async t => {
  const { registry, address } = await openRegistry();
  begin(address);
  await registry.until('heartbeat', 3);
  await registration?.leave();
  const [first] = registry.seen;
  assert.ok(first?.kind === 'register');
  t.is(first.token, `Bearer ${TOKEN}`);
  t.deepEqual(first.request, {
    nodeId: 'node-1',
    bootId: 'boot-1',
    address: '10.0.0.1:50051',
    httpAddress: '10.0.0.1:50052',
    version: '1.2.3',
  });
  t.is(registry.count('register'), 1);
  t.deepEqual(registry.seen.at(-1), {
    kind: 'deregister',
    request: { nodeId: 'node-1', bootId: 'boot-1' },
  });
  const heartbeats = registry.count('heartbeat');
  await new Promise(resolve => setTimeout(resolve, 50));
  t.is(registry.count('heartbeat'), heartbeats);
});

test('shows the token that is the first now', async t => {
  const { registry, address } = await openRegistry();
  begin(address);
  await registry.until('heartbeat');
  token = NEXT_TOKEN;
  registry.command = Command.COMMAND_REGISTER;
  await registry.until('register', 2);
  token = TOKEN;
  const shown = registry.seen.flatMap(seen => (seen.kind === 'register' ? seen.token : []));
  t.deepEqual(shown.slice(0, 2), [`Bearer ${TOKEN}`, `Bearer ${NEXT_TOKEN}`]);
});

test('takes the next control plane where one does not answer, or goes away', async t => {
  const one = await openRegistry();
  const two = await openRegistry();
  begin(await deadAddress(), one.address, two.address);
  await one.registry.until('heartbeat', 2);
  t.is(one.registry.count('register'), 1);
  t.false(lines.some(({ level }) => level >= 40));
  one.registry.close();
  await two.registry.until('heartbeat', 2);
  // Both share a table, in which it is a member already.
  t.is(two.registry.count('register'), 0);
});

test('outlives an error and a control plane that was away', async t => {
  const { registry, address } = await openRegistry();
  registry.failure = status.INTERNAL;
  begin(address);
  await untilSaid('no control plane answers; trying on');
  t.is(registry.count('register'), 0);
  registry.failure = undefined;
  await registry.until('heartbeat');
  const told = lines.map(({ msg }) => msg);
  t.deepEqual(told, [
    'no control plane answers; trying on',
    'a control plane answers again',
    'registered',
  ]);
});

test('registers again on request, and passes drain and undrain on', async t => {
  const { registry, address } = await openRegistry();
  begin(address);
  await registry.until('heartbeat');
  registry.command = Command.COMMAND_REGISTER;
  await registry.until('register', 2);
  registry.command = Command.COMMAND_UNSPECIFIED;
  for (const command of [Command.COMMAND_DRAIN, Command.COMMAND_UNDRAIN]) {
    registry.command = command;
    await registry.until('heartbeat', registry.count('heartbeat') + 2);
  }
  await registration?.leave();
  t.true(commands[0]);
  t.false(commands.at(-1));
});
