/** A real API server, Pod Security `restricted`, no running pods. */
import { readFileSync } from 'node:fs';
import ava from 'ava';
import { isNotTested } from '../support/skip.ts';
import { throwsWith } from '../support/throws.ts';
import { ApiServer, customResources } from './api-server.ts';
import {
  CHART,
  type KubernetesObject,
  manifests,
  objectsIn,
  podOf,
  rendered,
  skipWithout,
  VALUES,
  valuesOf,
} from './helm.ts';

const WITHOUT = skipWithout('helm', 'kubectl', 'etcd', 'kube-apiserver');
const test = ava.serial.skipIf(isNotTested(WITHOUT));
const NAMESPACE = 'matting';

let server: ApiServer;
let known: Set<string>;

ava.serial.before(async () => {
  server = await ApiServer.start();
  const files = customResources().flatMap(file => ['--filename', file]);
  if (files.length > 0) await server.kubectl('apply', '--server-side', ...files);
  await server.kubectl('create', 'namespace', NAMESPACE);
  const enforce = 'pod-security.kubernetes.io/enforce=restricted';
  await server.kubectl('label', 'namespace', NAMESPACE, enforce);
  // The missing controllers would create it.
  await server.kubectl('--namespace', NAMESPACE, 'create', 'serviceaccount', 'default');
  const listed = await server.kubectl('get', 'crds', '--output', 'jsonpath={..names.kind}');
  known = new Set(listed.split(' '));
  for (const kind of ['ScaledObject', 'ServiceMonitor', 'PrometheusRule', 'HTTPRoute']) {
    if (!known.has(kind)) console.error(`NOT TESTED: no custom resource ${kind} in *-crds`);
  }
});

ava.serial.after.always(() => server?.close());

const isKnown = ({ apiVersion, kind }: KubernetesObject) =>
  !/keda|coreos|gateway/.test(apiVersion) || known.has(kind);
const textOf = (objects: readonly KubernetesObject[]) =>
  objects.map(each => JSON.stringify(each)).join('\n---\n');

for (const [name, values] of Object.entries(VALUES)) {
  test(`${name}: the API server takes every object as it is`, t => {
    // Pods follow below: their service account does not exist after a dry run.
    const objects = rendered(...values).filter(each => isKnown(each) && each.kind !== 'Pod');
    const said = server.apply(textOf(objects), '--dry-run=server');
    t.is(said.trim().split('\n').length, objects.length);
  });

  test(`${name}: every pod passes the standard "restricted"`, t => {
    const pods = rendered(...values).flatMap(each => {
      const pod = podOf(each);
      const metadata = { name: `${each.metadata.name}-pod`, namespace: NAMESPACE };
      return pod === undefined
        ? []
        : [{ apiVersion: 'v1', kind: 'Pod', metadata, spec: { ...pod.spec } }];
    });
    t.true(pods.length >= 3);
    // A dry run created no service account for them.
    for (const pod of pods) delete pod.spec.serviceAccountName;
    server.apply(textOf(pods), '--dry-run=server');
  });
}

test('the standard refuses what is not restricted', t => {
  const pods = rendered(...(VALUES.smallest ?? []));
  const { spec } = podOf(pods.find(each => each.kind === 'Pod'));
  delete spec.serviceAccountName;
  spec.containers[0].securityContext.allowPrivilegeEscalation = true;
  const metadata = { name: 'loose', namespace: NAMESPACE };
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec };
  throwsWith(
    t,
    () => server.apply(JSON.stringify(pod), '--dry-run=server'),
    (error: Error & { stderr?: Buffer }) => /allowPrivilegeEscalation/.test(String(error.stderr)),
  );
});

const replicas = (deployment = 'matting-control-plane') =>
  server.kubectl(
    ...['--namespace', NAMESPACE, 'get', 'deployment', deployment],
    ...['--output', 'jsonpath={.spec.replicas}'],
  );

test('Helm installs, upgrades, rolls back and leaves nothing but volumes', async t => {
  const place = ['--namespace', NAMESPACE, '--no-hooks'];
  const without = ['metrics.monitors.enabled=false', 'metrics.rules.enabled=false'];
  const values = valuesOf(['production'], without);
  await server.helm('install', 'matting', CHART, ...place, ...values);
  t.is(await replicas(), '3');
  const more = valuesOf([], ['controlPlane.replicas=5']);
  await server.helm('upgrade', 'matting', CHART, ...place, ...values, ...more);
  t.is(await replicas(), '5');
  await server.helm('rollback', 'matting', '1', ...place);
  t.is(await replicas(), '3');
  await server.helm('upgrade', 'matting', CHART, ...place, ...(VALUES.smallest ?? []));
  await server.helm('uninstall', 'matting', ...place);
  const kinds = 'deployments,cronjobs,services,pvc,networkpolicies,poddisruptionbudgets,configmaps';
  const selector = 'app.kubernetes.io/instance=matting';
  const left = await server.kubectl(
    ...['--namespace', NAMESPACE, 'get', kinds, '--selector', selector, '--output', 'name'],
  );
  const volumes = ['backups', 'data'].map(name => `persistentvolumeclaim/matting-${name}`);
  t.deepEqual(left.trim().split('\n'), volumes);
});

const hasScaledObject =
  WITHOUT === false &&
  customResources().some(file => /^ +kind: ScaledObject$/m.test(readFileSync(file, 'utf8')));
ava.serial.runIf(hasScaledObject)(
  'a fleet that works keeps its nodes when KEDA takes it over, and after',
  async t => {
    const place = ['--namespace', NAMESPACE, '--no-hooks'];
    const without = ['metrics.monitors.enabled=false', 'metrics.rules.enabled=false'];
    const fixed = valuesOf(['production'], without);
    const scaled = valuesOf(['production', 'on-demand'], without);
    const nodes = (count: string) =>
      server.kubectl(
        ...['--namespace', NAMESPACE, 'scale', 'deployment', 'matting-node-cpu'],
        ...['--replicas', count],
      );
    await server.helm('install', 'matting', CHART, ...place, ...fixed);
    await server.helm('upgrade', 'matting', CHART, ...place, ...scaled);
    t.is(await replicas('matting-node-cpu'), '3');
    for (const count of ['7', '0']) {
      await nodes(count);
      await server.helm('upgrade', 'matting', CHART, ...place, ...scaled);
      t.is(await replicas('matting-node-cpu'), count);
    }
    await server.helm('uninstall', 'matting', ...place);
  },
);

test('plain manifests are applied by the server, again, and changed', async t => {
  const plain = (...more: string[]) =>
    manifests('--no-hooks', ...valuesOf(['production']), ...more);
  const only = (text: string) => textOf(objectsIn(text).filter(isKnown));
  server.apply(only(plain()));
  server.apply(only(plain()));
  server.apply(only(plain('--set-json', 'controlPlane.replicas=4')));
  t.is(await replicas(), '4');
});
