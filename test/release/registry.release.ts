/**
 * Publishes to a registry here, pulls to an empty storage, runs, and installs from oci://.
 * MATTING_TEST_RELEASE is the release's folder, such as release/0.2.0; default: the chart and the
 * control plane's image from `make images`.
 */
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import { makeChart, saveImage, writeChecksums } from '../../deploy/release/artifacts.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import {
  CONTROL_PLANE,
  cutsTeapotOut,
  LOCKED,
  podman,
  tried,
  untilHealthy,
} from '../images/podman.ts';
import { ApiServer } from '../kubernetes/api-server.ts';
import { helm, skipWithout } from '../kubernetes/helm.ts';
import { ROOT } from '../running-service.ts';
import { ServerProcess } from '../support/databases/server-process.ts';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';
import { rejectsWith } from '../support/throws.ts';

const run = promisify(execFile);
const GIVEN = process.env.MATTING_TEST_RELEASE;
const PUBLISH = path.join(ROOT, 'deploy/release/publish.sh');
const VERSION = '99.1.0';
const MINUTES_MAX = 10;

function reasonToSkip(): string | false {
  const programs = skipWithout('podman', 'skopeo', 'docker-registry', 'helm');
  if (programs !== false || GIVEN !== undefined) return programs;
  return tried(['image', 'exists', CONTROL_PLANE]).code !== 0 && `no image ${CONTROL_PLANE} here`;
}

const skip = reasonToSkip();
const test = ava.serial.skipIf(isNotTested(skip));
const onApiServer = ava.serial.skipIf(
  isNotTested(skip || skipWithout('kubectl', 'etcd', 'kube-apiserver')),
);

let scratch: string;
let release: string;
let registry: string;
let server: ServerProcess;
/** podman's options for an empty storage. */
let elsewhere: readonly string[];
/** By name and tag, `matting-node:0.2.0-bare`. */
let digests: ReadonlyMap<string, string>;
let version: string;

async function putTogether(folder: string): Promise<void> {
  mkdirSync(folder);
  const image = `localhost/matting-control-plane:${VERSION}`;
  podman(['tag', CONTROL_PLANE, image]);
  try {
    await saveImage(image, folder);
  } finally {
    podman(['untag', image]);
  }
  await makeChart({ version: VERSION, tree: ROOT, out: folder });
  await writeChecksums(folder);
}

async function startRegistry(): Promise<string> {
  const [port] = await findFreePorts(1);
  const config = path.join(scratch, 'registry.json');
  const text = {
    version: '0.1',
    storage: { filesystem: { rootdirectory: path.join(scratch, 'registry') } },
    http: { addr: `127.0.0.1:${port}` },
    log: { accesslog: { disabled: true } },
  };
  writeFileSync(config, JSON.stringify(text));
  const program = findProgram('docker-registry');
  assert.ok(program);
  server = new ServerProcess('docker-registry', { program, args: ['serve', config] });
  await server.start('listening on');
  return `127.0.0.1:${port}/team`;
}

/** Asynchronous: the registry blocks unless this process reads its log. */
const publish = (folder: string) =>
  run('sh', [PUBLISH, folder, registry], { env: { ...process.env, PLAIN_HTTP: '1' } });

function pull(name: string): string {
  const image = `${registry}/${name.replace(/:.*/, '')}@${digests.get(name)}`;
  podman([...elsewhere, 'pull', '--quiet', '--tls-verify=false', image]);
  return image;
}

