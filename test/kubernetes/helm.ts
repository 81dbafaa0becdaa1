import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { parseAllDocuments } from 'yaml';
import { ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';

export const CHART = path.join(ROOT, 'deploy/chart');
/** Without a cluster Helm assumes an old version. */
export const KUBERNETES_VERSION = '1.36.3';

// biome-ignore lint/suspicious/noExplicitAny: objects of Kubernetes have no types here
export type KubernetesObject = any;

export function skipWithout(...names: readonly string[]): string | false {
  const missing = names.filter(name => findProgram(name) === undefined);
  return missing.length > 0 && `${missing.join(', ')} not in PATH or MATTING_TEST_TOOLS`;
}

export function helm(...args: readonly string[]): string {
  const program = findProgram('helm');
  if (program === undefined) throw new Error('helm is not here');
  return execFileSync(program, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 1 << 26,
  });
}

export const exampleFile = (name: string) => path.join(CHART, 'examples', `${name}.yaml`);

/** Files of examples, and `path=value` for `--set-json`. */
export function valuesOf(examples: readonly string[], set: readonly string[] = []): string[] {
  return [
    // Required, and site-specific.
    ...['--set-json', 'images.registry="registry.example/team"'],
    ...examples.flatMap(name => ['--values', exampleFile(name)]),
    ...set.flatMap(pair => ['--set-json', pair]),
  ];
}

export const VALUES: Readonly<Record<string, readonly string[]>> = {
  smallest: valuesOf([], ['secret.name="matting"']),
  production: valuesOf(['production']),
  'on demand': valuesOf(['production', 'on-demand']),
  gpu: valuesOf(['production', 'gpu']),
  offline: valuesOf(['offline']),
  models: valuesOf(['production', 'models']),
  'volumes of one machine': valuesOf(
    [],
    [
      'secret.name="matting"',
      'database.kind="mysql"',
      'migrations.databaseUrlKey="migrations-url"',
      'nodes.pools.cpu={"modelCache":{"kind":"claim"},"podDisruptionBudget":{"minAvailable":1}}',
    ],
  ),
  'everything else': valuesOf(
    ['production'],
    [
      'tls={"enabled":true,"controlPlaneSecret":"a","nodeSecret":"b","serverName":"matting.internal"}',
      'httpRoute={"enabled":true,"parentRefs":[{"name":"gateway"}],"hosts":["matting.example"]}',
      'nodes.defaults.callerService=true',
      'nodes.defaults.podDisruptionBudget={"maxUnavailable":"25%"}',
      'tests.apiKeySecret.name="key"',
    ],
  ),
};

export function manifests(...args: readonly string[]): string {
  const place = ['--namespace', 'matting', '--kube-version', KUBERNETES_VERSION];
  return helm('template', 'matting', CHART, ...place, ...args);
}

export function rendered(...args: readonly string[]): KubernetesObject[] {
  return objectsIn(manifests(...args));
}

export function objectsIn(text: string): KubernetesObject[] {
  return parseAllDocuments(text)
    .map(document => document.toJS() as KubernetesObject)
    .filter(each => each !== null);
}

export function requireOne(
  objects: readonly KubernetesObject[],
  kind: string,
  name: string,
): KubernetesObject {
  const found = objects.filter(each => each.kind === kind && each.metadata.name === name);
  if (found.length !== 1) throw new Error(`${found.length} objects ${kind} ${name}`);
  return found[0];
}

export function podOf({ kind, metadata, spec }: KubernetesObject): KubernetesObject | undefined {
  if (kind === 'Pod') return { metadata, spec };
  const { template } = (kind === 'CronJob' ? spec.jobTemplate.spec : spec) ?? {};
  return template?.spec === undefined ? undefined : template;
}
