/** What callers without the node token can take from the registry port. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { status } from '@grpc/grpc-js';
import ava from 'ava';
import { NodeRegistryService } from '#gen/matting/v1/node_registry.ts';
import {
  type GuardBounds,
  type GuardCause,
  MESSAGE_BYTES_SMALL,
} from '#program/ports/grpc-guard.ts';
import { framed, RawConnection } from '../../../test/support/raw-grpc.ts';
import { RegistryServer } from '../../src/nodes/registry-server.ts';
import { Harness } from '../services/dispatch/harness.ts';
import { TEST_TOKEN } from './scripted-node.ts';

const test = ava.serial;

const REGISTER = NodeRegistryService.register.path;
const HEARTBEAT = NodeRegistryService.heartbeat.path;

let harness: Harness;
let server: RegistryServer;
let ended: GuardCause[] = [];
const opened: { close(): void }[] = [];

test.before(async () => {
  harness = await Harness.open();
});

test.afterEach.always(async () => {
  for (const connection of opened.splice(0)) connection.close();
  await server.close();
});

test.after.always(() => harness.close());

async function openRegistry(guardBounds: Partial<GuardBounds> = {}): Promise<void> {
  ended = [];
  server = new RegistryServer({
    host: '127.0.0.1',
    port: 0,
    nodeTokens: [TEST_TOKEN],
    membership: harness.stores.nodes,
    onMembersChanged: () => undefined,
    onRefused: () => undefined,
    onFailure: error => assert.fail(String(error)),
    onEnded: cause => ended.push(cause),
    guardBounds,
  });
  await server.listen();
}

async function openConnection(): Promise<RawConnection> {
  const connection = await RawConnection.open(`http://127.0.0.1:${server.port}`);
  opened.push(connection);
  return connection;
}

function openSocket(): Socket {
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => undefined).resume();
  opened.push({ close: () => socket.destroy() });
  return socket;
}

async function beat(connection: RawConnection): Promise<number | undefined> {
  const { stream, ended: end } = connection.call(HEARTBEAT, TEST_TOKEN);
  const request = { nodeId: 'node-1', bootId: randomUUID() };
  stream.end(framed(NodeRegistryService.heartbeat.requestSerialize(request)));
  return (await end).status;
}

test('half a registration › is refused where it announces more than it may, with the token too', async t => {
  await openRegistry();
  const connection = await openConnection();
  for (const token of [undefined, TEST_TOKEN]) {
    const { stream, ended: end } = connection.call(REGISTER, token);
    stream.write(framed(Buffer.alloc(10), MESSAGE_BYTES_SMALL + 1));
    t.is((await end).code, 'INVALID_REQUEST');
  }
  t.deepEqual(ended, ['message_too_large', 'message_too_large']);
});

test('half a registration › has to become whole in time', async t => {
  await openRegistry({ firstMessageWaitMaxMs: 100 });
  const connection = await openConnection();
  const { stream, ended: end } = connection.call(REGISTER);
  stream.write(framed(Buffer.alloc(10), 100));
  t.is((await end).code, 'CALL_DEADLINE_EXCEEDED');
  t.deepEqual(ended, ['message_late']);
});

test('a connection to the registry › that shows no token has an end, one that has shown it has none', async t => {
  await openRegistry({ tokenWaitMaxMs: 1500 });
  const known = await openConnection();
  t.is(await beat(known), status.OK);
  const silent = openSocket();
  const greeted = await openConnection();
  await Promise.all([once(silent, 'close'), greeted.closed]);
  t.is(await beat(known), status.OK);
  t.deepEqual(ended, ['no_token', 'no_token']);
});

test('a connection to the registry › without the token keeps no node out', async t => {
  await openRegistry({ strangersMax: 3 });
  for (let count = 0; count < 12; count += 1) {
    await once(openSocket(), 'connect');
    t.is(await beat(await openConnection()), status.OK);
  }
  t.is(server.connections.known, 12);
  t.true(server.connections.strangers <= 3);
  t.true(ended.every(cause => cause === 'crowded'));
});
