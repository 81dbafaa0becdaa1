/** A service on Galera and a bucket, by docs/install.md; each process is restarted once. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { storesOn } from '../../control-plane/test/fixtures.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import {
  createMachine,
  documentedMachines,
  runOn,
  setUpOnce,
} from '../fleet/documented-machines.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { FleetControlPlane, FleetNode } from '../fleet/program.ts';
import { SteadyLoad } from '../fleet/steady-load.ts';
import { ROOT } from '../running-service.ts';
import { SILENT_LOG } from '../support/database.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';
import { WriterRouter } from '../support/databases/writer-router.ts';
import {
  CREDENTIALS_ENV,
  createObjectStore,
  missingStore,
  type TestObjectStore,
} from '../support/object-storage/object-store.ts';
import { isNotTested } from '../support/skip.ts';
import { photoOf } from './photos.ts';

/** Enough for around nine restarts. */
const PICTURES = 300;
/** The nodes take fewer at once. */
const CALLERS = 6;
/** More than they get: each comes again when the one before is done. */
const PER_SECOND = 100;
const NODES = 3;
const MODELS = {
  MATTING_MODEL_DIR: path.join(ROOT, 'model-cache'),
  MATTING_MODEL: 'u2netp',
  MATTING_CPU_RUNTIME: 'onnxruntime',
};
const PAGE = documentedMachines();

const skip = galeraSkipReason() || missingStore('versitygw');
const test = ava.serial.skipIf(isNotTested(skip));

let directory: string;
let cluster: GaleraCluster;
let router: WriterRouter;
let store: TestObjectStore;
let balancer: TcpProxy;
let apiKey = '';
let pictures = 0;
let planes: readonly FleetControlPlane[] = [];
let nodes: readonly FleetNode[] = [];

ava.serial.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-machines-'));
  cluster = await GaleraCluster.create();
  router = await WriterRouter.open(cluster);
  store = await createObjectStore('versitygw');
  const ports = await findFreePorts(6 + 2 * NODES);
  balancer = await TcpProxy.open(roundRobin([ports[0] ?? 0, ports[3] ?? 0]));
  planes = ['control-1', 'control-2'].map(name => createPlane(name, ports.splice(0, 3)));
  nodes = ['node-1', 'node-2', 'node-3'].map(name => createNode(name, ports.splice(0, 2)));
  apiKey = await setUpOnce(rootOf('control-1'), PAGE.once, {
    models: MODELS,
    migratorUrl: router.url,
  });
  for (const plane of planes) plane.start();
  for (const node of nodes) {
    await runOn(node.version.root, PAGE.nodeFetch, MODELS);
    node.start();
  }
  for (const plane of planes) await plane.untilReady();
});
ava.serial.after.always(async () => {
  for (const program of programs()) await program.kill();
  await balancer?.close();
  await router?.close();
  await store?.close();
  await cluster?.close();
  await rm(directory, { recursive: true, force: true });
});

const programs = () => [...planes, ...nodes];
const token = 'a-long-random-token-of-the-soak';
const baseUrl = () => `http://127.0.0.1:${balancer.port}`;
const rootOf = (name: string) => path.join(directory, name);
const versionOf = (name: string) => ({ name: 'this version', root: rootOf(name) });

function createPlane(name: string, ports: readonly number[]): FleetControlPlane {
  const [http = 0, registry = 0, metrics = 0] = ports;
  createMachine(rootOf(name), PAGE.controlPlane, {
    ...CREDENTIALS_ENV,
    MATTING_DATABASE_URL: router.url,
    MATTING_STORAGE_URL: store.url({ prefix: 'production' }),
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_NODE_TOKEN: token,
    MATTING_BASE_URL: baseUrl(),
    MATTING_HOST: '127.0.0.1',
    MATTING_REGISTRY_HOST: '127.0.0.1',
  });
  const env = { TMPDIR: directory };
  const options = { name, args: PAGE.controlPlaneStart, env, directory };
  const place = { ports: { http, registry, metrics }, nodes: NODES };
  return new FleetControlPlane(versionOf(name), options, place);
}

function createNode(name: string, ports: readonly number[]): FleetNode {
  const [grpc = 0, http = 0] = ports;
  createMachine(rootOf(name), PAGE.node, {
    MATTING_NODE_TOKEN: token,
    MATTING_REGISTRY_ADDRESS: planes.map(plane => `127.0.0.1:${plane.ports.registry}`).join(),
    MATTING_HOST: '127.0.0.1',
  });
  const env = { TMPDIR: directory, ...MODELS };
  const options = { name, args: PAGE.nodeStart, env, directory };
  const place = { ports: { grpc, http }, planes, model: 'u2netp' } as const;
  return new FleetNode(versionOf(name), options, place);
}

test('cuts every picture while each process is restarted', async t => {
  const load = await SteadyLoad.start({
    baseUrl: baseUrl(),
    apiKey,
    perSecond: PER_SECOND,
    openMax: CALLERS,
    clients: [THIS_VERSION],
    picture: photoOf,
  });
  for (const restart of allRestarts()) {
    await load.more(PICTURES / 10);
    await restart();
    for (const plane of planes) await plane.untilReady();
  }
  await load.more(PICTURES / 10);
  await load.finish();
  pictures = load.done.length;
  t.true(pictures >= PICTURES);
  t.log(load.summary());
});

/** One process after the other, each when the one before is back. */
function allRestarts(): (() => Promise<void>)[] {
  return [
    ...nodes.map(node => async () => {
      await node.stop();
      await runOn(node.version.root, PAGE.nodeFetch, MODELS);
      node.start();
    }),
    ...planes.map(plane => async () => {
      await plane.stop();
      plane.start();
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

test('charged each picture once, and lost no attempt of a process that was drained', async t => {
  const database = await openDatabase(router.url, { log: SILENT_LOG });
  try {
    const stores = storesOn(database);
    const account = (await stores.accounts.list()).find(({ name }) => name === 'shop');
    assert.ok(account);
    const credits = await stores.ledger.credits(account.id);
    t.deepEqual([credits?.charged, credits?.reserved], [pictures, 0]);
    t.deepEqual(await stores.ledger.check(), []);
  } finally {
    await database.close();
  }
  for (const program of programs()) await program.stop();
});
