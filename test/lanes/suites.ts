/**
 * All tests. `.ci/run` runs suites of every change, and nightly ones whose code changed since the
 * last green `make nightly`; docs/testing.md names those that a person runs.
 */

import { skipWithoutPrometheus } from '../monitoring/prometheus-server.ts';
import { GUARDS } from '../mutation/guards.ts';
import { skipReason } from '../support/database.ts';
import { galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { missingStore, OBJECT_STORE } from '../support/object-storage/object-store.ts';
import { skipWithoutJaeger } from '../traces/jaeger-server.ts';

export type Lane = 'every change' | 'nightly' | 'by hand';

export interface Suite {
  readonly command: string;
  /** `ONLY`. Suites of one command and lane run at once. */
  readonly only?: string;
  readonly lane: Lane;
  readonly files: readonly string[];
  /** Globs; a change of a match runs a nightly suite in `.ci/run`. */
  readonly covers?: readonly string[];
  /** npm packages; a new version of one or its dependencies does too. */
  readonly packages?: readonly string[];
  /** After a change, `ONLY` gets the changed files instead. */
  readonly takesFiles?: boolean;
  readonly skipReason?: () => string | false;
}

const everyChange = (command: string, files: readonly string[], only?: string): Suite => ({
  command,
  lane: 'every change',
  files,
  ...(only !== undefined && { only }),
});

const byHand = (command: string, ...files: readonly string[]): Suite => ({
  command,
  lane: 'by hand',
  files,
});

/**
 * Parts of the whole service are killed while jobs, credits or messages are at stake. No few paths
 * name the code of that.
 */
const STORMS = [
  'test/chaos/webhooks.storm.ts',
  'test/chaos/fleet.storm.ts',
  'test/e2e/newcomer.storm.ts',
  'test/e2e/up.storm.ts',
  'control-plane/test/compose/kills.storm.ts',
  'control-plane/test/compose/batches.storm.ts',
  'control-plane/test/compose/stopped.storm.ts',
  'control-plane/test/compose/hostile-neighbours.storm.ts',
  'control-plane/test/compose/database-outage.storm.ts',
  'control-plane/test/compose/corrections.storm.ts',
].map(file => everyChange('make storms', [file], file));

/** It shows a bound of one part, whose code these paths name. */
function nightlyStorm(
  file: string,
  covers: readonly string[],
  packages: readonly string[] = [],
): Suite {
  const own = [file, ...covers];
  return {
    command: 'make storms',
    only: file,
    lane: 'nightly',
    files: [file],
    covers: own,
    packages,
  };
}

const DISPATCH = ['bench/dispatch-simulator', 'control-plane/core/dispatch', 'control-plane/queue'];

const NIGHTLY_STORMS = [
  nightlyStorm('test/simulation/mixed-days.storm.ts', DISPATCH),
  nightlyStorm('test/simulation/simulation.storm.ts', DISPATCH),
  nightlyStorm(
    'test/client/package.storm.ts',
    ['client', 'deploy/release/artifacts.ts', 'test/client/packed-command.ts'],
    ['typescript'],
  ),
  nightlyStorm(
    'inference-node/serving/picture/fuzz/fuzz-decode.storm.ts',
    ['inference-node/serving/picture', 'inference-node/serving/test/picture/{fuzz,damage}'],
    ['sharp', 'wasm-vips'],
  ),
  nightlyStorm(
    'control-plane/core/http/large-bodies.storm.ts',
    [
      'control-plane/http/{bodies,base64,json-fields,body-fields,multipart,urlencoded,kept-bytes}.ts',
    ],
    ['fastify'],
  ),
  nightlyStorm('control-plane/test/compose/few-files.storm.ts', [
    'program/ports',
    'bin/node/package-lock.json',
  ]),
  nightlyStorm(
    'inference-node/model-tools/probing/million-nodes.storm.ts',
    ['inference-node/model-tools/probing'],
    ['onnxruntime-node'],
  ),
  nightlyStorm(
    'inference-node/serving/engine/child/telemetry.storm.ts',
    ['inference-node/serving/engine/child', 'inference-node/model-tools/providers'],
    ['onnxruntime-node'],
  ),
  nightlyStorm('inference-node/serving/picture/codecs/large-jxl.storm.ts', [
    'inference-node/serving/picture/codecs/*jxl*.ts',
  ]),
  nightlyStorm('inference-node/serving/picture/pool/stuck-workers.storm.ts', [
    'inference-node/serving/picture/pool',
  ]),
  nightlyStorm('inference-node/serving/stuck-engine.storm.ts', [
    'inference-node/serving/engine/pool',
  ]),
  nightlyStorm('program/test/garbage.storm.ts', ['program/heap.ts', 'bin/node/package-lock.json']),
];

const NIGHTLY: readonly Suite[] = [
  {
    command: 'make monitoring',
    only: 'silence',
    lane: 'nightly',
    files: ['test/monitoring/silence.monitoring.ts'],
    covers: [
      'test/monitoring',
      'test/fleet/documented-machines.ts',
      'deploy/prometheus',
      'deploy/compose',
      'docs/install.md',
    ],
    packages: ['@prometheus-io/client'],
    skipReason: () => skipReason('mysql') || skipWithoutPrometheus() || missingStore(OBJECT_STORE),
  },
  {
    command: 'make apart',
    only: 'each',
    lane: 'nightly',
    files: [],
    covers: [
      'test/apart',
      'deploy/images/take-away.ts',
      'control-plane/packages.ts',
      'control-plane/core/package.ts',
      'control-plane/*/package.json',
    ],
    packages: ['typescript'],
  },
  {
    command: 'make test-storage',
    lane: 'nightly',
    files: ['**/*.storage.ts'],
    covers: [
      'control-plane/object-storage',
      'control-plane/storage',
      'test/support/object-storage',
      '**/*.storage.ts',
    ],
    packages: ['@aws-sdk/client-s3', '@aws-sdk/s3-request-presigner', '@smithy/node-http-handler'],
    skipReason: () => missingStore('versitygw') && missingStore('minio'),
  },
  {
    command: 'make test-traces',
    lane: 'nightly',
    files: ['test/traces/*.traces.ts'],
    covers: ['test/traces', 'program/tracing'],
    packages: ['@opentelemetry/sdk-trace', '@opentelemetry/exporter-trace-otlp-http'],
    skipReason: skipWithoutJaeger,
  },
  {
    command: 'make test-databases',
    only: 'galera',
    lane: 'nightly',
    files: [],
    covers: [
      'test/databases',
      'test/support/databases',
      'control-plane/database',
      'control-plane/*/migrations',
    ],
    packages: ['kysely', 'mysql2'],
    skipReason: galeraSkipReason,
  },
  {
    command: 'make test-cuda-stubs',
    lane: 'nightly',
    files: ['test/cuda-stubs/*.stubs.ts'],
    covers: [
      'test/cuda-stubs',
      'inference-node/serving/engine/{child/onnx-c-session.ts,choice,devices}',
      'inference-node/model-tools/providers',
    ],
    packages: ['onnxruntime-node'],
    skipReason: () =>
      !process.env.MATTING_TEST_CUDA_WHEEL && 'MATTING_TEST_CUDA_WHEEL names no wheel',
  },
  {
    command: 'make mutants',
    lane: 'nightly',
    files: ['test/mutation/*.mutants.ts'],
    covers: [...new Set(GUARDS.flatMap(({ file, tests }) => [file, tests])), 'test/mutation'],
    packages: ['ava', 'typescript'],
    takesFiles: true,
  },
  ...NIGHTLY_STORMS,
];

/** In the order of a lane's run. */
export const SUITES: readonly Suite[] = [
  everyChange('make types', []),
  everyChange('make lint', []),
  everyChange('make generated', []),
  everyChange('make browser', ['test/browser/*.{browser,test}.ts']),
  everyChange('make monitoring', ['test/monitoring/dashboards.monitoring.ts'], 'dashboards'),
  ...STORMS,
  everyChange('make apart', [], 'all'),
  everyChange('make test-chart', ['test/kubernetes/*.chart.ts']),
  ...NIGHTLY,
  everyChange('make test', [
    '{bin,client,control-plane,inference-node,program,proto,test}/**/*.test.ts',
  ]),
  byHand('make chaos', 'test/chaos/*.{storm,chaos}.ts'),
  byHand('make schemathesis'),
  byHand('make soak', 'test/soak/*.soak.ts'),
  byHand('make fuzz'),
  byHand('make runbook', 'test/runbook/*.runbook.ts'),
  byHand('make test-databases', 'test/databases/*.databases.ts'),
  byHand('make test-images', 'test/images/*.images.ts'),
  byHand('make test-install', 'test/install/*.install.ts'),
  byHand('make test-kubernetes', 'test/kubernetes/*.kubernetes.ts'),
  byHand('make test-release', 'test/release/*.release.ts'),
  byHand('make test-upgrade', 'test/upgrade/*.upgrade.ts'),
  byHand('sh bin/node24 test/foreign/main.ts'),
  byHand('sh bin/node24 test/client/runtimes/main.ts'),
];
