import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { noteRefusals, RegistryServer } from '@matting/nodes/registry-server.ts';
import { TEST_TOKEN } from '@matting/nodes/test/scripted-node.ts';
import type { GuardCause } from '@matting/program/ports/grpc-guard.ts';
import type { GuardBounds } from '@matting/program/ports/guard-bounds.ts';
import { MESSAGE_BYTES_SMALL } from '@matting/proto/contract/limits.ts';
import {
  Command,
  type HeartbeatResponse,
  NodeRegistryClient,
  NodeRegistryService,
  type RegisterRequest,
  type RegisterResponse,
} from '@matting/proto/gen/matting/v1/node_registry.ts';
import { framed, RawConnection } from '@matting/test-support/raw-grpc.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { Harness } from './harness.ts';

const test = ava.serial;

const NEXT_TOKEN = 'the-next-token-of-the-fleet';

let harness: Harness;
let membership: Harness['stores']['nodes'];
let server: RegistryServer;
let client: NodeRegistryClient;
let changes = 0;
let nodeTokens = [TEST_TOKEN, NEXT_TOKEN];
const failures: unknown[] = [];
const refusals: { cause: string; nodeId: string | undefined; peer: string; detail: string }[] = [];

test.before(async () => {
  harness = await Harness.open();
  server = new RegistryServer({
    host: '127.0.0.1',
    port: 0,
    nodeTokens: () => nodeTokens,
    membership: {
      register: (...args) => membership.register(...args),
      heartbeat: (...args) => membership.heartbeat(...args),
      deregister: (...args) => membership.deregister(...args),
      find: (...args) => membership.find(...args),
    },
    onMembersChanged: () => {
      changes += 1;
    },
    onRefused: refusal => refusals.push(refusal),
    onFailure: error => failures.push(error),
  });
  await server.listen();
  client = new NodeRegistryClient(`127.0.0.1:${server.port}`, credentials.createInsecure());
});

test.beforeEach(() => {
  membership = harness.stores.nodes;
  refusals.length = 0;
});

function refused(): unknown[] {
  for (const { peer, detail } of refusals) {
    assert.match(peer, /^127\.0\.0\.1:\d+$/);
    assert.ok(detail.length > 10 && !detail.includes(TEST_TOKEN));
  }
  return refusals.map(({ cause, nodeId }) => [cause, nodeId]);
}

test.after.always(async () => {
  client.close();
  await server.close();
  await harness.close();
});

function withToken(token = TEST_TOKEN): Metadata {
  const metadata = new Metadata();
  metadata.set('authorization', `Bearer ${token}`);
  return metadata;
}

function request(changed: Partial<RegisterRequest> = {}): RegisterRequest {
  const bootId = randomUUID();
  const address = '10.0.0.7:50051';
  return { nodeId: 'node-1', bootId, address, httpAddress: '', version: '1', ...changed };
}

type Done<Response> = (error: ServiceError | null, response: Response) => void;

function answered<Response>(ask: (done: Done<Response>) => unknown): Promise<Response> {
  return new Promise((resolve, reject) => {
    ask((error, response) => (error === null ? resolve(response) : reject(error)));
  });
}

const register = (message: RegisterRequest, metadata = withToken()) =>
  answered<RegisterResponse>(done => client.register(message, metadata, done));
const heartbeat = (nodeId: string, bootId: string) =>
  answered<HeartbeatResponse>(done => client.heartbeat({ nodeId, bootId }, withToken(), done));
const deregister = (nodeId: string, bootId: string) =>
  answered<unknown>(done => client.deregister({ nodeId, bootId }, withToken(), done));

const endsWith = (code: status) => (error: ServiceError) => {
  assert.equal(status[error.code], status[code]);
  return true;
};

test('a stranger › is refused without the token', async t => {
  const wrong = [new Metadata(), withToken('wrong'), withToken(`${TEST_TOKEN}x`), withToken('')];
  for (const metadata of wrong) {
    await rejectsWith(t, register(request(), metadata), endsWith(status.UNAUTHENTICATED));
  }
  t.deepEqual(refused(), Array(wrong.length).fill(['token', 'node-1']));
  t.deepEqual(await harness.stores.nodes.listAll(), []);
});

