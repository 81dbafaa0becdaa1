/**
 * Every counter that a rule of deploy/prometheus takes a rate or an increase of is there at 0 before
 * the first event, with each label value that the rule names: Prometheus sees no increase where a
 * series begins above 0, and an alert would miss the first event after a start.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import type { Registry } from 'prom-client';
import { parse } from 'yaml';
import { ControlMetrics } from '../../control-plane/src/metrics.ts';
import {
  FakeEnginePool,
  StageGates,
  TINY_MODEL,
} from '../../inference-node/test/grpc/fake-pools.ts';
import { openTestNode } from '../../inference-node/test/grpc/test-node.ts';

const FOLDER = path.resolve(import.meta.dirname, '../../deploy/prometheus');

/** A quantile leaves out the first observation of a series, one of many; no alert asks for one. */
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
  /** Of the alert or the recorded series. */
  readonly rule: string;
  readonly metric: string;
  readonly matchers: readonly Matcher[];
}

const matchersOf = (text: string): Matcher[] =>
  [...text.matchAll(/(\w+)(=~|!~|!=|=)"([^"]*)"/g)].map(
    ([, label = '', operator = '', value = '']) => ({ label, operator, value }),
  );

/** A selector for each value where a matcher is a list of them: `a|b` is to have a series of both. */
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

function selectorsIn(file: string): Selector[] {
  const { groups } = parse(readFileSync(path.join(FOLDER, file), 'utf8'));
  const rules = groups.flatMap((group: { rules: Record<string, string>[] }) => group.rules);
  return rules.flatMap(({ alert, record, expr }: Record<string, string>) => {
    const rule = alert ?? record ?? '';
    const text = expr ?? '';
    assert.doesNotMatch(text, /\b(?:irate|i?delta|resets|changes)\(/, rule);
    const asked = [...text.matchAll(/\b(?:rate|increase)\((\w+)(?:\{([^}]*)\})?\[\w+\]\)/g)];
    assert.equal(asked.length, text.match(/\b(?:rate|increase)\(/g)?.length ?? 0, rule);
    return asked.flatMap(([, metric = '', matchers = '']) =>
      eachValue(matchersOf(matchers)).map(each => ({ rule, metric, matchers: each })),
    );
  });
}

const SELECTORS = [...selectorsIn('alerts.yaml'), ...selectorsIn('recording.yaml')];

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

/** The page of a control plane, as long as nothing has happened. */
async function untouchedControlPlane(): Promise<Series[]> {
  const metrics = new ControlMetrics();
  // As composed: the public port tells of each route (control-plane/test/compose/main.test.ts).
  metrics.routeAdded('/v1/matting', 'POST');
  return await seriesOf(metrics.registry);
}

/** That of a node whose plan has two models. */
async function untouchedNode(): Promise<Series[]> {
  const engines = new FakeEnginePool(new StageGates());
  const model = { ...TINY_MODEL, model: 'second' };
  const node = await openTestNode({ opinion: { model, engines, role: 'opinion' } });
  try {
    return await seriesOf(node.metrics.registry);
  } finally {
    await node.close();
  }
}

test('what rules count is there at 0 before the first event', async t => {
  const series = [...(await untouchedControlPlane()), ...(await untouchedNode())];
  const counted = SELECTORS.filter(({ metric }) => !QUANTILES.includes(metric));
  const missing = counted.filter(
    ({ metric, matchers }) =>
      !series.some(
        one => one.metric === metric && matchers.every(each => matches(one.labels, each)),
      ),
  );
  t.deepEqual(missing, []);
  t.true(new Set(counted.map(({ metric }) => metric)).size > 15);
});

test('nothing is counted before the first event', async t => {
  const counters = new Set(SELECTORS.map(({ metric }) => metric));
  const series = [...(await untouchedControlPlane()), ...(await untouchedNode())];
  const above = series.filter(({ metric, value }) => counters.has(metric) && value !== 0);
  t.deepEqual(above, []);
});

test('each exception is asked for, by a quantile alone', t => {
  for (const exception of QUANTILES) {
    const asking = SELECTORS.filter(({ metric }) => metric === exception);
    t.true(asking.length > 0, exception);
    for (const { rule } of asking) t.notRegex(rule, /^Matting/);
  }
});

test('a node names each model that an image may have to do without, and no other', async t => {
  const degraded = (await untouchedNode()).filter(
    ({ metric }) => metric === 'matting_node_images_degraded_total',
  );
  t.deepEqual(
    degraded.map(({ labels }) => [labels.model, labels.role]),
    [['second', 'opinion']],
  );
});
