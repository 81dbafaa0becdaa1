/** Uses promtool. Needs: portal. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import timers from 'node:timers/promises';
import type { Registry } from '@prometheus-io/client';
import ava from 'ava';
import sinon from 'sinon';
import { parse, stringify } from 'yaml';
import { ControlMetrics } from '../../control-plane/core/metrics/control-metrics.ts';
import { registerGauges } from '../../control-plane/core/metrics/gauges.ts';
import { countSubmitted } from '../../control-plane/core/metrics/work-by-model.ts';
import { portalMetrics } from '../../control-plane/portal/portal-metrics.ts';
import { registerCertificatesGauge } from '../../inference-node/serving/metrics.ts';
import {
  FakeEnginePool,
  StageGates,
  TINY_MODEL,
} from '../../inference-node/serving/test/fake-pools.ts';
import { openTestNode, type TestNode } from '../../inference-node/serving/test/test-node.ts';
import { MetricSet } from '../../program/metric-set.ts';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');
const FOLDER = path.join(ROOT, 'deploy/prometheus');
const PROMTOOL = findProgram('promtool');
const WITHOUT_PROMTOOL =
  PROMTOOL === undefined && process.env.MATTING_TEST_REQUIRE_PROMTOOL === undefined
    ? 'no promtool here: install prometheus'
    : false;

interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface TestCase {
  readonly name: string;
  readonly promql_expr_test: readonly { readonly expr: string; readonly exp_samples: unknown[] }[];
}

const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
const rulesOf = (file: string): Rule[] =>
  parse(read(`deploy/prometheus/${file}`)).groups.flatMap(
    (group: { rules: Rule[] }) => group.rules,
  );
const casesOf = (file: string): TestCase[] => parse(read(`deploy/prometheus/${file}`)).tests;

const ALERTS = rulesOf('alerts.yaml');
const RECORDED = rulesOf('recording.yaml');

test('every alert says how grave it is, what it saw and where to read on', t => {
  for (const { alert, labels = {}, annotations = {} } of ALERTS) {
    t.regex(labels.severity ?? '', /^(?:critical|warning)$/, alert);
    t.true((annotations.summary ?? '').length > 10, alert);
    const url = annotations.runbook_url?.replace('{{ $externalLabels.runbook_base }}', '');
    const [file = '', heading = ''] = (url ?? '').split('#');
    const headings = [...read(file).matchAll(/^#+ (.+)$/gm)].map(([, text = '']) =>
      text
        .toLowerCase()
        .replaceAll(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    );
    t.true(headings.includes(heading), `${alert}: ${url}`);
  }
});

test('the runbook has a page an alert', t => {
  const pages = [...read('docs/runbook.md').matchAll(/^## (\w+)$/gm)].map(([, name]) => name);
  t.deepEqual(pages.toSorted(), ALERTS.map(({ alert }) => alert).toSorted());
});

test('every alert has a case in which it fires and a near miss in which it does not', t => {
  const cases = casesOf('alerts.test.yaml');
  for (const { alert } of ALERTS) {
    const of = (name: string) => cases.filter(each => each.name.startsWith(name));
    const fires = of(`${alert} fires`).flatMap(each => each.promql_expr_test);
    const misses = of(`${alert} does not fire`).flatMap(each => each.promql_expr_test);
    const expected = `count(ALERTS{alertname="${alert}",alertstate="firing"})`;
    for (const { expr } of [...fires, ...misses]) t.is(expr, expected);
    t.true(
      fires.some(({ exp_samples }) => exp_samples.length === 1),
      alert,
    );
    t.true(misses.length > 0 && misses.every(each => each.exp_samples.length === 0), alert);
  }
  const recorded = casesOf('recording.test.yaml').flatMap(each => each.promql_expr_test);
  const tested = RECORDED.filter(({ record = '' }) =>
    recorded.some(({ expr, exp_samples }) => expr.includes(record) && exp_samples.length > 0),
  );
  t.deepEqual(
    RECORDED.filter(rule => !tested.includes(rule)).map(({ record }) => record),
    [],
  );
});

test.skipIf(isNotTested(WITHOUT_PROMTOOL))(
  'Prometheus takes the configuration, and finds every case so',
  async t => {
    assert.ok(PROMTOOL !== undefined, 'promtool is installed');
    execFileSync(PROMTOOL, ['check', 'config', 'prometheus.yaml'], { cwd: FOLDER });
    // One alert at a time: together every case would evaluate every rule.
    const folder = await temporaryFolder(t);
    const { tests, ...settings } = parse(read('deploy/prometheus/alerts.test.yaml'));
    let asked = 0;
    const files = ALERTS.map(rule => {
      const cases = tests.filter(({ name }: TestCase) => name.startsWith(`${rule.alert} `));
      asked += cases.length;
      const ruleFile = `${rule.alert}.yaml`;
      const groups = [{ name: 'one', rules: [rule] }];
      writeFileSync(path.join(folder, ruleFile), stringify({ groups }));
      const file = path.join(folder, `${rule.alert}.test.yaml`);
      writeFileSync(file, stringify({ ...settings, rule_files: [ruleFile], tests: cases }));
      return file;
    });
    t.is(asked, tests.length);
    const recorded = path.join(FOLDER, 'recording.test.yaml');
    execFileSync(PROMTOOL, ['test', 'rules', ...files, recorded], { cwd: FOLDER });
  },
);

test('the routes of alertmanager.yaml name alerts that are there', t => {
  const { inhibit_rules: rules } = parse(read('deploy/prometheus/alertmanager.yaml'));
  const named = new Set(JSON.stringify(rules).match(/Matting\w+/g));
  const names = ALERTS.map(({ alert }) => alert);
  t.deepEqual(
    [...named].filter(name => !names.includes(name)),
    [],
  );
  t.true(named.size > 5);
});

const AMTOOL = findProgram('amtool');
test.skipIf(isNotTested(AMTOOL === undefined && 'no amtool here: install prometheus-alertmanager'))(
  'Alertmanager takes its routes',
  t => {
    const said = execFileSync(AMTOOL ?? '', ['check-config', 'alertmanager.yaml'], { cwd: FOLDER });
    t.regex(said.toString(), /SUCCESS/);
  },
);

const READABLE = {
  version: '1.2.3',
  readiness: async () => ({ ready: true }) as const,
  fleet: () => ({ members: 3, routable: 2, imagesFree: 4, attemptsInFlight: 5 }),
  running: () => 6,
  downloading: () => 17,
  certificateEnds: () => [{ file: 'MATTING_TLS_CERT_FILE', endMs: 26_000 }],
  uploads: () => ({ open: 7, waiting: 8 }),
  databaseWaiting: () => 11,
  connections: () => 9,
  resultReaders: () => 19,
  registryConnections: () => ({ known: 17, strangers: 18 }),
  storageRoom: async () => ({ freeBytes: 10, sizeBytes: 100 }),
  queueMegapixelsMax: 11,
  queued: async () => ({
    ...{ jobs: 12, cost: 13, oldestAgeMs: 0 },
    byModel: new Map([[null, 13]]),
  }),
  modelsOffered: ['fine'],
  onDemand: true,
  webhooks: { inFlight: () => 14, due: async () => ({ count: 15, oldestMs: 16_000 }) },
  mailsWaiting: async () => ({ count: 23, oldestMs: 24_000 }),
  ledgerAudits: async () => [{ kind: 'full', ageMs: 17_000, problems: 18 }],
  sweepBacklog: async () => ({ resultsMs: 20, secretsMs: 21, rowsMs: 22, walkMs: null }),
};

/** A quantile misses a series' first observation, one of many; no alert needs it. */
const QUANTILES = [
  'matting_control_job_duration_seconds_bucket',
  'matting_control_job_wait_seconds_bucket',
];

