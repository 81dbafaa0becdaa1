/**
 * deploy/prometheus: the rules name metrics that there are, say what docs/operations.md says, and
 * each alert fires when it should and not on the near miss, by Prometheus' own evaluation.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { parse } from 'yaml';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';

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
const PAGE = read('docs/operations.md');
const TABLE = PAGE.slice(PAGE.indexOf('### Alerts'), PAGE.indexOf('### All of them'));
const LIST = PAGE.slice(PAGE.indexOf('### All of them'));

/** `30s`, `1m` as the page has them. */
const spelt = (length: string) => length.replace(/m$/, ' min').replace(/s$/, ' s');

test('the rules and the table of docs/operations.md are the same', t => {
  const rows = TABLE.split('\n').filter(line => line.startsWith('| Matting'));
  t.true(rows.length > 20);
  const form = /(Matting\w+): `([^`]+)`(?:, (\d+ (?:s|min)))?/g;
  const said = rows.flatMap(row => [...row.matchAll(form)].map(([, ...parts]) => parts));
  const ruled = ALERTS.map(({ alert, expr, for: length }) => [
    alert,
    expr,
    length && spelt(length),
  ]);
  t.deepEqual(said.toSorted(), ruled.toSorted());
});

test('rules ask for metrics that there are', t => {
  const listed = new Set(LIST.match(/matting_(?:control|node)_[a-z_]+/g));
  const names = [...ALERTS, ...RECORDED].flatMap(
    ({ expr }) => expr.match(/matting_(?:control|node)_[a-z_]+/g) ?? [],
  );
  const missing = names.filter(name => !listed.has(name.replace(/_(?:bucket|sum|count)$/, '')));
  t.deepEqual(missing, []);
  t.true(names.length > 40);
});

test('every alert says how grave it is, what it saw and where to read on', t => {
  for (const { alert, labels = {}, annotations = {} } of ALERTS) {
    t.regex(labels.severity ?? '', /^(?:critical|warning)$/, alert);
    t.true((annotations.summary ?? '').length > 10, alert);
    const [file = '', heading = ''] = (annotations.runbook ?? '').split('#');
    const headings = [...read(file).matchAll(/^#+ (.+)$/gm)].map(([, text = '']) =>
      text
        .toLowerCase()
        .replaceAll(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    );
    t.true(headings.includes(heading), `${alert}: ${annotations.runbook}`);
  }
});

test('the runbook has a page an alert, and names lines of the log that there are', t => {
  const runbook = read('docs/runbook.md');
  const pages = [...runbook.matchAll(/^## (\w+)$/gm)].map(([, name]) => name);
  t.deepEqual(pages.toSorted(), ALERTS.map(({ alert }) => alert).toSorted());
  const folders = '{control-plane/src,inference-node/src,program/*}/**/*.ts';
  const files = globSync(folders, { cwd: ROOT }).filter(file => !file.includes('/test/'));
  const sources = files.map(read).join('\n');
  const lines = [...runbook.matchAll(/[Ll]ines? `([^`]+)`(?: (?:or|and) `([^`]+)`)?/g)];
  const named = lines.flatMap(([, first, second]) => [first, second]).filter(Boolean);
  t.deepEqual(
    named.filter(line => !sources.includes(`'${line}'`)),
    [],
  );
  t.true(named.length > 10);
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
  t => {
    assert.ok(PROMTOOL !== undefined, 'promtool is installed');
    execFileSync(PROMTOOL, ['check', 'config', 'prometheus.yaml'], { cwd: FOLDER });
    const files = globSync('*.test.yaml', { cwd: FOLDER });
    t.is(files.length, 2);
    execFileSync(PROMTOOL, ['test', 'rules', ...files], { cwd: FOLDER });
  },
);
