import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import ava from 'ava';
import { parse } from 'yaml';
import { DRAIN_MS_MAX } from '../../control-plane/core/drain.ts';
import pkg from '../../package.json' with { type: 'json' };
import { MATTING_VARIABLES } from '../../program/env-names.ts';
import { blocksOf } from '../fleet/documented-machines.ts';
import { ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { throwsWith } from '../support/throws.ts';
import { lastRelease, releaseSkipReason } from '../upgrade/releases.ts';
import {
  CHART,
  exampleFile,
  helm,
  KUBERNETES_VERSION,
  type KubernetesObject,
  objectsIn,
  podOf,
  rendered,
  requireOne,
  skipWithout,
  VALUES,
  valuesOf,
} from './helm.ts';

const test = ava.skipIf(isNotTested(skipWithout('helm')));
const SMALLEST = VALUES.smallest ?? [];
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
const chartFile = (file: string) => readFileSync(path.join(CHART, file), 'utf8');

function containersOf(objects: readonly KubernetesObject[]) {
  return objects.flatMap(each => {
    const pod = podOf(each);
    return pod === undefined
      ? []
      : [...(pod.spec.initContainers ?? []), ...pod.spec.containers].map(container => ({
          name: `${each.kind} ${each.metadata.name}`,
          pod,
          container,
        }));
  });
}

function variable(container: KubernetesObject, name: string): string | undefined {
  return container.env.find((each: KubernetesObject) => each.name === name)?.value;
}

ava('the chart is of this version', t => {
  const { appVersion, version } = parse(chartFile('Chart.yaml'));
  t.deepEqual([appVersion, version], [pkg.version, pkg.version]);
});

ava('the schema knows every value, and none that there is not', t => {
  const schema = JSON.parse(chartFile('values.schema.json'));
  const values = parse(chartFile('values.yaml'));
  const validate = new Ajv({ allErrors: true, strictTypes: false }).compile(schema);
  t.truthy(validate(values), JSON.stringify(validate.errors));
  const compare = (place: string, own: KubernetesObject, found: KubernetesObject) => {
    const properties = own.$ref === '#/definitions/pool' ? schema.definitions.pool : own;
    if (properties.properties === undefined) return;
    const named = Object.keys(properties.properties).filter(name => name !== 'global');
    t.deepEqual(Object.keys(found).toSorted(), named.toSorted(), place);
    for (const name of named) {
      const inner = properties.properties[name];
      if (name !== 'podDisruptionBudget') compare(`${place}.${name}`, inner, found[name]);
    }
  };
  compare('values', schema, values);
});

ava('network policies leave out the blocks of deploy/egress.md', t => {
  const blocks = (text: string) =>
    [...text.matchAll(/\b[0-9a-f.:]+(?:::)?\/\d{1,3}\b/g)].map(([block]) => block);
  const page = read('deploy/egress.md');
  const wanted = blocks(page.slice(page.indexOf('    IPv4'), page.indexOf('Cloud metadata')));
  const found = blocks(chartFile('templates/network-policies.yaml'));
  t.true(wanted.length > 15);
  t.deepEqual([...new Set(found)].sort(), [...new Set([...wanted, '0.0.0.0/0'])].sort());
});

ava('templates set variables that programs read', t => {
  const templates = globSync('templates/**/*.{yaml,tpl}', { cwd: CHART }).map(chartFile).join('\n');
  const variables = [...templates.matchAll(/name: (MATTING_\w+)/g)].map(([, name]) => name);
  t.true(variables.length > 15);
  t.deepEqual(
    variables.filter(name => !MATTING_VARIABLES.includes(name ?? '')),
    [],
  );
});

for (const [name, values] of Object.entries(VALUES)) {
  test(`${name}: Helm finds nothing to object to`, t => {
    helm('lint', '--strict', CHART, ...values);
    const names = rendered(...values).map(each => `${each.kind} ${each.metadata.name}`);
    t.is(new Set(names).size, names.length);
  });

  test(`${name}: every container is restricted and runs as any user`, t => {
    const containers = containersOf(rendered(...values));
    t.true(containers.length >= 3);
    for (const { name: owner, pod, container } of containers) {
      const { securityContext } = pod.spec;
      t.is(pod.spec.enableServiceLinks, false, owner);
      t.is(pod.spec.automountServiceAccountToken, false, owner);
      t.is(securityContext.runAsNonRoot, true, owner);
      t.is(securityContext.seccompProfile.type, 'RuntimeDefault', owner);
      t.deepEqual(container.securityContext, {
        readOnlyRootFilesystem: true,
        allowPrivilegeEscalation: false,
        capabilities: { drop: ['ALL'] },
      });
      t.notRegex(JSON.stringify(pod), /runAsUser|runAsGroup|hostPath|hostNetwork/, owner);
      t.truthy(container.resources.requests.memory, owner);
      t.truthy(container.resources.limits.memory, owner);
      const mounts = container.volumeMounts.map((mount: KubernetesObject) => mount.mountPath);
      t.true(mounts.includes('/tmp'), owner);
      const variables = container.env.map((each: KubernetesObject) => each.name);
      t.is(new Set(variables).size, variables.length, owner);
    }
  });
}

test('a program has the time to drain that it may take', t => {
  const objects = rendered(...valuesOf(['production', 'gpu']));
  const pods = objects.filter(each => each.kind === 'Deployment').map(podOf);
  t.is(pods.length, 2);
  // Until the Service has removed the endpoint.
  const [plane] = podOf(requireOne(objects, 'Deployment', 'matting-control-plane')).spec.containers;
  t.is(plane.lifecycle.preStop.sleep.seconds, 15);
  for (const pod of pods) {
    const sleepS = pod.spec.containers[0].lifecycle?.preStop?.sleep?.seconds ?? 0;
    t.true(pod.spec.terminationGracePeriodSeconds * 1000 >= DRAIN_MS_MAX + sleepS * 1000);
  }
  const { spec } = requireOne(objects, 'Deployment', 'matting-node-gpu');
  const { startupProbe } = spec.template.spec.containers[0];
  t.true(startupProbe.failureThreshold * startupProbe.periodSeconds >= 1800);
  t.true(spec.progressDeadlineSeconds > 1800);
});

/** By deployment: the update strategy, and preStop's seconds. */
function upgradesOf(...values: readonly string[]): Record<string, readonly unknown[]> {
  const deployments = rendered(...values).filter(each => each.kind === 'Deployment');
  const entries = deployments.map(({ metadata, spec }) => {
    const { type, rollingUpdate } = spec.strategy;
    const sleep = spec.template.spec.containers[0].lifecycle?.preStop.sleep.seconds ?? 0;
    return [metadata.name.replace('matting-', ''), [type, rollingUpdate?.maxSurge, sleep]];
  });
  return Object.fromEntries(entries);
}

test('an upgrade never waits for a volume that the pod of before holds', t => {
  const ending = ['Recreate', undefined, 0];
  const [onePod, oneNode, more] = [ending, ['RollingUpdate', 0, 0], ['RollingUpdate', 1, 15]];
  const moreNodes = ['RollingUpdate', 1, 0];
  const oneMachine = VALUES['volumes of one machine'] ?? [];
  t.deepEqual(upgradesOf(...SMALLEST), { 'control-plane': onePod, 'node-cpu': moreNodes });
  t.deepEqual(upgradesOf(...oneMachine), { 'control-plane': onePod, 'node-cpu': oneNode });
  const shared = ['volume', 'nodes.pools.cpu.modelCache'];
  const set = shared.map(place => `${place}.accessModes=["ReadWriteMany"]`);
  t.deepEqual(upgradesOf(...oneMachine, ...valuesOf([], set)), {
    'control-plane': more,
    'node-cpu': moreNodes,
  });
  const gone = valuesOf([], ['volume.persistent=false']);
  t.deepEqual(upgradesOf(...oneMachine, ...gone)['control-plane'], more);
  const { 'control-plane': plane } = upgradesOf(...(VALUES.production ?? []));
  t.deepEqual(plane, more);
});

test('a pool has a budget of its own, or none', t => {
  const budgets = (set: string) =>
    rendered(...SMALLEST, ...valuesOf([], [set]))
      .filter(({ kind, metadata }) => kind.startsWith('PodDis') && /node/.test(metadata.name))
      .map(({ spec: { maxUnavailable, minAvailable } }) => [maxUnavailable, minAvailable]);
  t.deepEqual(budgets('labels={}'), [[1, undefined]]);
  const own = 'nodes.pools.cpu.podDisruptionBudget';
  t.deepEqual(budgets(`${own}={"minAvailable":"50%"}`), [[undefined, '50%']]);
});

const OFFERED = (names: string) => `controlPlane.env.MATTING_MODELS_OFFERED="${names}"`;

test('each model has a pool, which fetches it before the node, with the same folders', t => {
  const podsOf = (pool: string, ...set: readonly string[]) => {
    const objects = rendered(...(VALUES.models ?? []), ...valuesOf([], set));
    return podOf(requireOne(objects, 'Deployment', `matting-node-${pool}`)).spec;
  };
  const pods = (...set: readonly string[]) => podsOf('ben2', ...set);
  const { initContainers, containers } = pods();
  const { command, name, ...init } = initContainers[0];
  t.deepEqual(command, ['/usr/bin/tini', '--', 'matting', 'models', 'fetch']);
  for (const field of Object.keys(init)) t.deepEqual(init[field], containers[0][field], field);
  t.is(variable(init, 'MATTING_MODEL'), 'ben2');
  t.is(variable(podsOf('best').containers[0], 'MATTING_MODEL'), 'best');
  t.is(variable(init, 'MATTING_ADDED_MODELS_DIR'), '/models/added');
  const onGpu = pods('nodes.pools.ben2.executionProvider="cuda"');
  t.is(onGpu.initContainers[0].command.at(-1), '--weights-only');
  const { initContainers: none, containers: own } = podsOf('cpu');
  t.deepEqual([none, variable(own[0], 'MATTING_MODEL')], [undefined, undefined]);
  const set = ['nodes.pools.cpu.env.MATTING_QUALITY="fast"', OFFERED('fast, best')];
  t.notThrows(() => podsOf('cpu', ...set));
});

test('tokens are files of the Secret, which programs follow; callers have theirs where a Service lets them in', t => {
  const named = ({ name }: KubernetesObject, wanted: string) => name === wanted;
  const itemsOf = (...set: readonly string[]) =>
    rendered(...SMALLEST, ...valuesOf([], set))
      .filter(each => each.kind === 'Deployment')
      .map(deployment => {
        const { containers, volumes } = podOf(deployment)?.spec ?? {};
        const { env, volumeMounts } = containers[0];
        t.true(volumeMounts.some((each: KubernetesObject) => named(each, 'tokens')));
        const { secret } = volumes.find((each: KubernetesObject) => named(each, 'tokens'));
        t.is(secret.secretName, 'matting');
        const files = env
          .filter(({ name }: KubernetesObject) => /^MATTING_NODE_.*TOKENS?_FILE$/.test(name))
          .map(({ value }: KubernetesObject) => value);
        const mounted = secret.items.map(({ path: file }: KubernetesObject) => `/tokens/${file}`);
        t.deepEqual(files, mounted);
        return mounted.length;
      });
  t.deepEqual(itemsOf(), [1, 1]);
  t.deepEqual(itemsOf('nodes.defaults.callerService=true').toSorted(), [1, 2]);
});

test('files and authorities of the operator are in every pod that reads them', t => {
  const own = ['controlPlane', 'nodes.defaults'].flatMap(pods => [
    `${pods}.extraVolumes=[{"name":"own","configMap":{"name":"own"}}]`,
    `${pods}.extraVolumeMounts=[{"name":"own","mountPath":"/own"}]`,
  ]);
  for (const kind of ['secret', 'configMap']) {
    const objects = rendered(...valuesOf(['production'], [...own, `caBundle.${kind}="ca"`]));
    const pods = objects.filter(each => ['Deployment', 'Job', 'CronJob'].includes(each.kind));
    t.true(pods.length >= 5);
    for (const each of pods) {
      const { containers, volumes } = podOf(each).spec;
      const [{ env, volumeMounts }] = containers;
      const named = (wanted: string) =>
        volumes.find(({ name }: KubernetesObject) => name === wanted);
      t.truthy(named('own').configMap, each.metadata.name);
      t.deepEqual((named('ca').secret ?? named('ca').configMap).items, [
        { key: 'ca.crt', path: 'ca.crt' },
      ]);
      t.truthy(named('ca')[kind]);
      const paths = volumeMounts.map(({ mountPath }: KubernetesObject) => mountPath);
      t.true(paths.includes('/own') && paths.includes('/ca'), each.metadata.name);
      t.is(
        env.find((one: KubernetesObject) => one.name === 'NODE_EXTRA_CA_CERTS').value,
        '/ca/ca.crt',
      );
    }
  }
});

test('the example of docs/kubernetes.md mounts and sets what it says', t => {
  const [, example = ''] = /```yaml\n(caBundle:[^`]+)```/.exec(read('docs/kubernetes.md')) ?? [];
  const set = Object.entries(parse(example)).map(
    ([name, value]) => `${name}=${JSON.stringify(value)}`,
  );
  t.is(set.length, 2);
  const plane = requireOne(
    rendered(...valuesOf(['production'], set)),
    'Deployment',
    'matting-control-plane',
  );
  const [container] = podOf(plane).spec.containers;
  t.is(variable(container, 'MATTING_BRAND_LOGO_FILE'), '/brand/logo.svg');
  t.is(variable(container, 'NODE_EXTRA_CA_CERTS'), '/ca/ca.crt');
  const paths = container.volumeMounts.map(({ mountPath }: KubernetesObject) => mountPath);
  t.true(paths.includes('/brand') && paths.includes('/ca'), String(paths));
});

test('a control plane with a bucket requests room for pictures in transit', t => {
  const requested = (...values: readonly string[]) =>
    requireOne(rendered(...values), 'Deployment', 'matting-control-plane').spec.template.spec
      .containers[0].resources.requests['ephemeral-storage'];
  t.is(requested(...SMALLEST), undefined);
  t.is(requested(...valuesOf(['production'])), '4Gi');
});

test('migrations run before new pods where there is a server, and wait for it', t => {
  const kinds = rendered(...SMALLEST).map(each => each.kind);
  t.false(kinds.includes('Job'));
  const job = requireOne(rendered(...valuesOf(['production'])), 'Job', 'matting-migrate');
  t.is(job.metadata.annotations['helm.sh/hook'], 'pre-install,pre-upgrade');
  const [container] = job.spec.template.spec.containers;
  t.deepEqual(container.command.slice(2), ['matting', 'migrate', '--wait-s', '300']);
  t.true(job.spec.activeDeadlineSeconds > 300);
  // Hooks run before the chart's other objects exist.
  t.is(job.spec.template.spec.serviceAccountName, 'default');
  const urlOf = (object: KubernetesObject) =>
    podOf(object)?.spec.containers[0].env.find(
      ({ name }: KubernetesObject) => name === 'MATTING_DATABASE_URL',
    ).valueFrom.secretKeyRef;
  t.deepEqual(urlOf(job), { name: 'matting', key: 'database-url' });
  const set = ['secret.databaseUrlSecretName="db"', 'migrations.databaseUrlKey="owner-url"'];
  const objects = rendered(...valuesOf(['production'], set));
  const owner = { name: 'matting', key: 'owner-url' };
  t.deepEqual(urlOf(requireOne(objects, 'Job', 'matting-migrate')), owner);
  const plane = requireOne(objects, 'Deployment', 'matting-control-plane');
  t.deepEqual(urlOf(plane), { name: 'db', key: 'database-url' });
});

test('daily commands run on a schedule, one at a time, with a control plane’s settings', t => {
  const long = `fullnameOverride="${'x'.repeat(40)}"`;
  const jobsOf = (...values: readonly string[]) =>
    rendered(...values).filter(({ kind }) => kind === 'CronJob');
  const namesOf = (...values: readonly string[]) =>
    jobsOf(...values).map(job => podOf(job)?.spec.containers[0].command.at(-1));
  t.deepEqual(namesOf(...SMALLEST), ['credits-check']);
  const off = ['schedules.creditsCheck=""'];
  t.deepEqual(namesOf(...SMALLEST, ...valuesOf([], off)), []);
  t.deepEqual(namesOf(...SMALLEST, ...valuesOf([], ['volume.persistent=false'])), []);
  const objects = rendered(...valuesOf(['production'], [long]));
  const jobs = objects.filter(({ kind }) => kind === 'CronJob');
  const known = read('deploy/systemd/matting-command');
  t.is(jobs.length, 3);
  for (const job of jobs) {
    const [container] = podOf(job)?.spec.containers ?? [];
    const name = container.command.at(-1);
    t.regex(known, new RegExp(`^ {2}(?:[a-z-]+ \\| )*${name}(?: \\| [a-z-]+)*\\)`, 'm'));
    t.true(job.metadata.name.length <= 52, job.metadata.name);
    t.is(job.spec.concurrencyPolicy, 'Forbid');
    t.true(job.spec.jobTemplate.spec.activeDeadlineSeconds > 0);
    const plane = requireOne(objects, 'Deployment', `${'x'.repeat(40)}-control-plane`);
    const [own] = podOf(plane)?.spec.containers ?? [];
    const shared = container.env.filter(({ name }: KubernetesObject) => !/^BACKUP_/.test(name));
    t.deepEqual([container.image, shared], [own.image, own.env]);
  }
  const [near] = jobsOf(...SMALLEST).map(podOf);
  const data = ({ name }: KubernetesObject) => name === 'data';
  t.is(near?.spec.volumes.find(data).persistentVolumeClaim.claimName, 'matting-data');
  t.truthy(near?.spec.affinity.podAffinity);
  // Two machines with one SQLite file would damage it.
  const wide = valuesOf([], ['volume.accessModes=["ReadWriteMany"]']);
  t.truthy(podOf(jobsOf(...SMALLEST, ...wide)[0])?.spec.affinity?.podAffinity);
  const backup = podOf(requireOne(jobs, 'CronJob', `${'x'.repeat(33)}-backup`));
  const { claimName } = backup?.spec.volumes.at(-1).persistentVolumeClaim ?? {};
  requireOne(objects, 'PersistentVolumeClaim', claimName);
});

const demandOf = (labels: string) =>
  `sum(rate(matting_control_submitted_megapixels_total{${labels}}[2m])) / 0.8 + ` +
  `sum(max by (model) (matting_control_waiting_megapixels{${labels}})) / 60`;
const namesOf = (triggers: readonly { readonly name: string }[]) =>
  triggers.map(({ name }) => name);

test('KEDA scales one pool by what the others leave, and Helm does not', t => {
  const set = ['nodes.pools.gpu={"enabled":true,"replicas":2,"modelCache":{"kind":"emptyDir"}}'];
  const objects = rendered(...valuesOf(['production', 'on-demand'], set));
  const { spec } = requireOne(objects, 'ScaledObject', 'matting-node-cpu');
  t.deepEqual([spec.minReplicaCount, spec.maxReplicaCount], [0, 18]);
  const [{ metadata: megapixels }, ...others] = spec.triggers;
  t.is(megapixels.query, `clamp_min(${demandOf('namespace="matting"')} - 2 * 4, 0)`);
  t.is(megapixels.threshold, '4');
  t.deepEqual(namesOf(others), ['queue-age']);
  t.is(requireOne(objects, 'Deployment', 'matting-node-cpu').spec.replicas, undefined);
  t.is(requireOne(objects, 'Deployment', 'matting-node-gpu').spec.replicas, 2);
  const plane = requireOne(objects, 'Deployment', 'matting-control-plane').spec.template.spec;
  t.is(variable(plane.containers[0], 'MATTING_NODES_ON_DEMAND'), 'true');
});

test('KEDA wakes one pool for all jobs, or for those that name its models', t => {
  const scaledBy = (...set: string[]) =>
    requireOne(
      rendered(...valuesOf(['production', 'on-demand'], set)),
      'ScaledObject',
      'matting-node-cpu',
    ).spec;
  const all = scaledBy('keda.holdS=120', 'keda.nodeMegapixelsPerS=1.5');
  t.is(all.triggers[0].metadata.query, demandOf('namespace="matting"'));
  t.is(all.triggers[0].metadata.threshold, '1.5');
  t.deepEqual(namesOf(all.triggers), ['megapixels', 'queue-age']);
  const { scaleDown } = all.advanced.horizontalPodAutoscalerConfig.behavior;
  t.deepEqual([all.cooldownPeriod, scaleDown.stabilizationWindowSeconds], [120, 120]);
  const beside = scaledBy('nodes.pools.best={"replicas":3,"model":"best"}');
  t.deepEqual(
    [beside.maxReplicaCount, beside.triggers[0].metadata.query],
    [all.maxReplicaCount, demandOf('namespace="matting"')],
  );
  const own = scaledBy('keda.models=["best","ben2"]');
  t.is(own.triggers[0].metadata.query, demandOf('namespace="matting",model=~"best|ben2"'));
  t.deepEqual(namesOf(own.triggers), ['megapixels']);
});

test('rules and dashboards are the files of deploy', t => {
  const groups = ['recording', 'alerts'].flatMap(
    name => parse(read(`deploy/prometheus/${name}.yaml`)).groups,
  );
  const objects = rendered(...(VALUES.production ?? []));
  const found = requireOne(objects, 'PrometheusRule', 'matting').spec.groups;
  // They differ by the watched release only: rules.chart.ts.
  for (const { rules } of [...groups, ...found]) {
    for (const rule of rules) delete rule.expr;
    for (const { annotations } of rules) delete annotations?.runbook_url;
    for (const { labels = {} } of rules) delete labels.namespace;
    for (const rule of rules) if (Object.keys(rule.labels ?? {}).length === 0) delete rule.labels;
  }
  t.deepEqual(found, groups);
  for (const name of ['service', 'fleet', 'money']) {
    const { data } = requireOne(objects, 'ConfigMap', `matting-dashboard-${name}`);
    const expected = JSON.parse(read(`deploy/grafana/${name}.json`));
    t.deepEqual(JSON.parse(data[`matting-${name}.json`]), expected);
  }
});

test('the package has the rules and dashboards, and nothing that makes or tests them', async t => {
  const directory = await temporaryFolder(t);
  helm('package', CHART, '--destination', directory);
  const file = path.join(directory, `matting-${pkg.version}.tgz`);
  const names = execFileSync('tar', ['tzf', file], { encoding: 'utf8' }).split('\n');
  for (const name of ['prometheus/alerts.yaml', 'grafana/service.json']) {
    t.true(names.includes(`matting/files/${name}`), name);
  }
  t.false(names.some(name => /examples|source|test\.yaml$/.test(name)));
});

const REFUSED: readonly (readonly [RegExp, readonly string[], string?])[] = [
  [/secret\.name/, ['secret.name=""']],
  [/replicas.*SQLite/, ['controlPlane.replicas=2']],
  [/additional properties 'replica'/, ['nodes.pools.cpu.replica=2']],
  [/additional properties 'controlPlan'/, ['controlPlan={}']],
  [/storage\.url/, ['storage.kind="s3"']],
  [/storage\/url/, ['storage.url="https://x"']],
  [/additional properties 'directEndpoints'/, ['storage.directEndpoints=["https://x"]']],
  [/volume\.accessModes/, ['database.kind="mysql"', 'controlPlane.replicas=2']],
  [/schedules\.backup/, ['schedules.backup="@daily"', 'volume.persistent=false']],
  [/creditsCheck/, ['schedules.creditsCheck="daily"']],
  [/MATTING_PORT is set by the chart/, ['controlPlane.env.MATTING_PORT="1"']],
  [/nodes\.pools\.cpu\.env: MATTING_HOST/, ['nodes.pools.cpu.env.MATTING_HOST="::"']],
  [/MATTING_MODEL is set by/, ['nodes.pools.cpu={"model":"best","env":{"MATTING_MODEL":"best"}}']],
  [/additional properties 'modelsFetch'/, ['nodes.defaults.modelsFetch=["best"]']],
  [/nodes\/pools\/cpu\/model/, ['nodes.pools.cpu.model="a,b"']],
  [/no pool serves best; nodes\.pools/, [OFFERED('standard,best')]],
  [/no pool serves standard;/, ['nodes.pools.cpu.model="best"', OFFERED('standard')]],
  [/images\.registry/, ['images.registry=""']],
  [/caBundle/, ['caBundle={"secret":"a","configMap":"b"}']],
  [
    /NODE_EXTRA_CA_CERTS is set by/,
    ['caBundle.secret="a"', 'controlPlane.env.NODE_EXTRA_CA_CERTS="/b"'],
  ],
  [/keda\.prometheus\.serverAddress/, ['keda.enabled=true']],
  [/keda\.pool/, ['keda.pool="gpu"'], 'on-demand'],
  [/keda\.pool/, ['keda.pool="none"'], 'on-demand'],
  [/keda\.nodesMin/, ['keda.nodesMin=21'], 'on-demand'],
  [/keda\/nodeMegapixelsPerS/, ['keda.nodeMegapixelsPerS=0'], 'on-demand'],
  [/tls\.nodeSecret/, ['tls={"enabled":true,"controlPlaneSecret":"a","serverName":"b"}']],
  [/ingress\.hosts/, ['ingress.enabled=true']],
  [/httpRoute\.parentRefs/, ['httpRoute.enabled=true']],
  [/digest/, ['controlPlane.image.digest="sha256:0"']],
  [/nodes\.pools\.gpu\.modelCache/, ['nodes.pools.gpu.replicas=2', 'nodes.pools.gpu.enabled=true']],
  [/nodes\.pools\.gpu\.image\.digest/, ['nodes.pools.gpu.enabled=true'], 'offline'],
  [/migrations\.databaseUrlKey/, ['migrations.databaseUrlKey="owner-url"']],
  [/requests\/cpu|resources/, ['controlPlane.resources.requestss={}']],
];

for (const [expected, set, example] of REFUSED) {
  test(`refused: ${set.join(', ')}`, t => {
    const values = example === undefined ? SMALLEST : valuesOf(['production', example]);
    const more = set.flatMap(pair => ['--set-json', pair]);
    throwsWith(
      t,
      () => rendered(...values, ...more),
      (error: Error & { stderr?: string }) => expected.test(error.stderr ?? ''),
    );
  });
}

ava('every example is tested', t => {
  const files = globSync('*.yaml', { cwd: path.dirname(exampleFile('')) });
  const tested = Object.values(VALUES).flat();
  const missing = files.filter(file => !tested.includes(exampleFile(path.basename(file, '.yaml'))));
  t.deepEqual(missing, []);
});

const release = lastRelease();
ava.skipIf(isNotTested(releaseSkipReason(release) || skipWithout('helm')))(
  `the commands of "Upgrade" take the values of ${release.version}, and the chart names those that went`,
  async t => {
    const desk = await temporaryFolder(t);
    const called = path.join(desk, 'called');
    // The real Helm renders; images and cluster are elsewhere.
    const standIn = (name: string, then = '') =>
      writeFileSync(
        path.join(desk, name),
        `#!/bin/sh\necho ${name} $1 "$2" >> ${called}\n${then}`,
        { mode: 0o755 },
      );
    for (const name of ['make', 'podman']) standIn(name);
    const render = `[ $1 = test ] || { shift; exec ${findProgram('helm')} template --kube-version ${KUBERNETES_VERSION} "$@"; }`;
    standIn('helm', render);
    symlinkSync(path.join(ROOT, 'deploy'), path.join(desk, 'deploy'));
    const example = `${release.commit}:deploy/chart/examples/production.yaml`;
    const values = execFileSync('git', ['show', example], { cwd: ROOT, encoding: 'utf8' });
    writeFileSync(path.join(desk, 'values.yaml'), values);
    const [commands = ''] = blocksOf('docs/kubernetes.md', 'Upgrade');
    const env = {
      PATH: `${desk}:${process.env.PATH}`,
      REGISTRY: 'registry.example/team',
      TAG: 'v2',
    };
    const walk = () =>
      execFileSync('sh', ['-ec', commands], { cwd: desk, env, encoding: 'utf8', stdio: 'pipe' });
    const [plane] = objectsIn(walk()).filter(({ kind }) => kind === 'Deployment');
    t.is(podOf(plane).spec.containers[0].image, 'registry.example/team/matting-control-plane:v2');
    t.deepEqual(readFileSync(called, 'utf8').trim().split('\n'), [
      'make images IMAGE_PREFIX=registry.example/team/',
      'podman push registry.example/team/matting-control-plane:v2',
      'podman push registry.example/team/matting-node:v2',
      'helm upgrade matting',
      'helm test matting',
    ]);
    const gone = 'nodes: { pools: { cpu: { gpus: 2 } } }\nschedules: { creditsCheckFull: "" }\n';
    writeFileSync(path.join(desk, 'values.yaml'), gone);
    const refused = ({ stderr = '' }: { stderr?: string }) =>
      ['gpus', 'creditsCheckFull'].every(name => stderr.includes(`'${name}' not allowed`));
    throwsWith(t, walk, refused);
  },
);