ava.serial.before(async t => {
  if (skip !== false) return;
  t.timeout(MINUTES_MAX * 60_000);
  process.env.PATH += path.delimiter + path.dirname(findProgram('helm') ?? '');
  scratch = mkdtempSync(path.join(tmpdir(), 'matting-registry-'));
  elsewhere = ['--root', path.join(scratch, 'storage'), '--runroot', path.join(scratch, 'run')];
  release = GIVEN === undefined ? path.join(scratch, 'release') : path.resolve(ROOT, GIVEN);
  if (GIVEN === undefined) await putTogether(release);
  const lines = readFileSync(path.join(release, 'IMAGES'), 'utf8').trim().split('\n');
  digests = new Map(
    lines.map(line => {
      const [image = '', digest = ''] = line.split(' ');
      return [image.replace(/^.*\//, ''), digest];
    }),
  );
  const chart = readdirSync(release).find(name => /^matting-\d.*\.tgz$/.test(name));
  version = chart?.slice('matting-'.length, -'.tgz'.length) ?? '';
  registry = await startRegistry();
});
ava.serial.after.always(async () => {
  if (scratch === undefined) return;
  await server?.kill();
  tried([...elsewhere, 'rm', '--all', '--force', '--time', '0']);
  // Podman leaves it mounted on itself.
  spawnSync('umount', [path.join(scratch, 'storage/overlay')]);
  rmSync(scratch, { recursive: true, force: true });
});

test('a release whose files do not match their sums is not published', async t => {
  const damaged = path.join(scratch, 'damaged');
  mkdirSync(damaged);
  for (const name of ['IMAGES', 'SHA256SUMS']) writeFileSync(path.join(damaged, name), '');
  writeFileSync(path.join(damaged, 'SHA256SUMS'), `${'0'.repeat(64)}  IMAGES\n`);
  await rejectsWith(t, publish(damaged), /1 computed checksum did NOT match/);
});

test('a release is published under its names and digests, as often as one likes', async t => {
  t.timeout(MINUTES_MAX * 60_000);
  for (let time = 1; time <= 2; time += 1) {
    const { stdout } = await publish(release);
    for (const [name, digest] of digests) t.true(stdout.includes(`${registry}/${name}@${digest}`));
  }
  for (const [name, digest] of digests) {
    const place = ['--tls-verify=false', `docker://${registry}/${name}`];
    const inspect = ['inspect', '--format', '{{.Digest}}', ...place];
    t.is(execFileSync('skopeo', inspect, { encoding: 'utf8' }).trim(), digest, name);
  }
});

test('the control plane, pulled by digest, needs no right to serve', async t => {
  t.timeout(MINUTES_MAX * 60_000);
  const image = pull(`matting-control-plane:${version}`);
  const token = ['--env', 'MATTING_NODE_TOKEN=a-token-of-the-tests-0123456789'];
  const id = podman([...elsewhere, 'run', '--detach', ...LOCKED, ...token, image]);
  await untilHealthy(id, 'livez', elsewhere);
  t.is(podman([...elsewhere, 'stop', '-t', '150', id]), id);
});

test('the image of both programs, pulled by digest, cuts out a picture', async t => {
  t.timeout(MINUTES_MAX * 60_000);
  const name = `matting:${version}`;
  if (!digests.has(name)) return t.pass(`no image ${name} in this release`);
  await t.notThrowsAsync(cutsTeapotOut(t, pull(name), elsewhere));
  return;
});

onApiServer('the chart is installed from the registry, with the release’s images', async t => {
  t.timeout(MINUTES_MAX * 60_000);
  const chart = [`oci://${registry}/charts/matting`, '--version', version, '--plain-http'];
  t.regex(helm('show', 'chart', ...chart), new RegExp(`^appVersion: ${version}$`, 'm'));
  const api = await ApiServer.start();
  try {
    await api.kubectl('create', 'namespace', 'matting');
    const values = ['--set', `secret.name=matting,images.registry=${registry}`];
    await api.helm('install', 'matting', ...chart, '-n', 'matting', '--no-hooks', ...values);
    const asked = 'jsonpath={.items[*].spec.template.spec.containers[*].image}';
    const images = await api.kubectl('-n', 'matting', 'get', 'deployments', '--output', asked);
    t.deepEqual(images.split(' ').sort(), [
      `${registry}/matting-control-plane:${version}`,
      `${registry}/matting-node:${version}`,
    ]);
  } finally {
    await api.close();
  }
});
