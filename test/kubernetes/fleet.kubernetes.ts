/** Upgrades and scaling under load. Needs: object-storage, removebg, mcp. */
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import ava from 'ava';
import sharp from 'sharp';
import { MattingClient } from '../../client/src/index.ts';
import { encode, pictureOf } from '../chaos/manners.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { type Picture, SteadyLoad } from '../fleet/steady-load.ts';
import { isNotTested } from '../support/skip.ts';
import { Cluster } from './cluster.ts';
import { CHART, skipWithout } from './helm.ts';
import {
  ask,
  DATABASE_URL,
  makeVolume,
  makeWeights,
  openBucket,
  openDatabase,
  PROMETHEUS_URL,
  STORAGE,
  STORAGE_URL,
  startKeda,
  startPrometheus,
} from './outside.ts';

const test = ava.serial;

const NAMESPACE = 'fleet';
const PLACE = ['--namespace', NAMESPACE];
const SERVICE = 'http://matting.fleet.svc';
const CALLERS = 4;
/** More than can be served: callers follow each other without pause. */
const PER_SECOND = 100;
/** `keda.holdS` is five minutes; then the autoscaler has to notice. */
const TO_ZERO_MS_MAX = 1_200_000;
const WAIT = ['--wait', '--timeout', '15m'];
const RESOURCES = { requests: { cpu: '100m', memory: '512Mi' }, limits: { memory: '2Gi' } };
const VALUES = {
  secret: { name: 'matting' },
  images: { registry: 'localhost', pullPolicy: 'Never' },
  database: { kind: 'mysql' },
  storage: { kind: 's3', url: STORAGE_URL },
  schedules: { backup: '17 2 * * *', restoreCheck: '17 5 * * 0' },
  backups: { size: '1Gi', storageClassName: 'backups' },
  controlPlane: {
    image: { tag: 'dev' },
    replicas: 2,
    resources: {
      // This kubelet counts no disk.
      requests: { cpu: '100m', memory: '256Mi', 'ephemeral-storage': '0' },
      limits: { memory: '1Gi' },
    },
    env: { MATTING_SUBMISSIONS_PER_MINUTE: '100000', MATTING_READS_PER_MINUTE: '100000' },
  },
  nodes: {
    defaults: {
      image: { tag: 'dev', variant: 'bare' },
      weightsClaim: 'weights',
      replicas: 2,
      resources: RESOURCES,
      env: { MATTING_MODEL: 'u2netp', MATTING_ENGINES: '1', MATTING_PICTURE_WORKERS: '1' },
    },
  },
};

let cluster: Cluster;
let apiKey: string;
let backups: string;
const values = () => ['--values', cluster.file('values.json', JSON.stringify(VALUES))];

async function matting(...args: readonly string[]): Promise<string> {
  const exec = ['exec', 'deploy/matting-control-plane', '--', 'matting'];
  return await cluster.api.kubectl(...PLACE, ...exec, ...args);
}

test.before(async () => {
  // Each program adds an exit listener.
  process.setMaxListeners(0);
  cluster = await Cluster.start();
  await openDatabase();
  await openBucket(cluster);
  await cluster.api.kubectl('create', 'namespace', NAMESPACE);
  const enforce = 'pod-security.kubernetes.io/enforce=restricted';
  await cluster.api.kubectl('label', 'namespace', NAMESPACE, enforce);
  const secrets = {
    'node-token': 'a-node-token-of-the-cluster',
    'secrets-key': 'ab'.repeat(32),
    'database-url': DATABASE_URL,
    'aws-access-key-id': STORAGE.key,
    'aws-secret-access-key': STORAGE.secret,
  };
  const literals = Object.entries(secrets).map(([key, text]) => `--from-literal=${key}=${text}`);
  await cluster.api.kubectl(...PLACE, 'create', 'secret', 'generic', 'matting', ...literals);
  makeWeights(cluster, NAMESPACE, 'u2netp');
  backups = makeVolume(cluster, 'backups', { storageClassName: 'backups' });
  await startPrometheus(cluster, NAMESPACE);
  await cluster.api.helm('install', 'matting', CHART, ...PLACE, ...values(), ...WAIT);
  await matting('accounts', 'create', 'shop');
  await matting('credits', 'grant', 'shop', '100000');
  const said = await matting('keys', 'create', '--account', 'shop', '--name', 'load');
  apiKey = /mk_\w+/.exec(said)?.[0] ?? '';
});

test.after.always(() => cluster?.close());

/** Failures that the photo did not cause. */
async function attemptsLost(): Promise<number> {
  const lost = 'sum(matting_control_attempts_total{outcome=~"lost|node-fault|local-fault"})';
  return (await ask(lost)) ?? 0;
}

/** Its unique size identifies the cut-out. */
async function photo(number: number): Promise<Picture> {
  const picture = pictureOf(number);
  return {
    file: await encode(picture),
    requireCutOut: async cutOut => {
      const { width, height } = await sharp(cutOut).metadata();
      assert.deepEqual([width, height], [picture.width, picture.height]);
    },
  };
}