test('a stranger › may bring the other token while the fleet changes from one to the other', async t => {
  const next = () => register(request({ nodeId: 'node-next' }), withToken(NEXT_TOKEN));
  await next();
  t.deepEqual(refused(), []);
  nodeTokens = [TEST_TOKEN];
  await rejectsWith(t, next(), endsWith(status.UNAUTHENTICATED));
  nodeTokens = [NEXT_TOKEN];
  await next();
  await rejectsWith(t, register(request()), endsWith(status.UNAUTHENTICATED));
  nodeTokens = [TEST_TOKEN, NEXT_TOKEN];
});

const bad: Record<string, Partial<RegisterRequest>> = {
  'without a name': { nodeId: '' },
  'with a name of other characters': { nodeId: 'node 1' },
  'with a long name': { nodeId: 'n'.repeat(65) },
  'with a boot id that is no UUID': { bootId: 'boot' },
  'without an address': { address: '' },
  'without a port': { address: '10.0.0.7' },
  'with a port out of range': { address: '10.0.0.7:70000' },
  'with an address that cannot be dialled': { address: '0.0.0.0:50051' },
  'with an IPv6 address that cannot be dialled': { address: '[::]:50051' },
  'with a URL for an address': { address: 'http://10.0.0.7:50051' },
  'with a wrong address of its HTTP endpoints': { httpAddress: 'nowhere' },
  'with a long version': { version: 'v'.repeat(65) },
};
for (const [what, changed] of Object.entries(bad)) {
  test(`a registration › ${what} is refused`, async t => {
    await rejectsWith(t, register(request(changed)), endsWith(status.INVALID_ARGUMENT));
    const nodeId = 'nodeId' in changed ? undefined : 'node-1';
    t.deepEqual(refused(), [['invalid', nodeId]]);
  });
}

test('a registration › takes host names, IPv4 and IPv6', async t => {
  for (const address of ['node-1.fleet.local:50051', '10.0.0.7:1', '[fd00::7]:65535']) {
    await register(request({ address }));
    t.is((await harness.stores.nodes.listLive())[0]?.address, address);
  }
});

test('a registration › makes the node a member at once, and says how to stay one', async t => {
  const before = changes;
  const { heartbeatIntervalMs, leaseMs } = await register(request({ nodeId: 'node-2' }));
  t.true(heartbeatIntervalMs * 3 <= leaseMs);
  t.is(changes, before + 1);
  const members = await harness.stores.nodes.listLive();
  t.true(members.some(member => member.nodeId === 'node-2'));
});

test('a heartbeat › of an unknown node or an old boot is told to register', async t => {
  const { command } = await heartbeat('nobody', randomUUID());
  t.is(command, Command.COMMAND_REGISTER);
  const first = request({ nodeId: 'node-3' });
  await register(first);
  await register(request({ nodeId: 'node-3' }));
  t.deepEqual(refused(), [], 'a restart is nothing to tell of');
  const old = await heartbeat('node-3', first.bootId);
  t.is(old.command, Command.COMMAND_REGISTER);
  t.deepEqual(refused(), [['replaced', 'node-3']]);
  t.truthy(refusals[0]?.detail.includes('10.0.0.7:50051'));
});

test('a heartbeat › of a replaced node is not reported once the other is gone', async t => {
  const first = request({ nodeId: 'node-5' });
  const second = request({ nodeId: 'node-5' });
  await register(first);
  await register(second);
  await deregister('node-5', second.bootId);
  await heartbeat('node-5', first.bootId);
  t.deepEqual(refused(), []);
});

test("a heartbeat › carries the operator's wish each time", async t => {
  const { nodeId, bootId } = request({ nodeId: 'node-4' });
  await register(request({ nodeId, bootId }));
  t.is((await heartbeat(nodeId, bootId)).command, Command.COMMAND_UNDRAIN);
  await harness.stores.nodes.setDraining(nodeId, true);
  for (let beat = 0; beat < 2; beat += 1) {
    t.is((await heartbeat(nodeId, bootId)).command, Command.COMMAND_DRAIN);
  }
  await harness.stores.nodes.setDraining(nodeId, false);
  t.is((await heartbeat(nodeId, bootId)).command, Command.COMMAND_UNDRAIN);
});

test('a heartbeat › while the database is away fails without a word about it', async t => {
  const secret = new Error('user root at db.internal');
  membership = { heartbeat: () => Promise.reject(secret) } as Partial<
    typeof membership
  > as typeof membership;
  await rejectsWith(t, heartbeat('node-4', randomUUID()), (error: ServiceError) => {
    t.is(error.code, status.INTERNAL);
    t.false(error.details.includes('db.internal'));
    return true;
  });
  t.true(failures.includes(secret));
});

