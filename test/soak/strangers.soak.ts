/**
 * Callers without a token or a key do their worst for a while, over connections that keep no rule
 * of HTTP/2: the memory of the process stays flat, and callers with a token are served beside them.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { credentials } from '@grpc/grpc-js';
import ava, { type ExecutionContext } from 'ava';
import { MatteServiceClient } from '#gen/matting/v1/matte_service.ts';
import { tokenMetadata } from '../../inference-node/src/grpc/callers.ts';
import { Ports } from './ports.ts';
import { ATTACKS } from './stranger-attack.ts';

const test = ava.serial;

const ATTACK_MS = 40_000;
const CONNECTIONS = 256;
/** Sockets, sessions and what the system's allocator keeps; an unbounded port takes gigabytes. */
const GROWTH_BYTES_MAX = 250_000_000;

let open: Ports;
let ports: Ports['places'];

test.before(async () => {
  open = await Ports.open();
  ports = open.places;
});
test.after.always(() => open.close());

/** Each over a connection of its own, as a control plane that has just started. */
async function askWithToken(): Promise<number> {
  const options = { 'grpc.use_local_subchannel_pool': 1 };
  const address = `127.0.0.1:${ports.node}`;
  const client = new MatteServiceClient(address, credentials.createInsecure(), options);
  const startedMs = performance.now();
  try {
    await new Promise<void>((resolve, reject) => {
      const deadline = Date.now() + 60_000;
      const metadata = tokenMetadata(ports.nodeToken);
      client.getNodeInfo({}, metadata, { deadline }, error => (error ? reject(error) : resolve()));
    });
  } finally {
    client.close();
  }
  return performance.now() - startedMs;
}

async function underAttack(t: ExecutionContext, name: string): Promise<void> {
  await askWithToken();
  const before = await open.residentBytes();
  const args = [name, String(ports.node), String(CONNECTIONS)];
  const attacker = fork(path.join(import.meta.dirname, 'stranger-attack.ts'), args);
  const endsAtMs = performance.now() + ATTACK_MS;
  let most = before;
  const asked: number[] = [];
  const failures: string[] = [];
  while (performance.now() < endsAtMs) {
    await delay(250);
    try {
      asked.push(await askWithToken());
    } catch (error) {
      failures.push(String(error));
    }
    most = Math.max(most, await open.residentBytes());
  }
  const exited = once(attacker, 'exit');
  attacker.kill();
  await exited;
  const megabytes = (bytes: number) => Math.round(bytes / 1e6);
  console.log(
    `${name}: ${megabytes(before)} MB, at most ${megabytes(most)} MB; ${asked.length} calls with ` +
      `the token, the longest ${Math.round(Math.max(...asked))} ms, ${failures.length} failed`,
  );
  t.true(most - before < GROWTH_BYTES_MAX, name);
  t.deepEqual(failures, [], name);
  t.true(asked.length > 0);
}

for (const name of Object.keys(ATTACKS)) {
  test(`a node under ${CONNECTIONS} connections of ${name}`, async t => {
    await underAttack(t, name);
  });
}

test('the public port under readers that read nothing', async t => {
  const before = await open.residentBytes();
  const sockets: net.Socket[] = [];
  const statuses = new Map<string, number>();
  for (const link of ports.links) {
    for (let reader = 0; reader < 20; reader += 1) {
      const socket = net.connect(ports.rest, '127.0.0.1');
      socket.on('error', () => undefined);
      sockets.push(socket);
      socket.write(`GET ${link} HTTP/1.1\r\nHost: x\r\n\r\n`);
      const [first] = (await once(socket, 'data')) as [Buffer];
      socket.pause();
      const status = first.toString('latin1', 9, 12);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  }
  const most = await open.residentBytes();
  console.log(`readers: ${JSON.stringify([...statuses])}, ${Math.round((most - before) / 1e6)} MB`);
  // The one account that they are of has a share; its first readers may be cut off by now.
  t.true(statuses.get('200')! >= 256 && statuses.get('429')! > 0);
  t.is(
    [...statuses.values()].reduce((sum, count) => sum + count),
    sockets.length,
  );
  t.true(most - before < GROWTH_BYTES_MAX);
  const keyed = await fetch(`http://127.0.0.1:${ports.rest}/v1/account`, {
    headers: { authorization: `Bearer ${ports.apiKey}`, 'idempotency-key': 'one' },
  });
  t.is(keyed.status, 200);
  // The pace ends them all, though they hold on.
  let served = false;
  while (!served) {
    await delay(1000);
    const answer = await fetch(`http://127.0.0.1:${ports.rest}${ports.links[0]}`);
    await answer.arrayBuffer();
    served = answer.status === 200;
  }
  for (const socket of sockets) socket.destroy();
});
