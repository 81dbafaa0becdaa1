/** Servers outside the cluster. Needs: object-storage. */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createConnection } from 'mysql2/promise';
import { parse, stringify } from 'yaml';
import { ROOT } from '../running-service.ts';
import { spawnBound } from '../support/foreign-program.ts';
import { MariadbServer } from '../support/mariadb-server.ts';
import { until } from '../support/processes.ts';
import { customResources, requireProgram } from './api-server.ts';
import { ADDRESS, type Cluster, REGISTRY } from './cluster.ts';

const DATABASE_PORT = 3306;
const STORAGE_PORT = 7070;
const PROMETHEUS_PORT = 9090;
const KEDA_PORT = 16_500;
const READY_MS_MAX = 60_000;
const PASSWORD = 'a-password-of-the-cluster';
export const STORAGE = { key: 'key', secret: 'a-secret-of-the-cluster', bucket: 'matting' };
export const STORAGE_URL = `s3://${STORAGE.bucket}/test?endpoint=http://${ADDRESS}:${STORAGE_PORT}&region=us-east-1`;
export const DATABASE_URL = `mysql://matting:${PASSWORD}@${ADDRESS}:${DATABASE_PORT}/matting`;
export const PROMETHEUS_URL = `http://${ADDRESS}:${PROMETHEUS_PORT}`;

/** Its user has the rights of docs/security.md. */
export async function openDatabase(): Promise<void> {
  const listen = { host: ADDRESS, port: DATABASE_PORT };
  const server = await MariadbServer.create({ listen });
  const root = await createConnection({ user: 'root', socketPath: server.socket });
  await root.query('create database matting');
  await root.query(`create user matting identified by '${PASSWORD}'`);
  await root.query('grant all on matting.* to matting');
  await root.end();
}

export async function openBucket(cluster: Cluster): Promise<void> {
  const data = path.join(cluster.directory, 'bucket');
  mkdirSync(path.join(data, STORAGE.bucket), { recursive: true });
  const address = `${ADDRESS}:${STORAGE_PORT}`;
  const child = spawnBound(
    requireProgram('versitygw'),
    ['--port', address, '--quiet', 'posix', data],
    {
      PATH: process.env.PATH,
      ROOT_ACCESS_KEY_ID: STORAGE.key,
      ROOT_SECRET_ACCESS_KEY: STORAGE.secret,
      VGW_REGION: 'us-east-1',
    },
  );
  child.stderr?.resume();
  await answers(`http://${address}/`);
}

async function answers(url: string): Promise<void> {
  const asked = () =>
    fetch(url).then(
      () => true,
      () => false,
    );
  await until(asked, { timeoutMs: READY_MS_MAX, what: `${url} answers` });
}

/**
 * @returns its folder
 * @param claim namespace in which a claim to it is made
 */
export function makeVolume(
  cluster: Cluster,
  name: string,
  { claim, storageClassName = '' }: { claim?: string; storageClassName?: string } = {},
): string {
  const directory = path.join(cluster.directory, `volume-${name}`);
  mkdirSync(directory);
  // hostPath ignores fsGroup.
  chmodSync(directory, 0o777);
  const spec = {
    accessModes: ['ReadWriteOnce', 'ReadOnlyMany'],
    capacity: { storage: '20Gi' },
    hostPath: { path: directory },
    storageClassName,
  };
  const objects: object[] = [
    { apiVersion: 'v1', kind: 'PersistentVolume', metadata: { name }, spec },
  ];
  if (claim !== undefined) {
    const wanted = {
      accessModes: ['ReadOnlyMany'],
      storageClassName,
      resources: { requests: { storage: '1Gi' } },
    };
    const metadata = { name, namespace: claim };
    objects.push({ apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata, spec: wanted });
  }
  cluster.api.apply(objects.map(each => JSON.stringify(each)).join('\n---\n'));
  return directory;
}

export function makeWeights(cluster: Cluster, namespace: string, model: string): void {
  const directory = makeVolume(cluster, 'weights', {
    claim: namespace,
    storageClassName: 'weights',
  });
  cpSync(path.join(ROOT, 'model-cache', model), path.join(directory, model), {
    recursive: true,
    dereference: true,
    filter: name => !name.includes('prepared'),
  });
  execFileSync('chmod', ['-R', 'a+rX', directory]);
}

/** Without TLS. @returns podman's configuration for it */
export async function startRegistry(cluster: Cluster): Promise<string> {
  const directory = path.join(cluster.directory, 'registry');
  const config = {
    version: '0.1',
    log: { level: 'error' },
    storage: { filesystem: { rootdirectory: directory } },
    http: { addr: REGISTRY },
  };
  const file = cluster.file('registry.yaml', stringify(config));
  spawnBound(requireProgram('docker-registry'), ['serve', file]).stderr?.resume();
  const insecure = `[[registry]]\nlocation = "${REGISTRY}"\ninsecure = true\n`;
  await answers(`http://${REGISTRY}/v2/`);
  return cluster.file('registries.conf', insecure);
}

