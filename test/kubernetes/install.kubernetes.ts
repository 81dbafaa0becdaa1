/** docs/kubernetes.md as printed. Needs: object-storage. */
import { copyFileSync, mkdtempSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import sharp from 'sharp';
import { blocksOf } from '../fleet/documented-machines.ts';
import { ROOT } from '../running-service.ts';
import { Cluster, REGISTRY } from './cluster.ts';
import { makeVolume, startRegistry } from './outside.ts';

const test = ava.serial;

/** The page's name for a registry. */
const PLACEHOLDER = 'registry.example/team';

let cluster: Cluster;
let desk: string;
let apiKey: string;
let registries: string;

test.before(async () => {
  cluster = await Cluster.start([]);
  registries = await startRegistry(cluster);
  makeVolume(cluster, 'first');
  desk = mkdtempSync(path.join(cluster.directory, 'desk-'));
  symlinkSync(path.join(ROOT, 'deploy'), path.join(desk, 'deploy'));
  copyFileSync(path.join(ROOT, 'docs/images/demo.jpg'), path.join(desk, 'photo.jpg'));
});

test.after.always(() => cluster?.close());

test('the commands of the page build, push and install a service that cuts a picture out', async t => {
  const commands = blocksOf('docs/kubernetes.md', 'Install').join('\n').split('\n');
  const [names = '', build = '', ...rest] = commands;
  const installing = rest.splice(0, 5);
  const keys = rest.filter(line => line.includes(' exec '));
  const [forward = '', cut = ''] = rest.filter(line => /port-forward|curl/.test(line));
  t.deepEqual([commands.length, keys.length], [12, 3]);
  t.true(names.includes(PLACEHOLDER));
  // Reuses built images, because nothing can be downloaded.
  const own = `${names.replace(PLACEHOLDER, `${REGISTRY}/team`)}
    export CONTAINERS_REGISTRIES_CONF=${registries} PULL=never\n`;
  await cluster.api.shell(`${own}${build}`, ROOT);
  const startMs = performance.now();
  for (const line of installing) await cluster.api.shell(`${own}${line}`, desk);
  console.log(`installed in ${Math.round((performance.now() - startMs) / 1000)} s`);
  const enforce = 'pod-security.kubernetes.io/enforce=restricted';
  await cluster.api.kubectl('label', 'namespace', 'matting', enforce);
  let said = '';
  for (const line of keys) said = await cluster.api.shell(line, desk);
  apiKey = /mk_\w+/.exec(said)?.[0] ?? '';
  t.not(apiKey, '');
  const script = `MATTING_API_KEY=${apiKey}\n${forward}\n${cut}\nkill $!`;
  await cluster.api.shell(script, desk);
  const [photo, cutout] = await Promise.all(
    ['photo.jpg', 'cutout.png'].map(name => sharp(path.join(desk, name)).metadata()),
  );
  t.deepEqual([cutout?.width, cutout?.height], [photo?.width, photo?.height]);
  t.true(cutout?.hasAlpha);
});

test('helm test cuts a picture out by the key of a Secret', async t => {
  const place = ['--namespace', 'matting'];
  await cluster.api.kubectl(
    ...[...place, 'create', 'secret', 'generic', 'test-key', `--from-literal=api-key=${apiKey}`],
  );
  const chart = path.join(desk, 'deploy/chart');
  const set = ['--reset-then-reuse-values', '--set', 'tests.apiKeySecret.name=test-key'];
  await cluster.api.helm('upgrade', 'matting', chart, ...place, ...set, '--wait');
  await cluster.api.helm('test', 'matting', ...place, '--timeout', '10m');
  const log = await cluster.api.kubectl(...place, 'logs', 'matting-test');
  t.regex(log, /\/v1\/results\/\S+ 200/);
});

test('scheduled commands run beside the service', async t => {
  const place = ['--namespace', 'matting'];
  const name = 'credits-check';
  await cluster.api.kubectl(...[...place, 'create', 'job', name, `--from=cronjob/matting-${name}`]);
  const done = ['--for=condition=complete', '--timeout=300s', `job/${name}`];
  await t.notThrowsAsync(cluster.api.kubectl(...place, 'wait', ...done));
});

test('pods that the standard "restricted" lets in run as any user', async t => {
  const place = ['--namespace', 'matting'];
  await cluster.api.kubectl(...place, 'delete', 'pods', '--all', '--wait=false');
  await cluster.waitFor(
    'the service is there again',
    [...place, 'get', 'deployments', '--output', 'jsonpath={.items[*].status.readyReplicas}'],
    /^1 1$/,
  );
  const user = await cluster.api.kubectl(
    ...[...place, 'exec', 'deploy/matting-control-plane', '--', 'id', '-u'],
  );
  t.not(user.trim(), '0');
});
