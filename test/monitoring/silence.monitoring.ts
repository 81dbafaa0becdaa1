/**
 * Two control planes and two nodes on CPUs, by docs/install.md and by deploy/compose, scraped from
 * their first start; the samples are extended to a day. Needs: object-storage.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { parse, stringify } from 'yaml';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import {
  createMachine,
  documentedMachines,
  runOn,
  setUpOnce,
} from '../fleet/documented-machines.ts';
import { type Env, FleetControlPlane, FleetNode } from '../fleet/program.ts';
import { ROOT } from '../running-service.ts';
import { createTestDatabase, skipReason } from '../support/database.ts';
import { FakeCollector } from '../support/fake-collector.ts';
import { findProgram } from '../support/foreign-program.ts';
import {
  CREDENTIALS_ENV,
  createObjectStore,
  missingStore,
  OBJECT_STORE,
} from '../support/object-storage/object-store.ts';
import { isNotTested } from '../support/skip.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { skipWithoutPrometheus } from './prometheus-server.ts';

const missing = skipReason('mysql') || skipWithoutPrometheus() || missingStore(OBJECT_STORE);
// Both wait most of their time.
const test = ava.skipIf(isNotTested(missing));

/** Twice the documents' interval, to evaluate half as many samples. */
const SCRAPE_S = 30;
/** Over two minutes, the start included. */
const SCRAPES = 5;
/** One after each of the last scrapes. */
const PICTURES = 3;
const DAY_S = 86_400;
const MODELS = {
  MATTING_MODEL_DIR: path.join(ROOT, 'model-cache'),
  MATTING_MODEL: 'u2netp',
  MATTING_CPU_RUNTIME: 'onnxruntime',
};
const RULES = ['alerts.yaml', 'recording.yaml'].map(file =>
  path.join(ROOT, 'deploy/prometheus', file),
);
const TOKEN = 'a-long-random-token-of-this-test';

type Names = ReturnType<typeof documentedMachines>['controlPlane'];

interface Files {
  readonly controlPlane: Names;
  readonly node: Names;
}

/** The programs' part of compose.yaml, with addresses and names. */
function filesOfCompose(): Files {
  const file = parse(readFileSync(path.join(ROOT, 'deploy/compose/compose.yaml'), 'utf8'), {
    merge: true,
  });
  const names = (service: string) => Object.keys(file.services[service].environment);
  return {
    controlPlane: { file: 'control-plane.env', names: names('control-plane-1') },
    node: { file: 'node.env', names: names('node-1') },
  };
}

/** Of the variables that either page names. */
const picked = ({ names }: Names, values: Env): Env =>
  Object.fromEntries(
    names.map(name => {
      assert.ok(values[name] !== undefined, `${name} has no value in this test`);
      return [name, values[name]];
    }),
  );

async function openService(t: ExecutionContext, { controlPlane, node }: Files) {
  const directory = await temporaryFolder(t);
  const database = await createTestDatabase('mysql', { migrated: false });
  t.teardown(() => database.close());
  const store = await createObjectStore(OBJECT_STORE);
  t.teardown(() => store.close());
  const collector = await FakeCollector.open();
  t.teardown(() => collector.close());
  const page = documentedMachines();
  const ports = await findFreePorts(10);
  const [url = ''] = [`http://127.0.0.1:${ports[0]}`];
  const shared = {
    ...CREDENTIALS_ENV,
    MATTING_DATABASE_URL: database.url,
    MATTING_STORAGE_URL: store.url({ prefix: 'production' }),
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_NODE_TOKEN: TOKEN,
    MATTING_OPERATOR_KEY: 'a-long-random-operator-key-of-this-test',
    MATTING_BASE_URL: url,
    MATTING_TRUSTED_PROXIES: '172.31.97.0/24',
    MATTING_MODELS_OFFERED: '',
    MATTING_READS_REQUIRE_IDEMPOTENCY_KEY: 'false',
    MATTING_PROFILE: '',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
    MATTING_HOST: '127.0.0.1',
    MATTING_REGISTRY_HOST: '127.0.0.1',
    MATTING_REGISTRY_ADDRESS: `127.0.0.1:${ports[1]},127.0.0.1:${ports[4]}`,
  };
  const rootOf = (name: string) => path.join(directory, name);
  const versionOf = (name: string) => ({ name: 'this version', root: rootOf(name) });
  const planes = ['control-1', 'control-2'].map((name, index) => {
    createMachine(rootOf(name), controlPlane, picked(controlPlane, shared));
    const [http = 0, registry = 0, metrics = 0] = ports.slice(3 * index);
    const place = { ports: { http, registry, metrics }, nodes: 2 };
    const env = { TMPDIR: directory, MATTING_HOST: '127.0.0.1' };
    const options = { name, args: page.controlPlaneStart, env, directory };
    return new FleetControlPlane(versionOf(name), options, place);
  });
  const nodes = ['node-1', 'node-2'].map((name, index) => {
    const [grpc = 0, http = 0] = ports.slice(6 + 2 * index);
    const own = { MATTING_NODE_ID: name, MATTING_NODE_ADVERTISE_ADDRESS: `127.0.0.1:${grpc}` };
    createMachine(rootOf(name), node, picked(node, { ...shared, ...own }));
    const env = { TMPDIR: directory, ...MODELS, MATTING_EXECUTION_PROVIDER: 'auto' };
    const options = { name, args: page.nodeStart, env, directory };
    return new FleetNode(versionOf(name), options, {
      ports: { grpc, http },
      planes,
      model: 'u2netp',
    });
  });
  const programs = [...planes, ...nodes];
  t.teardown(() => Promise.all(programs.map(program => program.kill())));
  const set = { models: MODELS, migratorUrl: database.url };
  const key = await setUpOnce(rootOf('control-1'), page.once, set);
  const start = async () => {
    for (const program of planes) program.start();
    for (const program of nodes) {
      await runOn(program.version.root, page.nodeFetch, MODELS);
      program.start();
    }
  };
  const targets = {
    'matting-control': planes.map(plane => plane.ports.metrics),
    'matting-node': [ports[7] ?? 0, ports[9] ?? 0],
  };
  const ready = () => Promise.all(programs.map(program => program.untilReady()));
  return { planes, targets, key, start, ready };
}

