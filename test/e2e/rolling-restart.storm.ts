/** Control planes and nodes restarted under load. Needs: object-storage. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { FleetUnderLoad } from '../fleet/fleet-under-load.ts';
import { openOneMachine } from '../fleet/ground.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import { TestAuthority } from '../support/certificates.ts';
import { skipReason } from '../support/database.ts';
import { isNotTested } from '../support/skip.ts';

const test = ava.serial.skipIf(isNotTested(skipReason('mysql')));

const OPERATOR_KEY = 'an-operator-key-for-a-rolling-restart';
const SERVER_NAME = 'matting.internal';
/** More than the nodes take, so that some wait in every queue there is. */
const PER_SECOND = 20;

/** One machine whose programs trust each other by certificates. */
async function openWithTls(directory: string) {
  const authority = new TestAuthority();
  const { cert, key } = authority.issue('fleet', [SERVER_NAME]);
  const at = (name: string) => path.join(directory, name);
  await writeFile(at('own.pem'), cert);
  await writeFile(at('own.key'), key);
  await writeFile(at('ca.pem'), authority.cert);
  const env = {
    MATTING_TLS_CERT_FILE: at('own.pem'),
    MATTING_TLS_KEY_FILE: at('own.key'),
    MATTING_TLS_CLIENT_CA_FILE: at('ca.pem'),
    MATTING_TLS_SERVER_CA_FILE: at('ca.pem'),
    MATTING_TLS_SERVER_NAME: SERVER_NAME,
  };
  return { ...(await openOneMachine(directory)), env };
}

let service: FleetUnderLoad;

ava.serial.before(async () => {
  service = await FleetUnderLoad.start({
    controlPlanes: 2,
    nodes: 3,
    model: 'tiny',
    openGround: openWithTls,
    env: {
      MATTING_OPERATOR_KEY: OPERATOR_KEY,
      // Some answers come in time and some do not.
      MATTING_SYNC_WAIT_MS: '1500',
    },
  });
});
ava.serial.after.always(() => service?.close());

test('an operator sees a node through a control plane', async t => {
  const { metrics } = service.fleet.plane(0).ports;
  const answer = await fetch(`http://127.0.0.1:${metrics}/operator/nodes/node-1/info`, {
    headers: { authorization: `Bearer ${OPERATOR_KEY}` },
  });
  const info = (await answer.json()) as { nodeId: string; plan: string };
  t.deepEqual([info.nodeId, info.plan], ['node-1', 'tiny']);
});

test('shows no failure to a client that retries', async t => {
  const { fleet } = service;
  await service.begin(PER_SECOND, uniformPicture);
  for (const program of [
    fleet.nodes[0],
    fleet.plane(0),
    fleet.nodes[1],
    fleet.plane(1),
    fleet.nodes[2],
  ]) {
    assert.ok(program);
    await program.stop();
    // The programs that are left carry on.
    await service.load.more(2);
    program.start();
    for (const plane of fleet.planes) await plane.untilReady();
    await service.load.more(2);
  }
  for (const program of fleet.programs) t.deepEqual(program.complaints(), [], program.name);
});

test('cut out and charged every image once, and lost no attempt', t =>
  t.notThrowsAsync(service.finish(t, 0)));