type Labels = Readonly<Record<string, string>>;

interface Matcher {
  readonly label: string;
  readonly operator: string;
  readonly value: string;
}

interface Selector {
  readonly rule: string;
  readonly metric: string;
  readonly matchers: readonly Matcher[];
}

const matchersOf = (text: string): Matcher[] =>
  [...text.matchAll(/(\w+)(=~|!~|!=|=)"([^"]*)"/g)].map(
    ([, label = '', operator = '', value = '']) => ({ label, operator, value }),
  );

/** One selector for each alternative of `a|b`: both need a series. */
function eachValue(matchers: readonly Matcher[]): Matcher[][] {
  let selectors: Matcher[][] = [[]];
  for (const matcher of matchers) {
    const isList = matcher.operator === '=~' && /^[\w-]+(\|[\w-]+)*$/.test(matcher.value);
    const each = isList
      ? matcher.value.split('|').map(value => ({ ...matcher, operator: '=', value }))
      : [matcher];
    selectors = selectors.flatMap(before => each.map(one => [...before, one]));
  }
  return selectors;
}

function selectorsIn({ alert, record, expr }: Rule): Selector[] {
  const rule = alert ?? record ?? '';
  assert.doesNotMatch(expr, /\b(?:irate|i?delta|resets|changes)\(/, rule);
  const asked = [...expr.matchAll(/\b(?:rate|increase)\((\w+)(?:\{([^}]*)\})?\[\w+\]\)/g)];
  assert.equal(asked.length, expr.match(/\b(?:rate|increase)\(/g)?.length ?? 0, rule);
  return asked.flatMap(([, metric = '', matchers = '']) =>
    eachValue(matchersOf(matchers)).map(each => ({ rule, metric, matchers: each })),
  );
}

const SELECTORS = [...ALERTS, ...RECORDED].flatMap(selectorsIn);

interface Series {
  readonly metric: string;
  readonly labels: Labels;
  readonly value: number;
}

async function seriesOf(registry: Registry): Promise<Series[]> {
  const text = await registry.metrics();
  return [...text.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)].map(
    ([, metric = '', labels = '', value]) => ({
      metric,
      labels: Object.fromEntries(matchersOf(labels).map(each => [each.label, each.value])),
      value: Number(value),
    }),
  );
}

