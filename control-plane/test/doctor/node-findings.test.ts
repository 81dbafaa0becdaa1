/** What the doctor says of nodes that answer with anything: each is looked at on its own. */
import ava from 'ava';
import { nodeFindings } from '../../src/doctor/fleet-findings.ts';
import type { NodeMember } from '../../src/store/cluster/node-store.ts';
import { type LoopbackSource, openSource } from '../sources/loopback-source.ts';

const test = ava.serial;

const GOOD = {
  version: '1.0.0',
  plan: 'isnet',
  executionProviderSelected: 'cpu',
  engines: 1,
  pictureWorkers: 1,
  limits: { megapixelsMax: 100, imagesMax: 4 },
};
/** By what it answers as `/info`. */
const ANSWERS = {
  good: JSON.stringify(GOOD),
  null: 'null',
  text: '"node"',
  noLimits: '{"version":"1","limits":null}',
  html: '<html>',
};
const servers: LoopbackSource[] = [];
const places = new Map<string, string>();
const placeOf = (name: string) => places.get(name) ?? '';

test.before(async () => {
  for (const [name, answer] of Object.entries(ANSWERS)) {
    const server = await openSource((_, response) => response.end(answer));
    servers.push(server);
    places.set(name, `127.0.0.1:${server.port}`);
  }
});
test.after.always(async () => {
  for (const server of servers) await server[Symbol.asyncDispose]();
});

function member(nodeId: string, address: string, httpAddress: string): NodeMember {
  return {
    ...{ nodeId, bootId: 'b', address, httpAddress, version: '1.0.0' },
    ...{ registeredAtMs: 0, heartbeatAtMs: 0, leaseExpiresAtMs: 0 },
    ...{ draining: false, live: true, gone: false },
  };
}

test('one node with an answer or an address of nonsense hides no other', async t => {
  const members = [
    member('bad-port', '127.0.0.1:99999999', ''),
    member('no-port', 'somewhere', ''),
    member('bad-http', placeOf('good'), '127.0.0.1:99999999'),
    ...Object.keys(ANSWERS).map(name => member(name, placeOf(name), placeOf(name))),
  ];
  const findings = await nodeFindings(members, false);
  const of = (nodeId: string) =>
    findings.filter(({ subject }) => subject === `node ${nodeId}`).map(({ status }) => status);
  t.deepEqual(of('good'), ['ok']);
  for (const nodeId of ['bad-port', 'no-port']) t.deepEqual(of(nodeId), ['failure'], nodeId);
  for (const nodeId of ['bad-http', 'null', 'text', 'noLimits', 'html']) {
    t.deepEqual(of(nodeId), ['warning'], nodeId);
  }
});
