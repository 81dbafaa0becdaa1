/** The doctor examines nodes by what control planes see and by what this machine reaches. */

import { viewNodes } from '@matting/core/operator/operate-nodes.ts';
import { type LoopbackSource, openSource } from '@matting/http/test/loopback-source.ts';
import type { NodeMember } from '@matting/nodes/node-store.ts';
import type { SightedNode, Sightings } from '@matting/nodes/sighting-store.ts';
import ava from 'ava';
import { nodeFindings } from './node-findings.ts';

const test = ava.serial;

const GOOD = {
  version: '1.0.0',
  plan: 'isnet',
  executionProviderSelected: 'cpu',
  engines: 1,
  pictureWorkers: 1,
  limits: { megapixelsMax: 100, imagesMax: 4 },
};
/** Each node answers this as `/info`. */
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

const NO_JOBS = { jobs: 0, oldestAgeMs: 0 };

/** Makes sightings in which each of these control planes sees these nodes. */
function seenBy(
  replicas: readonly string[],
  ...nodes: (Pick<SightedNode, 'nodeId'> & Partial<SightedNode>)[]
): Sightings {
  const seen = { bootId: 'b', state: 'serving', cause: null, sinceMs: 0 } as const;
  return {
    replicas,
    all: replicas.flatMap(replica => nodes.map(node => ({ ...seen, ...node, replica }))),
  };
}

function member(nodeId: string, address: string, httpAddress: string): NodeMember {
  return {
    ...{ nodeId, bootId: 'b', address, httpAddress, version: '1.0.0' },
    ...{ registeredAtMs: 0, heartbeatAtMs: 0, leaseExpiresAtMs: 0 },
    ...{ draining: false, live: true, gone: false, models: null, runsOn: null },
  };
}

function examine(
  members: readonly NodeMember[],
  sightings: Sightings,
  others: Omit<Parameters<typeof nodeFindings>[0], 'nodes' | 'replicas'>,
) {
  const { replicas } = sightings;
  return nodeFindings({ nodes: viewNodes(members, sightings), replicas, ...others });
}

test('one node with an answer or an address of nonsense hides no other', async t => {
  const members = [
    member('bad-port', '127.0.0.1:99999999', ''),
    member('no-port', 'somewhere', ''),
    member('bad-http', placeOf('good'), '127.0.0.1:99999999'),
    ...Object.keys(ANSWERS).map(name => member(name, placeOf(name), placeOf(name))),
  ];
  const sightings = seenBy([]);
  const findings = await examine(members, sightings, { queued: NO_JOBS, onDemand: false });
  const of = (nodeId: string) =>
    findings.filter(({ subject }) => subject === `node ${nodeId}`).map(({ status }) => status);
  t.deepEqual(of('good'), ['ok']);
  for (const nodeId of ['bad-port', 'no-port']) t.deepEqual(of(nodeId), ['failure'], nodeId);
  for (const nodeId of ['bad-http', 'null', 'text', 'noLimits', 'html']) {
    t.deepEqual(of(nodeId), ['warning'], nodeId);
  }
});

const EXPIRED = { state: 'unreachable', cause: 'its certificate has expired' } as const;

async function nodesOf(
  members: readonly NodeMember[],
  sightings: Sightings,
  { queued = NO_JOBS, onDemand = false } = {},
) {
  const findings = await examine(members, sightings, { queued, onDemand });
  const lines = (subject: string) =>
    findings
      .filter(one => one.subject === subject)
      .map(({ status, found }) => `${status}: ${found}`);
  return { lines, nodes: lines('nodes').filter(line => !line.includes('and this is')) };
}

test('one that has a lease and that no control plane reaches is a failure with its cause', async t => {
  const members = [member('a', placeOf('good'), placeOf('good'))];
  const queued = { jobs: 3, oldestAgeMs: 174_000 };
  const { lines, nodes } = await nodesOf(members, seenBy(['one'], { nodeId: 'a', ...EXPIRED }), {
    queued,
  });
  t.regex(nodes[0] ?? '', /^failure: none of 1 takes images: a \(its certificate has expired\)/);
  t.regex(nodes[0] ?? '', /3 jobs waited for up to 174 s/);
  t.regex(lines('node a').join(), /^failure: no control plane reaches it: its certificate/);
  // Nodes that come with the work do not excuse a node that came in vain.
  const onDemand = await nodesOf(members, seenBy(['one'], { nodeId: 'a', ...EXPIRED }), {
    onDemand: true,
  });
  t.regex(onDemand.nodes[0] ?? '', /^failure: none of 1/);
  t.regex((await nodesOf([], seenBy(['one']), { onDemand: true })).nodes[0] ?? '', /^ok: 0 of 0/);
});

