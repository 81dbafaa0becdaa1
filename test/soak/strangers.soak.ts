/** Callers without a token do their worst: memory stays flat, others are served. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { credentials } from '@grpc/grpc-js';
import ava, { type ExecutionContext } from 'ava';
import { tokenMetadata } from '../../inference-node/serving/grpc/callers.ts';
import { MatteServiceClient } from '../../proto/gen/matting/v1/matte_service.ts';
import { NodePort, TOKEN } from './node-port.ts';
import { ATTACKS } from './stranger-attack.ts';

const test = ava.serial;

const ATTACK_MS = 40_000;
const CONNECTIONS = 256;
/** Sockets, sessions and what the system's allocator keeps; an unbounded port takes gigabytes. */
const GROWTH_BYTES_MAX = 250_000_000;

let node: NodePort;

test.before(async () => {
  node = await NodePort.open();
});
test.after.always(() => node.close());

/** Each over a connection of its own, as a control plane that has just started. */
async function askWithToken(): Promise<number> {
  const options = { 'grpc.use_local_subchannel_pool': 1 };
  const address = `127.0.0.1:${node.port}`;
  const client = new MatteServiceClient(address, credentials.createInsecure(), options);
  const startedMs = performance.now();
  try {
    await new Promise<void>((resolve, reject) => {
      const deadline = Date.now() + 60_000;
      const metadata = tokenMetadata(TOKEN);
      client.getNodeInfo({}, metadata, { deadline }, error => (error ? reject(error) : resolve()));
    });
  } finally {
    client.close();
  }
  return performance.now() - startedMs;
}

async function underAttack(t: ExecutionContext, name: string): Promise<void> {
  await askWithToken();
  const before = await node.residentBytes();
  const args = [name, String(node.port), String(CONNECTIONS)];
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
    most = Math.max(most, await node.residentBytes());
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
