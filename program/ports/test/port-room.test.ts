import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { PortRoom } from '../port-room.ts';

const test = ava.serial;

const CONNECTIONS_MAX = 20;
/** Bounds a wait for an event that should not happen. */
const POLLS_MAX = 2000;
const HEAD = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n';

let server: Server;
let room: PortRoom;
let crowded: number;
const clients: Socket[] = [];

interface OpenRequest {
  readonly client: Socket;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

test.beforeEach(async () => {
  crowded = 0;
  server = createServer();
  server.maxConnections = CONNECTIONS_MAX;
  const onEnded = () => {
    crowded += 1;
  };
  // 5 of 20 connections are kept free, and 4 may have an incomplete body.
  room = new PortRoom(server, { spareShare: 0.25, bodiesShare: 0.2, onEnded });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
test.afterEach.always(() => {
  for (const client of clients.splice(0)) client.destroy();
  server.close();
  server.closeAllConnections();
});

async function connect(localAddress = '127.0.0.1'): Promise<Socket> {
  const taken = once(server, 'connection');
  const { port } = server.address() as AddressInfo;
  const client = net.connect({ port, host: '127.0.0.1', localAddress });
  clients.push(client.on('error', () => undefined).resume());
  await taken;
  return client;
}

async function send(body = ''): Promise<OpenRequest> {
  const client = await connect();
  const opened = once(server, 'request');
  client.write(HEAD + body);
  const [request, response] = (await opened) as [IncomingMessage, ServerResponse];
  return { client, request, response };
}

async function awaited(owner: Parameters<PortRoom['awaitBody']>[2]): Promise<OpenRequest> {
  const opened = await send();
  room.awaitBody(opened.request, opened.response, owner);
  return opened;
}

/** Indexes of the ended ones, after time for more than `count`. */
async function endedOf(all: readonly OpenRequest[], count: number): Promise<number[]> {
  const isEnded = ({ request }: OpenRequest) => request.socket.destroyed;
  for (let polls = 0; polls < POLLS_MAX && all.filter(isEnded).length < count; polls += 1) {
    await delay(2);
  }
  return all.flatMap((one, index) => (isEnded(one) ? [index] : []));
}

test('bodies on their way › of the network with most of them go first, its oldest before the others', async t => {
  const owners = ['a', 'b', 'b', 'b', 'c', 'b', 'd'].map(network => ({ network }));
  const all: OpenRequest[] = [];
  for (const owner of owners) all.push(await awaited(owner));
  t.deepEqual(await endedOf(all, 3), [1, 2, 3]);
  t.is(room.awaitedBodies, 4);
  t.is(crowded, 3);
});

test('bodies on their way › of networks with one each go in the order in which they came', async t => {
  const all: OpenRequest[] = [];
  for (const network of 'abcdefg') all.push(await awaited({ network }));
  t.deepEqual(await endedOf(all, 3), [0, 1, 2]);
});

test('bodies on their way › of an account take no place from strangers, nor theirs from an account', async t => {
  const all: OpenRequest[] = [];
  for (let count = 0; count < 4; count += 1) {
    all.push(await awaited({ network: 'a' }), await awaited({ account: 'one' }));
  }
  t.is(crowded, 0);
  all.push(await awaited({ account: 'another' }));
  t.deepEqual(await endedOf(all, 1), [1]);
});

test('bodies on their way › are not awaited any more once they are whole, answered or gone', async t => {
  const whole = await awaited({ network: 'a' });
  whole.client.write('ab');
  whole.request.resume();
  await once(whole.request, 'end');
  t.is(room.awaitedBodies, 0);
  const answered = await awaited({ network: 'a' });
  answered.response.end();
  await once(answered.response, 'close');
  t.is(room.awaitedBodies, 0);
  const gone = await awaited({ network: 'a' });
  gone.client.resetAndDestroy();
  await until(
    () => `no body to be awaited, of ${room.awaitedBodies}`,
    () => room.awaitedBodies === 0,
  );
  t.true(gone.request.socket.destroyed);
});

test('bodies on their way › that are whole and unread are never the ones to go', async t => {
  const whole = await awaited({ network: 'a' });
  whole.client.write('ab');
  await until('the whole body', () => whole.request.complete);
  const all = [whole];
  for (let count = 0; count < 5; count += 1) all.push(await awaited({ network: 'a' }));
  t.deepEqual(await endedOf(all, 1), [1]);
});

test('a port with few places left › takes that of the stranger who has waited for longest, whatever for', async t => {
  const silent = await connect();
  const half = await awaited({ network: '127.0.0.1' });
  const busy: OpenRequest[] = [];
  for (let count = 0; count < 13; count += 1) busy.push(await send('ab'));
  t.is(crowded, 0);
  const closed = once(silent, 'close');
  busy.push(await send('ab'));
  await closed;
  busy.push(await send('ab'));
  await endedOf([half], 1);
  // Nobody waits, so the remaining connections are used.
  for (let count = 0; count < 5; count += 1) busy.push(await send('ab'));
  t.is(crowded, 2);
  t.true(busy.every(({ request }) => !request.socket.destroyed));
});

test('a port with few places left › takes them of the network with most that wait, before all others', async t => {
  const few = await connect('127.1.0.1');
  const many = [];
  for (let count = 0; count < 5; count += 1) many.push(await connect('127.1.0.2'));
  for (let count = 0; count < 9; count += 1) await send('ab');
  t.is(crowded, 0);
  for (let count = 0; count < 4; count += 1) {
    const closed = once(many[count] ?? few, 'close');
    await send('ab');
    await closed;
  }
  t.false(few.closed);
});

test('a port with few places left › asks accounts last, and of them the one with most', async t => {
  const known = [];
  for (const account of ['one', 'two', 'two']) known.push(await awaited({ account }));
  const stranger = await awaited({ network: 'a' });
  const all = [...known, stranger];
  for (let count = 0; count < 12; count += 1) await send('ab');
  t.deepEqual(await endedOf(all, 1), [3]);
  await send('ab');
  t.deepEqual(await endedOf(all, 2), [1, 3]);
});
