/** NodeRegistry over real gRPC on a real store. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, beforeEach, describe, it } from 'node:test';
import { credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import {
  Command,
  type HeartbeatResponse,
  NodeRegistryClient,
  type RegisterRequest,
  type RegisterResponse,
} from '#gen/matting/v1/node_registry.ts';
import type { NodeRefusal } from '../../src/nodes/refused-nodes.ts';
import { type Membership, RegistryServer } from '../../src/nodes/registry-server.ts';
import { Harness } from '../services/dispatch/harness.ts';
import { TEST_TOKEN } from './scripted-node.ts';

/** As while the fleet's token is changed. */
const NEXT_TOKEN = 'the-next-token-of-the-fleet';

let harness: Harness;
let membership: Membership;
let server: RegistryServer;
let client: NodeRegistryClient;
let changes = 0;
const failures: unknown[] = [];
const refusals: NodeRefusal[] = [];

before(async () => {
  harness = await Harness.open();
  server = new RegistryServer({
    host: '127.0.0.1',
    port: 0,
    nodeTokens: [TEST_TOKEN, NEXT_TOKEN],
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

beforeEach(() => {
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

after(async () => {
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

function register(message: RegisterRequest, metadata = withToken()): Promise<RegisterResponse> {
  return new Promise((resolve, reject) => {
    client.register(message, metadata, (error, response) =>
      error === null ? resolve(response) : reject(error),
    );
  });
}

function heartbeat(nodeId: string, bootId: string): Promise<HeartbeatResponse> {
  return new Promise((resolve, reject) => {
    client.heartbeat({ nodeId, bootId }, withToken(), (error, response) =>
      error === null ? resolve(response) : reject(error),
    );
  });
}

function deregister(nodeId: string, bootId: string): Promise<void> {
  return new Promise((resolve, reject) => {
    client.deregister({ nodeId, bootId }, withToken(), error =>
      error === null ? resolve() : reject(error),
    );
  });
}

const endsWith = (code: status) => (error: ServiceError) => {
  assert.equal(status[error.code], status[code]);
  return true;
};

describe('a stranger', () => {
  it('is refused without the token', async () => {
    const wrong = [new Metadata(), withToken('wrong'), withToken(`${TEST_TOKEN}x`), withToken('')];
    for (const metadata of wrong) {
      await assert.rejects(register(request(), metadata), endsWith(status.UNAUTHENTICATED));
    }
    assert.deepEqual(refused(), Array(wrong.length).fill(['token', 'node-1']));
    assert.deepEqual(await harness.stores.nodes.listAll(), []);
  });

  it('may bring the other token while the fleet changes from one to the other', async () => {
    await register(request({ nodeId: 'node-next' }), withToken(NEXT_TOKEN));
    assert.deepEqual(refused(), []);
  });
});

describe('a registration', () => {
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
    it(`${what} is refused`, async () => {
      await assert.rejects(register(request(changed)), endsWith(status.INVALID_ARGUMENT));
      const nodeId = 'nodeId' in changed ? undefined : 'node-1';
      assert.deepEqual(refused(), [['invalid', nodeId]]);
    });
  }

  it('takes host names, IPv4 and IPv6', async () => {
    for (const address of ['node-1.fleet.local:50051', '10.0.0.7:1', '[fd00::7]:65535']) {
      await register(request({ address }));
      assert.equal((await harness.stores.nodes.listLive())[0]?.address, address);
    }
  });

  it('makes the node a member at once, and says how to stay one', async () => {
    const before = changes;
    const { heartbeatIntervalMs, leaseMs } = await register(request({ nodeId: 'node-2' }));
    assert.ok(heartbeatIntervalMs * 3 <= leaseMs);
    assert.equal(changes, before + 1);
    const members = await harness.stores.nodes.listLive();
    assert.ok(members.some(member => member.nodeId === 'node-2'));
  });
});

describe('a heartbeat', () => {
  it('of an unknown node or an old boot is told to register', async () => {
    const { command } = await heartbeat('nobody', randomUUID());
    assert.equal(command, Command.COMMAND_REGISTER);
    const first = request({ nodeId: 'node-3' });
    await register(first);
    await register(request({ nodeId: 'node-3' }));
    assert.deepEqual(refused(), [], 'a restart is nothing to tell of');
    const old = await heartbeat('node-3', first.bootId);
    assert.equal(old.command, Command.COMMAND_REGISTER);
    assert.deepEqual(refused(), [['replaced', 'node-3']]);
    assert.ok(refusals[0]?.detail.includes('10.0.0.7:50051'));
  });

  it('of one that was replaced is nothing to tell of once the other is gone', async () => {
    const first = request({ nodeId: 'node-5' });
    const second = request({ nodeId: 'node-5' });
    await register(first);
    await register(second);
    await deregister('node-5', second.bootId);
    await heartbeat('node-5', first.bootId);
    assert.deepEqual(refused(), []);
  });

  it("carries the operator's wish each time", async () => {
    const { nodeId, bootId } = request({ nodeId: 'node-4' });
    await register(request({ nodeId, bootId }));
    assert.equal((await heartbeat(nodeId, bootId)).command, Command.COMMAND_UNDRAIN);
    await harness.stores.nodes.setDraining(nodeId, true);
    for (let beat = 0; beat < 2; beat += 1) {
      assert.equal((await heartbeat(nodeId, bootId)).command, Command.COMMAND_DRAIN);
    }
    await harness.stores.nodes.setDraining(nodeId, false);
    assert.equal((await heartbeat(nodeId, bootId)).command, Command.COMMAND_UNDRAIN);
  });

  it('while the database is away fails without a word about it', async () => {
    const secret = new Error('user root at db.internal');
    membership = { heartbeat: () => Promise.reject(secret) } as Partial<Membership> as Membership;
    await assert.rejects(heartbeat('node-4', randomUUID()), (error: ServiceError) => {
      assert.equal(error.code, status.INTERNAL);
      assert.ok(!error.details.includes('db.internal'));
      return true;
    });
    assert.ok(failures.includes(secret));
  });
});

describe('a deregistration', () => {
  it('ends the membership, and leaves a later boot alone', async () => {
    const first = request({ nodeId: 'node-5' });
    const second = request({ nodeId: 'node-5' });
    await register(first);
    await register(second);
    const isMember = async () =>
      (await harness.stores.nodes.listLive()).some(({ nodeId }) => nodeId === 'node-5');
    await deregister('node-5', first.bootId);
    assert.equal(await isMember(), true);
    await deregister('node-5', second.bootId);
    assert.equal(await isMember(), false);
  });
});

describe('the port', () => {
  it('that is in use is an error that says so', async () => {
    const second = new RegistryServer({
      host: '127.0.0.1',
      port: server.port,
      nodeTokens: [TEST_TOKEN],
      membership,
      onMembersChanged: () => undefined,
      onRefused: () => undefined,
      onFailure: () => undefined,
    });
    await assert.rejects(second.listen(), /EADDRINUSE/);
    await second.close();
  });
});