function matches(labels: Labels, { label, operator, value }: Matcher): boolean {
  const found = labels[label] ?? '';
  const isRegex = operator.endsWith('~');
  const isMet = isRegex ? new RegExp(`^(?:${value})$`).test(found) : found === value;
  return operator.startsWith('!') ? !isMet : isMet;
}

let control: ControlMetrics;
let node: TestNode;
/** Before anything happened: a control plane, and a node with two models. */
let ofControl: Series[];
let ofNode: Series[];

test.before(async () => {
  control = new ControlMetrics(['usage']);
  portalMetrics(control, READABLE);
  // As the composed public port does (control-plane/test/compose/main.test.ts).
  control.routeAdded('/v1/matting', 'POST');
  const model = { ...TINY_MODEL, model: 'second' };
  const engines = new FakeEnginePool(new StageGates());
  node = await openTestNode({ opinion: { model, engines, role: 'opinion' } });
  registerCertificatesGauge({ ends: [] }, node.metrics);
  ofControl = await seriesOf(control.registry);
  ofNode = await seriesOf(node.metrics.registry);
});
test.after.always(() => node?.close());

test('rules and pages name metrics that there are', async t => {
  const gauges = allGauges({}, () => assert.fail());
  const metrics = await Promise.all(
    [control.registry, gauges.registry, node.metrics.registry].map(each =>
      each.getMetricsAsArray(),
    ),
  );
  const made = new Set(metrics.flat().map(({ name }) => name));
  const pages = globSync('docs/*.md', { cwd: ROOT }).map(read);
  const names = [...[...ALERTS, ...RECORDED].map(({ expr }) => expr), ...pages].flatMap(
    text => text.match(/\bmatting_(?:control|node)_[a-z_]+/g) ?? [],
  );
  const missing = names.filter(name => !made.has(name.replace(/_(?:bucket|sum|count)$/, '')));
  t.deepEqual([...new Set(missing)], []);
  t.true(new Set(names).size > 60);
});

test('every series that a rule counts is 0 before the first event', t => {
  const series = [...ofControl, ...ofNode];
  const counted = SELECTORS.filter(({ metric }) => !QUANTILES.includes(metric));
  const missing = counted.filter(
    ({ metric, matchers }) =>
      !series.some(
        one =>
          one.metric === metric &&
          one.value === 0 &&
          matchers.every(each => matches(one.labels, each)),
      ),
  );
  t.deepEqual(missing, []);
  t.true(new Set(counted.map(({ metric }) => metric)).size > 15);
});

type Sources = Parameters<typeof registerGauges>[1] & Parameters<typeof portalMetrics>[1];

