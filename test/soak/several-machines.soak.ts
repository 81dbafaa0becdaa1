/**
 * Two control planes and three nodes on a Galera cluster and a bucket, started by the commands of
 * docs/operations.md as they stand there. They cut pictures with u2netp while each process, the
 * cluster's and the store's too, is restarted once. The caller is the package that callers use: it
 * sees no failure, and every picture is the right one, charged once.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import sharp from 'sharp';
import { findFreePorts } from '../../bin/free-ports.ts';
import { MattingClient } from '../../client/src/index.ts';
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import { storesOn } from '../../control-plane/test/store/fixtures.ts';
import { at } from '../support/at.ts';
import { SILENT_LOG } from '../support/database.ts';
import { urlOfPort } from '../support/databases/cluster.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';
import { Balancer } from '../support/fleet/balancer.ts';
import {
  CREDENTIALS_ENV,
  createObjectStore,
  missingStore,
  type TestObjectStore,
} from '../support/object-storage/object-store.ts';
import { ROOT, until } from '../support/running-service.ts';
import { blocksOf, Machine, variablesOf } from './machine.ts';

const PICTURES = 300;
/** More than the nodes take at once. */
const CALLERS = 6;
const NODES = 3;
const READY_MS_MAX = 240_000;
/** As the command prints it. */
const KEY = /\bmk_\w+/;
/** Of the smallest picture, pixels; no two are of one size. */
const WIDTH_MIN = 200;

const [controlPlaneFile, nodeFile, once, controlPlaneStart, nodeStart, ...rest] = blocksOf(
  'docs/operations.md',
  'A service on several machines',
);
/** The values of this place for what a file of the page names, neither more nor less. */
function valuesFor(block: string | undefined, values: Readonly<Record<string, string>>) {
  const named = Object.keys(variablesOf(block ?? ''));
  assert.deepEqual(named.toSorted(), Object.keys(values).toSorted(), 'the page names others');
  return values;
}