/** Scrapes as docs/kubernetes.md says; resolves the cluster's names. */
export async function startPrometheus(cluster: Cluster, namespace: string): Promise<void> {
  const page = readFileSync(path.join(ROOT, 'docs/kubernetes.md'), 'utf8');
  const documented = /```yaml\n(scrape_configs:[\s\S]*?)```/.exec(page)?.[1] ?? '';
  const names = documented
    .replaceAll('.matting.svc', `.${namespace}.svc`)
    .replaceAll('replacement: matting', `replacement: ${namespace}`);
  const config = parse(names);
  config.global = { scrape_interval: '5s', evaluation_interval: '5s' };
  const file = cluster.file('prometheus.yaml', stringify(config));
  const child = spawnBound(requireProgram('prometheus'), [
    `--config.file=${file}`,
    `--storage.tsdb.path=${path.join(cluster.directory, 'prometheus')}`,
    `--web.listen-address=${ADDRESS}:${PROMETHEUS_PORT}`,
  ]);
  child.stderr?.resume();
  await answers(`${PROMETHEUS_URL}/-/ready`);
}

export async function ask(expr: string): Promise<number | undefined> {
  const url = new URL('/api/v1/query', PROMETHEUS_URL);
  url.searchParams.set('query', expr);
  const answer = (await (await fetch(url)).json()) as {
    data: { result: { value: [number, string] }[] };
  };
  const value = answer.data.result[0]?.value[1];
  return value === undefined ? undefined : Number(value);
}

/** Operator and metrics server next to the cluster, by KEDA's manifests. */
export async function startKeda(cluster: Cluster): Promise<void> {
  const { api } = cluster;
  const resources = customResources().filter(file => path.basename(file).includes('keda.sh_'));
  if (resources.length === 0) throw new Error('no custom resources of KEDA in *-crds');
  await api.kubectl('apply', '--server-side', ...resources.flatMap(file => ['--filename', file]));
  await api.kubectl('wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s');
  const own = api.issue('keda-operator', [ADDRESS, 'localhost', '127.0.0.1']);
  const certificates = path.join(cluster.directory, 'keda');
  mkdirSync(certificates);
  cpSync(own.cert, path.join(certificates, 'tls.crt'));
  cpSync(own.key, path.join(certificates, 'tls.key'));
  cpSync(path.join(cluster.directory, 'authority.crt'), path.join(certificates, 'ca.crt'));
  await api.kubectl('create', 'namespace', 'keda');
  const place = [
    ...['KEDA_CLUSTER_OBJECT_NAMESPACE=keda', 'POD_NAMESPACE=keda', 'POD_NAME=keda'],
    'WATCH_NAMESPACE=',
  ];
  const start = (name: string, ...args: readonly string[]) => {
    const child = spawnBound('env', [...place, requireProgram(name), ...args]);
    child.stderr?.resume();
  };
  const common = [`--kubeconfig=${api.kubeconfig}`, `--cert-dir=${certificates}`];
  start(
    'keda-operator',
    ...[...common, '--leader-elect=false', '--enable-cert-rotation=false'],
    ...['--metrics-bind-address=127.0.0.1:18082', '--health-probe-bind-address=127.0.0.1:18083'],
    '--metrics-service-bind-address=127.0.0.1:19666',
  );
  start(
    'keda-adapter',
    ...[...common, `--secure-port=${KEDA_PORT}`, `--lister-kubeconfig=${api.kubeconfig}`],
    ...[`--authentication-kubeconfig=${api.kubeconfig}`],
    ...[`--authorization-kubeconfig=${api.kubeconfig}`],
    ...['--metrics-service-address=127.0.0.1:19666', '--logtostderr'],
  );
  api.apply(KEDA_METRICS.map(each => JSON.stringify(each)).join('\n---\n'));
  const available = 'jsonpath={.status.conditions[?(@.type=="Available")].status}';
  await cluster.waitFor(
    'KEDA gives metrics',
    ['get', 'apiservice', 'v1beta1.external.metrics.k8s.io', '--output', available],
    /True/,
  );
}

/** A Service for the external program, and its API. */
const KEDA_METRICS = [
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'metrics', namespace: 'keda' },
    spec: { ports: [{ name: 'https', port: 443, targetPort: KEDA_PORT }] },
  },
  {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: 'metrics-1',
      namespace: 'keda',
      labels: { 'kubernetes.io/service-name': 'metrics' },
    },
    addressType: 'IPv4',
    ports: [{ name: 'https', port: KEDA_PORT, protocol: 'TCP' }],
    endpoints: [{ addresses: [ADDRESS], conditions: { ready: true } }],
  },
  {
    apiVersion: 'apiregistration.k8s.io/v1',
    kind: 'APIService',
    metadata: { name: 'v1beta1.external.metrics.k8s.io' },
    spec: {
      service: { name: 'metrics', namespace: 'keda' },
      group: 'external.metrics.k8s.io',
      version: 'v1beta1',
      insecureSkipTLSVerify: true,
      groupPriorityMinimum: 100,
      versionPriority: 100,
    },
  },
];