function allGauges(changes: Partial<Sources>, onFailure: (what: string) => void): MetricSet {
  const metrics = new MetricSet(onFailure);
  const sources = { ...READABLE, ...changes };
  registerGauges(metrics, sources);
  portalMetrics(metrics, sources);
  countSubmitted(metrics, READABLE.modelsOffered);
  return metrics;
}

async function page(changes: Partial<Sources>) {
  const failures: string[] = [];
  const { registry } = allGauges(changes, what => failures.push(what));
  return { text: () => registry.metrics(), failures };
}

test('a metric that cannot be read is missing, and the others are shown', async t => {
  const away = () => Promise.reject(new Error('away'));
  let storageRoom = READABLE.storageRoom;
  const shown = await page({ queued: away, storageRoom: () => storageRoom() });
  const text = await shown.text();
  t.regex(text, /^matting_control_storage_free_bytes 10$/m);
  t.regex(text, /^matting_control_storage_size_bytes 100$/m);
  t.regex(text, /^matting_control_uploads_waiting 8$/m);
  t.regex(
    text,
    /^matting_control_tls_expires_timestamp_seconds\{file="MATTING_TLS_CERT_FILE"\} 26$/m,
  );
  t.regex(text, /^matting_control_database_waiting 11$/m);
  t.regex(text, /^matting_control_nodes\{state="unroutable"\} 1$/m);
  t.regex(text, /^matting_control_webhooks_oldest_due_seconds 16$/m);
  t.regex(text, /^matting_control_mails_waiting 23$/m);
  t.regex(text, /^matting_control_mails_oldest_due_seconds 24$/m);
  t.regex(text, /^matting_control_ledger_audit_age_seconds\{kind="full"\} 17$/m);
  t.regex(text, /^matting_control_ledger_audit_problems\{kind="full"\} 18$/m);
  t.notRegex(text, /^matting_control_queue_(jobs|megapixels|oldest_age_seconds) /m);
  // One read of the database for all of them.
  t.deepEqual(shown.failures, ['the database']);
  storageRoom = away;
  const later = performance.now() + 1001;
  const clock = sinon.stub(performance, 'now').returns(later);
  t.teardown(() => clock.restore());
  t.notRegex(await shown.text(), /^matting_control_storage_free_bytes /m);
});

test('a database that hangs holds no scrape up, and is asked once', async t => {
  const waits: { readonly ms: number; end(): void }[] = [];
  const wait = (ms = 0, value?: unknown) =>
    new Promise(resolve => waits.push({ ms, end: () => resolve(value) }));
  const stub = sinon.stub(timers, 'setTimeout').callsFake(wait as typeof timers.setTimeout);
  syncBuiltinESMExports();
  t.teardown(() => {
    stub.restore();
    syncBuiltinESMExports();
  });
  let asked = 0;
  const queued = () => {
    asked += 1;
    return new Promise<never>(() => undefined);
  };
  const { text } = await page({ queued });
  for (let scrapes = 0; scrapes < 2; scrapes += 1) {
    const scraped = text();
    await new Promise(setImmediate);
    t.true(waits.length > 0);
    for (const { ms, end } of waits.splice(0)) {
      t.true(ms <= 2000);
      end();
    }
    t.notRegex(await scraped, /^matting_control_queue_jobs /m);
    t.regex(await scraped, /^matting_control_webhooks_due 15$/m);
  }
  t.is(asked, 1);
});

test('waiting megapixels are shown for every model, even at 0', async t => {
  const text = await (await page({})).text();
  t.regex(text, /^matting_control_waiting_megapixels\{model=""\} 13$/m);
  t.regex(text, /^matting_control_waiting_megapixels\{model="fine"\} 0$/m);
});

test('each cause of not being ready is told apart', async t => {
  const readiness = async () => ({ ready: false, causes: ['storage'] }) as const;
  const text = await (await page({ readiness })).text();
  t.regex(text, /^matting_control_unready\{cause="storage"\} 1$/m);
  for (const cause of ['draining', 'database', 'storage-full', 'no-node-yet']) {
    t.regex(text, new RegExp(`^matting_control_unready\\{cause="${cause}"\\} 0$`, 'm'));
  }
});