/** One value a scrape; undefined: absent. */
type Series = Map<string, (number | undefined)[]>;

async function scrape(
  series: Series,
  targets: Readonly<Record<string, readonly number[]>>,
  index: number,
) {
  const put = (name: string, value: number) => {
    const values = series.get(name) ?? [];
    values[index] = value;
    series.set(name, values);
  };
  for (const [job, ports] of Object.entries(targets)) {
    for (const port of ports) {
      const labels = `instance="127.0.0.1:${port}",job="${job}"`;
      const text = await fetch(`http://127.0.0.1:${port}/metrics`).then(
        answer => answer.text(),
        () => undefined,
      );
      put(`up{${labels}}`, text === undefined ? 0 : 1);
      for (const line of text?.split('\n') ?? []) {
        const [, name, own = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
        if (name === undefined || !asked.has(name)) continue;
        put(`${name}{${own === '' ? labels : `${own},${labels}`}}`, Number(value));
      }
    }
  }
}

const rules = RULES.map(file => readFileSync(file, 'utf8')).join('\n');
const asked = new Set(rules.match(/\b(?:matting|nodejs)_\w+/g));

/** A value that only rose keeps rising; all others stay. */
function continued(values: readonly (number | undefined)[]): string {
  const seen = Array.from({ length: SCRAPES }, (_, index) => values[index]);
  const known = seen.flatMap(value => value ?? []);
  const rises = known.length > 2 && known.every((value, index) => value >= (known[index - 1] ?? 0));
  const last = known.at(-1) ?? 0;
  const slope = rises ? (last - (known[0] ?? 0)) / (known.length - 1) : 0;
  const rest = `${last + slope}+${slope}x${DAY_S / SCRAPE_S - SCRAPES}`;
  return `${seen.map(value => value ?? '_').join(' ')} ${rest}`;
}

async function alertsOf(folder: string, series: Series): Promise<string> {
  const file = path.join(folder, 'day.test.yaml');
  const alerts = 'count_over_time(ALERTS{alertstate="firing"}[1d])';
  const day = {
    interval: `${SCRAPE_S}s`,
    input_series: [...series].map(([name, values]) => ({
      series: name,
      values: continued(values),
    })),
    promql_expr_test: [{ expr: alerts, eval_time: '1d', exp_samples: [] }],
  };
  const content = { rule_files: RULES, evaluation_interval: '1m', tests: [day] };
  writeFileSync(file, stringify(content));
  try {
    await promisify(execFile)(findProgram('promtool') ?? 'promtool', ['test', 'rules', file]);
    return '';
  } catch (error) {
    return String((error as { stderr?: string }).stderr ?? error);
  }
}

async function watch(t: ExecutionContext, files: Files): Promise<void> {
  const { planes, targets, key, start, ready } = await openService(t, files);
  const series: Series = new Map();
  const starting = start();
  const create = { width: 64, height: 64, channels: 3, background: '#246' } as const;
  const picture = await sharp({ create }).png().toBuffer();
  let made = 0;
  for (let index = 0; index < SCRAPES; index += 1) {
    await scrape(series, targets, index);
    await delay(SCRAPE_S * 1000);
    if (index === 0) await starting;
    if (index < SCRAPES - PICTURES) continue;
    await ready();
    const answer = await fetch(`${planes[index % 2]?.url}/v1/matting`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        'idempotency-key': randomUUID(),
        'content-type': 'image/png',
        accept: 'image/png',
      },
      body: picture,
    });
    if (answer.status === 200) made += 1;
    await answer.arrayBuffer();
  }
  t.is(made, PICTURES);
  t.true(series.size > 100, `${series.size} series`);
  t.is(await alertsOf(await temporaryFolder(t), series), '');
}

test('two by two, by the files of docs/install.md: no alert in a day', async t => {
  const { controlPlane, node } = documentedMachines();
  await watch(t, { controlPlane, node });
});

test('by what compose.yaml gives the programs: no alert in a day', async t => {
  await watch(t, filesOfCompose());
});