async function underLoad(name: string, change: () => Promise<unknown>): Promise<void> {
  const load = await SteadyLoad.start({
    baseUrl: SERVICE,
    apiKey,
    perSecond: PER_SECOND,
    openMax: CALLERS,
    clients: [THIS_VERSION],
    picture: photo,
  });
  await load.more(CALLERS);
  const before = load.done.length;
  await Promise.all([change(), load.more(1)]);
  const during = load.done.length - before;
  await load.more(CALLERS);
  await load.finish();
  console.log(`${name}: ${during} pictures meanwhile, ${load.retries} tries again, no failure`);
}

async function rolledOut(): Promise<void> {
  for (const name of ['matting-control-plane', 'matting-node-cpu']) {
    await cluster.api.kubectl(...PLACE, 'rollout', 'status', `deployment/${name}`, '--timeout=15m');
  }
  await cluster.waitFor(
    'the pods of before are gone',
    [...PLACE, 'get', 'pods', '--output', 'jsonpath={.items[*].metadata.deletionTimestamp}'],
    /^$/,
  );
}

test('an upgrade of control planes and nodes under load shows no failure', async t => {
  await underLoad('upgrade', async () => {
    const set = [
      'controlPlane.env.MATTING_LOG_LEVEL=debug',
      'nodes.defaults.env.MATTING_LOG_LEVEL=debug',
    ];
    const more = set.flatMap(pair => ['--set', pair]);
    await cluster.api.helm('upgrade', 'matting', CHART, ...PLACE, ...values(), ...more, ...WAIT);
    await rolledOut();
  });
  t.is(await attemptsLost(), 0);
});

test('a rollback under load shows none either', async t => {
  await t.notThrowsAsync(
    underLoad('rollback', async () => {
      await cluster.api.helm('rollback', 'matting', '1', ...PLACE, ...WAIT);
      await rolledOut();
    }),
  );
});

test('an upgrade that cannot start leaves the pods of before at work', async t => {
  await underLoad('failed upgrade', async () => {
    const wrong = [
      '--set',
      'controlPlane.env.MATTING_LOG_LEVEL=nonsense',
      '--no-hooks',
      '--timeout',
      '30s',
    ];
    await t.throwsAsync(
      cluster.api.helm('upgrade', 'matting', CHART, ...PLACE, ...values(), '--wait', ...wrong),
    );
    await cluster.api.helm('rollback', 'matting', ...PLACE, ...WAIT);
    await rolledOut();
  });
});

test('nodes that go under load finish what they have', async t => {
  const before = await attemptsLost();
  await underLoad('scale-in', async () => {
    await cluster.api.kubectl(...PLACE, 'scale', 'deployment/matting-node-cpu', '--replicas=1');
    await rolledOut();
  });
  t.is(await attemptsLost(), before);
});

test.skipIf(isNotTested(skipWithout('keda-operator', 'keda-adapter')))(
  'KEDA scales the fleet to zero without work, and back up for new work',
  async t => {
    await startKeda(cluster);
    const set = [
      'keda.enabled=true',
      `keda.prometheus.serverAddress=${PROMETHEUS_URL}`,
      'keda.nodesMax=2',
    ];
    const more = set.flatMap(pair => ['--set', pair]);
    await cluster.api.helm('upgrade', 'matting', CHART, ...PLACE, ...values(), ...more, ...WAIT);
    const nodes = [
      ...[...PLACE, 'get', 'deployment', 'matting-node-cpu'],
      ...['--output', 'jsonpath=<{.status.replicas}>'],
    ];
    await cluster.waitFor('no node is left', nodes, /<>/, TO_ZERO_MS_MAX);
    t.is(await ask('sum(max by (model) (matting_control_waiting_megapixels))'), 0);
    // No node runs: the queue keeps it until one has started.
    const { file, requireCutOut } = await photo(0);
    const { bytes } = await new MattingClient({ baseUrl: SERVICE, apiKey }).cutOut({ image: file });
    await requireCutOut(bytes);
    t.regex(await cluster.api.kubectl(...nodes), /<[12]>/);
  },
);

test('the ledger is right after all of it', async t => {
  await t.notThrowsAsync(matting('credits', 'check', '--full'));
});

test('a backup is made, and every link proven, by the clock', async t => {
  for (const name of ['backup', 'restore-check']) {
    await cluster.api.kubectl(
      ...[...PLACE, 'create', 'job', name, `--from=cronjob/matting-${name}`],
    );
    const done = ['--for=condition=complete', '--timeout=600s', `job/${name}`];
    await t.notThrowsAsync(cluster.api.kubectl(...PLACE, 'wait', ...done), name);
  }
  t.is(globSync('20*/backup.json', { cwd: backups }).length, 1);
});
