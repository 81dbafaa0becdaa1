import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { parse, stringify } from 'yaml';
import { ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import {
  type KubernetesObject,
  rendered,
  requireOne,
  skipWithout,
  VALUES,
  valuesOf,
} from './helm.ts';

const WITHOUT = skipWithout('helm', 'promtool');
const test = ava.skipIf(isNotTested(WITHOUT));

type Series = Readonly<Record<'series' | 'values', string>>;

interface AlertCase {
  readonly name: string;
  readonly input_series: readonly Series[];
}

const page = readFileSync(path.join(ROOT, 'deploy/prometheus/alerts.test.yaml'), 'utf8');
const { evaluation_interval, tests } = parse(page);
const CASES: readonly AlertCase[] = tests;

function rulesOf(...more: readonly string[]): KubernetesObject {
  const objects = rendered(...(VALUES.production ?? []), ...more);
  return requireOne(objects, 'PrometheusRule', 'matting').spec;
}

function seriesIn(namespace: string, { input_series }: AlertCase): readonly Series[] {
  return input_series.map(({ series, values }) => ({
    series: series.replace('{', `{namespace="${namespace}",`),
    values,
  }));
}

/** Near misses for a firing case, and the reverse. */
function oppositesOf({ name }: AlertCase): readonly AlertCase[] {
  const [alert = ''] = name.split(' ');
  const own = CASES.filter(each => each.name.startsWith(`${alert} `));
  return own.filter(each => each.name.includes(' not ') !== name.includes(' not '));
}

test('no case of an alert ends otherwise because of another release', async t => {
  const directory = await temporaryFolder(t);
  const both = CASES.flatMap(each =>
    oppositesOf(each).map(opposite => ({
      ...each,
      input_series: [...seriesIn('matting', each), ...seriesIn('other', opposite)],
    })),
  );
  t.true(both.length >= CASES.length);
  writeFileSync(path.join(directory, 'rules.yaml'), stringify(rulesOf()));
  const text = stringify({ rule_files: ['rules.yaml'], evaluation_interval, tests: both });
  writeFileSync(path.join(directory, 'rules.test.yaml'), text);
  const promtool = findProgram('promtool') ?? '';
  execFileSync(promtool, ['check', 'rules', 'rules.yaml'], { cwd: directory });
  execFileSync(promtool, ['test', 'rules', 'rules.test.yaml'], { cwd: directory });
});

test('alerts lead to the runbook where the values say it is read', t => {
  const base = 'https://docs.example/matting/';
  const more = valuesOf([], [`metrics.rules.runbookBase="${base}"`]);
  const urls = (rules: KubernetesObject) =>
    rules.groups
      .flatMap((group: KubernetesObject) => group.rules)
      .flatMap(({ annotations }: KubernetesObject) => annotations?.runbook_url ?? []);
  const own = urls(rulesOf());
  t.true(own.length > 40 && own.every((url: string) => /^docs\/runbook.md#\w+$/.test(url)));
  t.deepEqual(
    urls(rulesOf(...more)),
    own.map((url: string) => `${base}${url}`),
  );
});

test('every series and every alert says whose it is', t => {
  const rules = rulesOf().groups.flatMap((group: KubernetesObject) => group.rules);
  t.true(rules.length > 40);
  for (const { record, alert, expr, labels } of rules) {
    t.is(labels.namespace, 'matting', record ?? alert);
    const names = expr.match(/\b(?:matting_\w+|nodejs_\w+|up\{)/g) ?? [];
    const own = expr.match(/\{namespace="matting"[,}]/g) ?? [];
    t.true(names.length > 0 && names.length === own.length, expr);
  }
  const selector = 'namespace="matting",service=~"matting-(?:metrics|nodes)$"';
  const more = valuesOf([], [`metrics.rules.selector=${JSON.stringify(selector)}`]);
  const [group] = rulesOf(...more).groups;
  t.is(group.rules[0].expr, `max(matting_control_queue_jobs{${selector}})`);
});