const REGISTER = NodeRegistryService.register.path;
const HEARTBEAT = NodeRegistryService.heartbeat.path;

let ended: GuardCause[] = [];

class Guarded {
  readonly server: RegistryServer;
  readonly #opened: { close(): void }[] = [];

  constructor(guardBounds: Partial<GuardBounds>) {
    this.server = new RegistryServer({
      host: '127.0.0.1',
      port: 0,
      nodeTokens: () => [TEST_TOKEN],
      membership: harness.stores.nodes,
      onMembersChanged: () => undefined,
      onRefused: () => undefined,
      onFailure: error => assert.fail(String(error)),
      onEnded: cause => ended.push(cause),
      guardBounds,
    });
  }

  async connection(): Promise<RawConnection> {
    const connection = await RawConnection.open(`http://127.0.0.1:${this.server.port}`);
    this.#opened.push(connection);
    return connection;
  }

  socket(): Socket {
    const socket = connect(this.server.port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    this.#opened.push({ close: () => socket.destroy() });
    return socket;
  }

  async close(): Promise<void> {
    for (const one of this.#opened) one.close();
    await this.server.close();
  }
}

async function openRegistry(t: ExecutionContext, bounds: Partial<GuardBounds> = {}) {
  ended = [];
  const guarded = new Guarded(bounds);
  await guarded.server.listen();
  t.teardown(() => guarded.close());
  return guarded;
}

async function beat(connection: RawConnection): Promise<number | undefined> {
  const { stream, ended: end } = connection.call(HEARTBEAT, TEST_TOKEN);
  const request = { nodeId: 'node-1', bootId: randomUUID() };
  stream.end(framed(NodeRegistryService.heartbeat.requestSerialize(request)));
  return (await end).status;
}

test('half a registration › is refused if it announces too many bytes, even with the token', async t => {
  const guarded = await openRegistry(t);
  const connection = await guarded.connection();
  for (const token of [undefined, TEST_TOKEN]) {
    const { stream, ended: end } = connection.call(REGISTER, token);
    stream.write(framed(Buffer.alloc(10), MESSAGE_BYTES_SMALL + 1));
    t.is((await end).code, 'INVALID_REQUEST');
  }
  t.deepEqual(ended, ['message_too_large', 'message_too_large']);
});

test('a connection to the registry › without a token is closed in time, and stays open with one', async t => {
  const guarded = await openRegistry(t, { tokenWaitMaxMs: 700 });
  const known = await guarded.connection();
  t.is(await beat(known), status.OK);
  const silent = guarded.socket();
  const greeted = await guarded.connection();
  await Promise.all([once(silent, 'close'), greeted.closed]);
  t.is(await beat(known), status.OK);
  t.deepEqual(ended, ['no_token', 'no_token']);
});

test('a connection to the registry › without the token keeps no node out', async t => {
  const guarded = await openRegistry(t, { strangersMax: 3 });
  for (let count = 0; count < 12; count += 1) {
    await once(guarded.socket(), 'connect');
    t.is(await beat(await guarded.connection()), status.OK);
  }
  t.is(guarded.server.connections.known, 12);
  t.true(guarded.server.connections.strangers <= 3);
  t.true(ended.every(cause => cause === 'crowded'));
});

test('refusals › a line of each cause now and then, all of them counted', t => {
  const counted: string[] = [];
  const lines: unknown[] = [];
  let nowMs = 0;
  const note = noteRefusals(
    { warn: (fields: unknown) => lines.push(fields) },
    { nodeRefused: cause => counted.push(cause) },
    () => nowMs,
  );
  const stranger = { cause: 'token', nodeId: undefined, peer: '10.0.0.9:4', detail: 'no' } as const;
  const twin = { cause: 'replaced', nodeId: 'a', peer: '10.0.0.7:5', detail: 'another' } as const;
  for (let times = 0; times < 100; times += 1) note(stranger);
  note(twin);
  t.deepEqual(lines, [stranger, twin]);
  nowMs = 9999;
  note(stranger);
  t.is(lines.length, 2);
  nowMs = 10_000;
  note(stranger);
  t.deepEqual(lines, [stranger, twin, stranger]);
  t.is(counted.length, 103);
});