test('some that take none are a warning, each a failure of its own', async t => {
  const members = ['a', 'b'].map(name => member(name, placeOf('good'), placeOf('good')));
  const sightings = seenBy(['one'], { nodeId: 'a' }, { nodeId: 'b', ...EXPIRED });
  const { lines, nodes } = await nodesOf(members, sightings);
  t.deepEqual(nodes, [
    'ok: 1 of 2 take images',
    'warning: 1 is unreachable: b (its certificate has expired)',
  ]);
  t.regex(lines('node a').join(), /^ok: /);
  t.regex(lines('node b').join(), /^failure: /);
});

test('a node whose address another node has registered since its last heartbeat is no finding', async t => {
  const at = (nodeId: string, changes: Partial<NodeMember>) => {
    return { ...member(nodeId, placeOf('good'), placeOf('good')), ...changes };
  };
  // The database's clock went back after it registered: no other node shows that it is gone.
  const next = at('next', { registeredAtMs: 200, heartbeatAtMs: 190 });
  const [unreachable, serving] = [{ nodeId: 'old', ...EXPIRED }, { nodeId: 'next' }];
  const sightings = seenBy(['one'], unreachable, serving);
  for (const live of [true, false]) {
    const old = at('old', { heartbeatAtMs: 100, live });
    const { lines, nodes } = await nodesOf([old, next], sightings);
    t.deepEqual([nodes, lines('node old')], [['ok: 1 of 2 take images'], []]);
  }
  const beating = await nodesOf([at('old', { heartbeatAtMs: 300 }), next], sightings);
  t.regex(beating.lines('node old').join(), /^failure: /);
  const alone = at('old', { heartbeatAtMs: 100, live: false });
  const ended = await nodesOf([alone, { ...next, live: false }], seenBy(['one']));
  t.regex(ended.nodes.join(), /2 are silent/);
});

test('a fault that one of two control planes sees is a warning', async t => {
  const members = [member('a', placeOf('good'), placeOf('good'))];
  const [one, two] = [
    seenBy(['one'], { nodeId: 'a' }),
    seenBy(['two'], { nodeId: 'a', ...EXPIRED }),
  ];
  const both = { replicas: ['one', 'two'], all: [...one.all, ...two.all] };
  const { lines, nodes } = await nodesOf(members, both);
  t.is(nodes[0], 'ok: 1 of 1 take images');
  t.regex(nodes[1] ?? '', /^warning: some .* a \(its certificate .*1 of 2 control planes/);
  t.regex(lines('node a').join(), /^ok: /);
});

test('a node that only the control planes reach is fine', async t => {
  const members = [member('a', '127.0.0.1:99999999', '')];
  const { lines, nodes } = await nodesOf(members, seenBy(['one'], { nodeId: 'a' }));
  t.deepEqual(nodes, ['ok: 1 of 1 take images']);
  t.regex(lines('node a').join(), /^ok: control planes reach it; this machine cannot/);
  // If no control plane reports, the doctor has only what this machine sees.
  const alone = await nodesOf(members, seenBy([]));
  t.regex(alone.nodes[0] ?? '', /^warning: no control plane says/);
  t.regex(alone.lines('node a').join(), /^failure: cannot reach/);
});

test('one whose engines load takes no images yet', async t => {
  const members = [member('a', placeOf('good'), placeOf('good'))];
  const starting = { state: 'starting', cause: 'its engines are loading' } as const;
  const { nodes } = await nodesOf(members, seenBy(['one'], { nodeId: 'a', ...starting }));
  t.regex(nodes.join('\n'), /^failure: none .*loading.*\nwarning: 1 is reached, without taking/);
});

test('say which have another sum of a model, and what is offered that none has', async t => {
  const having = (nodeId: string, sha256: string) => {
    const models = [{ name: 'isnet', kind: 'model' as const, sha256 }];
    return { ...member(nodeId, '', ''), live: sha256 !== '', models };
  };
  const said = async (members: readonly NodeMember[]) =>
    (
      await examine(members, seenBy(['one'], ...members.map(({ nodeId }) => ({ nodeId }))), {
        queued: NO_JOBS,
        onDemand: true,
        offered: ['isnet', 'gone'],
      })
    )
      .filter(({ subject, status }) => subject === 'nodes' && status === 'warning')
      .map(({ found }) => found)
      .filter(found => /isnet|gone/.test(found));
  const nodes = [having('a', '1'), having('b', '2'), having('c', '2')];
  const [other, missing, ...rest] = await said(nodes);
  t.regex(other ?? '', /^a .*isnet/);
  t.regex(missing ?? '', /MATTING_MODELS_OFFERED .*gone/);
  t.deepEqual(rest, []);
  t.deepEqual(await said([member('a', '', '')]), [], 'what no node has said is not known');
});