interface Place {
  readonly machine: Machine;
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

const skip = galeraSkipReason() || missingStore('versitygw');

describe('a service on several machines, as documented', { skip }, () => {
  let directory: string;
  let cluster: GaleraCluster;
  let proxy: TcpProxy;
  let store: TestObjectStore;
  let balancer: Balancer;
  let baseUrl: string;
  let apiKey = '';
  const planes: Place[] = [];
  const nodes: Machine[] = [];

  before(async () => {
    assert.equal(rest.length, 0, 'a block of the section that this does not know');
    directory = await mkdtemp(path.join(tmpdir(), 'matting-machines-'));
    cluster = await GaleraCluster.create();
    proxy = await TcpProxy.open(roundRobin(cluster.members.map(({ port }) => port)));
    store = await createObjectStore('versitygw');
    balancer = new Balancer();
    baseUrl = await balancer.listen();
    await install();
    const { machine } = at(planes, 0);
    let printed = '';
    for (const command of (once ?? '').split('\n')) printed = await machine.run(command);
    apiKey = KEY.exec(printed)?.[0] ?? '';
    assert.notEqual(apiKey, '', printed);
    for (const plane of planes) plane.machine.start(controlPlaneStart ?? '');
    for (const node of nodes) await startNode(node);
    for (const plane of planes) await ready(plane);
  });
  after(async () => {
    for (const machine of machines()) await machine.kill();
    await balancer?.close();
    await proxy?.close();
    await store?.close();
    await cluster?.close();
    await rm(directory, { recursive: true, force: true });
  });

  const machines = () => [...planes.map(({ machine }) => machine), ...nodes];

  /** Every machine with its file. */
  async function install(): Promise<void> {
    const ports = await findFreePorts(6 + 2 * NODES);
    const token = 'a-long-random-token-of-the-soak';
    for (const name of ['control-1', 'control-2']) {
      const [http = 0, registry = 0, metrics = 0] = ports.splice(0, 3);
      const values = valuesFor(controlPlaneFile, {
        ...CREDENTIALS_ENV,
        MATTING_DATABASE_URL: urlOfPort(proxy.port),
        MATTING_STORAGE_URL: store.url({ prefix: 'production' }),
        MATTING_SECRETS_KEY: 'ab'.repeat(32),
        MATTING_NODE_TOKEN: token,
        MATTING_BASE_URL: baseUrl,
        MATTING_HOST: '127.0.0.1',
        MATTING_REGISTRY_HOST: '127.0.0.1',
      });
      const machine = new Machine(
        directory,
        name,
        { name: 'control-plane.env', values },
        {
          MATTING_PORT: String(http),
          MATTING_REGISTRY_PORT: String(registry),
          MATTING_METRICS_PORT: String(metrics),
        },
      );
      planes.push({ machine, http, registry, metrics });
    }
    balancer.serve(planes.map(({ http }) => http));
    const registries = planes.map(({ registry }) => `127.0.0.1:${registry}`).join();
    for (let count = 1; count <= NODES; count += 1) {
      const [port = 0, http = 0] = ports.splice(0, 2);
      const values = valuesFor(nodeFile, {
        MATTING_NODE_TOKEN: token,
        MATTING_REGISTRY_ADDRESS: registries,
        MATTING_HOST: '127.0.0.1',
      });
      const shared = {
        MATTING_MODEL: 'u2netp',
        MATTING_NODE_PORT: String(port),
        MATTING_NODE_HTTP_PORT: String(http),
        // Three of them share what one machine has.
        MATTING_ENGINES: '1',
        MATTING_ENGINE_THREADS: '1',
        MATTING_PICTURE_WORKERS: '1',
      };
      nodes.push(new Machine(directory, `node-${count}`, { name: 'node.env', values }, shared));
    }
  }

  async function startNode(node: Machine): Promise<void> {
    const [fetch = '', start = ''] = (nodeStart ?? '').split('\n');
    await node.run(fetch);
    node.start(start);
  }

  /** It serves, and all nodes are there for it. */
  async function ready({ machine, http, metrics }: Place): Promise<void> {
    const wanted = new RegExp(`^matting_control_nodes\\{state="routable"\\} ${NODES}$`, 'm');
    const isReady = async () => {
      const state = await fetch(`http://127.0.0.1:${http}/readyz`);
      await state.arrayBuffer();
      const page = await fetch(`http://127.0.0.1:${metrics}/metrics`);
      return state.ok && wanted.test(await page.text());
    };
    await until(() => isReady().catch(() => false), {
      timeoutMs: READY_MS_MAX,
      what: `${machine.name} has ${NODES} nodes`,
      detail: () =>
        machines()
          .map(one => `${one.name}: ${one.complaints}`)
          .join('\n'),
    });
  }

  it('cuts every picture while each process is restarted', async t => {
    const client = new MattingClient({ baseUrl, apiKey });
    const photo = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));
    let next = 0;
    let done = 0;
    const callers = Array.from({ length: CALLERS }, async () => {
      while (next < PICTURES) {
        const width = WIDTH_MIN + next++;
        const { data, info } = await sharp(photo)
          .resize({ width })
          .jpeg()
          .toBuffer({ resolveWithObject: true });
        const { bytes } = await client.cutOut({ image: data });
        const cutOut = await sharp(bytes).metadata();
        assert.deepEqual([cutOut.width, cutOut.height], [info.width, info.height]);
        assert.ok(cutOut.hasAlpha);
        done += 1;
      }
    });
    const all = Promise.all(callers);
    // Looked at when all restarts are over; a failure before ends the waits below.
    all.catch(() => undefined);
    const restarts = allRestarts();
    for (const [index, restart] of restarts.entries()) {
      const due = ((index + 1) * PICTURES) / (restarts.length + 1);
      while (done < due) await Promise.race([delay(20), all]);
      await restart();
      for (const plane of planes) await ready(plane);
    }
    await all;
    assert.equal(done, PICTURES);
    t.diagnostic(`${PICTURES} pictures, ${restarts.length} restarts, 0 failures`);
  });

  /** One process after the other, each when the one before is back. */
  function allRestarts(): (() => Promise<void>)[] {
    return [
      ...nodes.map(node => async () => {
        await node.stop();
        await startNode(node);
      }),
      ...planes.map(({ machine }) => async () => {
        await machine.stop();
        machine.start(controlPlaneStart ?? '');
      }),
      ...cluster.members.map(member => async () => {
        await member.stop();
        await member.join();
      }),
      async () => {
        await store.kill();
        await store.start();
      },
    ];
  }

  it('charged each picture once, and lost no attempt of a process that was drained', async () => {
    const database = await openDatabase(urlOfPort(proxy.port), { log: SILENT_LOG });
    try {
      const stores = storesOn(database);
      const account = (await stores.accounts.list()).find(({ name }) => name === 'shop');
      assert.ok(account);
      const credits = await stores.ledger.credits(account.id);
      assert.deepEqual([credits?.sums.charge, credits?.reserved], [PICTURES, 0]);
      assert.deepEqual(await stores.ledger.check(), []);
    } finally {
      await database.close();
    }
    for (const machine of machines()) await machine.stop();
  });
});
