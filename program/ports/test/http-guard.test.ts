/** Who makes room on an HTTP port, over a server whose handler answers when it is told to. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PortRoom, type WaitingOwner } from '../http-guard.ts';

const CONNECTIONS_MAX = 20;
/** Ends a wait for what never happens. */
const POLLS_MAX = 2000;
const HEAD = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n';

let server: Server;
let room: PortRoom;
let crowded: number;
const clients: Socket[] = [];

interface Asked {
  readonly client: Socket;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

beforeEach(async () => {
  crowded = 0;
  server = createServer();
  server.maxConnections = CONNECTIONS_MAX;
  const onEnded = () => {
    crowded += 1;
  };
  // Of 20 connections 5 are kept free, and 4 may have a body on its way.
  room = new PortRoom(server, { spareShare: 0.25, bodiesShare: 0.2, onEnded });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
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

/** A request whose headers have come, with what there is of its body. */
async function ask(body = ''): Promise<Asked> {
  const client = await connect();
  const asked = once(server, 'request');
  client.write(HEAD + body);
  const [request, response] = (await asked) as [IncomingMessage, ServerResponse];
  return { client, request, response };
}

/** The same, and its body is awaited from now on. */
async function awaited(owner: WaitingOwner): Promise<Asked> {
  const asked = await ask();
  room.awaitBody(asked.request, asked.response, owner);
  return asked;
}

/** Of these the ones that were ended; more than `count` had as much time. */
async function endedOf(all: readonly Asked[], count: number): Promise<number[]> {
  const isEnded = ({ request }: Asked) => request.socket.destroyed;
  for (let polls = 0; polls < POLLS_MAX && all.filter(isEnded).length < count; polls += 1) {
    await delay(2);
  }
  return all.flatMap((one, index) => (isEnded(one) ? [index] : []));
}

describe('bodies on their way', () => {
  it('of the network with most of them go first, its oldest before the others', async () => {
    const owners = ['a', 'b', 'b', 'b', 'c', 'b', 'd'].map(network => ({ network }));
    const all: Asked[] = [];
    for (const owner of owners) all.push(await awaited(owner));
    assert.deepEqual(await endedOf(all, 3), [1, 2, 3]);
    assert.equal(room.awaitedBodies, 4);
    assert.equal(crowded, 3);
  });

  it('of networks with one each go in the order in which they came', async () => {
    const all: Asked[] = [];
    for (const network of 'abcdefg') all.push(await awaited({ network }));
    assert.deepEqual(await endedOf(all, 3), [0, 1, 2]);
  });

  it('of an account take no place from strangers, nor theirs from an account', async () => {
    const all: Asked[] = [];
    for (let count = 0; count < 4; count += 1) {
      all.push(await awaited({ network: 'a' }), await awaited({ account: 'one' }));
    }
    assert.equal(crowded, 0);
    all.push(await awaited({ account: 'another' }));
    assert.deepEqual(await endedOf(all, 1), [1]);
  });

  it('are not awaited any more once they are whole, answered or gone', async () => {
    const whole = await awaited({ network: 'a' });
    whole.client.write('ab');
    whole.request.resume();
    await once(whole.request, 'end');
    assert.equal(room.awaitedBodies, 0);
    const answered = await awaited({ network: 'a' });
    answered.response.end();
    await once(answered.response, 'close');
    assert.equal(room.awaitedBodies, 0);
    const gone = await awaited({ network: 'a' });
    gone.client.resetAndDestroy();
    while (!gone.request.socket.destroyed) await delay(2);
    assert.equal(room.awaitedBodies, 0);
  });

  it('that are whole and unread are never the ones to go', async () => {
    const whole = await awaited({ network: 'a' });
    whole.client.write('ab');
    while (!whole.request.complete) await delay(2);
    const all = [whole];
    for (let count = 0; count < 5; count += 1) all.push(await awaited({ network: 'a' }));
    assert.deepEqual(await endedOf(all, 1), [1]);
  });
});

describe('a port with few places left', () => {
  it('takes that of the stranger who has waited for longest, whatever for', async () => {
    const silent = await connect();
    const half = await awaited({ network: '127.0.0.1' });
    const busy: Asked[] = [];
    for (let count = 0; count < 13; count += 1) busy.push(await ask('ab'));
    assert.equal(crowded, 0);
    const closed = once(silent, 'close');
    busy.push(await ask('ab'));
    await closed;
    busy.push(await ask('ab'));
    await endedOf([half], 1);
    // Nobody waits: the places that are left are taken.
    for (let count = 0; count < 5; count += 1) busy.push(await ask('ab'));
    assert.equal(crowded, 2);
    assert.ok(busy.every(({ request }) => !request.socket.destroyed));
  });

  it('takes them of the network with most that wait, before all others', async () => {
    const few = await connect('127.1.0.1');
    const many = [];
    for (let count = 0; count < 5; count += 1) many.push(await connect('127.1.0.2'));
    for (let count = 0; count < 9; count += 1) await ask('ab');
    assert.equal(crowded, 0);
    for (let count = 0; count < 4; count += 1) {
      const closed = once(many[count] ?? few, 'close');
      await ask('ab');
      await closed;
    }
    assert.equal(few.closed, false);
  });

  it('asks accounts last, and of them the one with most', async () => {
    const known = [];
    for (const account of ['one', 'two', 'two']) known.push(await awaited({ account }));
    const stranger = await awaited({ network: 'a' });
    const all = [...known, stranger];
    for (let count = 0; count < 12; count += 1) await ask('ab');
    assert.deepEqual(await endedOf(all, 1), [3]);
    await ask('ab');
    assert.deepEqual(await endedOf(all, 2), [1, 3]);
  });
});
