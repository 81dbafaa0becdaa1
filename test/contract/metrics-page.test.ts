/** docs/operations.md and what the programs measure: neither has a metric that the other lacks. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import timers from 'node:timers/promises';
import ava, { type ExecutionContext } from 'ava';
import { Registry } from 'prom-client';
import sinon from 'sinon';
import { ControlMetrics, registerGauges } from '../../control-plane/src/metrics.ts';
import { openTestNode } from '../../inference-node/test/grpc/test-node.ts';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');
const PAGE = readFileSync(path.join(ROOT, 'docs/operations.md'), 'utf8');
const LIST = PAGE.slice(PAGE.indexOf('### All of them'));
const NAME = /matting_(?:control|node)_[a-z_]+/g;

function namesIn(text: string): Set<string> {
  return new Set(text.match(NAME));
}

function sources(): string {
  const files = globSync('{control-plane,inference-node}/src/**/*.ts', { cwd: ROOT });
  const texts = files.map(file => readFileSync(path.join(ROOT, file), 'utf8'));
  // Quoted, as a metric's name is where it is made.
  return (
    texts
      .join('\n')
      .match(/'matting_(?:control|node)_[a-z_]+'/g)
      ?.join(' ') ?? ''
  );
}

test('every metric is in the list, and the list has no other', t => {
  t.deepEqual([...namesIn(LIST)].sort(), [...namesIn(sources())].sort());
});

test('the alerts name metrics that there are', t => {
  const made = namesIn(sources());
  const alerts = PAGE.slice(PAGE.indexOf('### Alerts'), PAGE.indexOf('### All of them'));
  const missing = [...namesIn(alerts)].filter(name => !made.has(name));
  t.deepEqual(missing, []);
  t.true(namesIn(alerts).size > 15);
});

const READABLE = {
  version: '1.2.3',
  readiness: async () => ({ ready: true }) as const,
  fleet: () => ({ members: 3, routable: 2, imagesFree: 4, attemptsInFlight: 5 }),
  running: () => 6,
  downloading: () => 17,
  uploads: () => ({ open: 7, waiting: 8 }),
  databaseWaiting: () => 11,
  connections: () => 9,
  resultReaders: () => 19,
  registryConnections: () => ({ known: 17, strangers: 18 }),
  storageFreeBytes: async () => 10,
  queueMegapixelsMax: 11,
  queued: async () => ({ jobs: 12, megapixels: 13, oldestAgeMs: 0 }),
  nodesWanted: async () => 21,
  playgroundJobs: async () => 20,
  webhooksInFlight: () => 14,
  webhooksDue: async () => ({ count: 15, oldestMs: 16_000 }),
  mailsWaiting: async () => ({ count: 23, oldestMs: 24_000 }),
  ledgerAudits: async () => [{ kind: 'full', ageMs: 17_000, problems: 18 }],
  clockDifferenceMs: () => 25_000,
  sweepBacklog: async () => ({ resultsMs: 20, secretsMs: 21, rowsMs: 22, walkMs: null }),
};

async function requireListed(t: ExecutionContext, registry: Registry): Promise<void> {
  const metrics = await registry.getMetricsAsArray();
  for (const metric of metrics.filter(({ name }) => name.startsWith('matting_'))) {
    const { labelNames = [] } = metric as { labelNames?: string[] };
    const labels = labelNames.length === 0 ? '' : `{${labelNames.join(',')}}`;
    t.true(LIST.includes(`\`${metric.name}${labels}\``), `${metric.name}${labels}`);
    t.true(metric.help.length > 10, metric.name);
  }
}

test('the labels of a control plane are those that the list says', async t => {
  const { registry } = new ControlMetrics();
  registerGauges(registry, READABLE, () => assert.fail());
  await requireListed(t, registry);
});

test('the labels of a node are those that the list says', async t => {
  const node = await openTestNode();
  t.teardown(() => node.close());
  await requireListed(t, node.metrics.registry);
});

async function page(changes: Partial<Parameters<typeof registerGauges>[1]>) {
  const registry = new Registry();
  const failures: string[] = [];
  registerGauges(registry, { ...READABLE, ...changes }, what => failures.push(what));
  return { text: () => registry.metrics(), failures };
}

test('what cannot be read is missing, not as it was, and the rest is shown', async t => {
  const away = () => Promise.reject(new Error('away'));
  let storageFreeBytes = READABLE.storageFreeBytes;
  const shown = await page({ queued: away, storageFreeBytes: () => storageFreeBytes() });
  const text = await shown.text();
  t.regex(text, /^matting_control_storage_free_bytes 10$/m);
  t.regex(text, /^matting_control_uploads_waiting 8$/m);
  t.regex(text, /^matting_control_database_waiting 11$/m);
  t.regex(text, /^matting_control_database_clock_difference_seconds 25$/m);
  t.regex(text, /^matting_control_nodes\{state="unroutable"\} 1$/m);
  t.regex(text, /^matting_control_webhooks_oldest_due_seconds 16$/m);
  t.regex(text, /^matting_control_mails_waiting 23$/m);
  t.regex(text, /^matting_control_mails_oldest_due_seconds 24$/m);
  t.regex(text, /^matting_control_ledger_audit_age_seconds\{kind="full"\} 17$/m);
  t.regex(text, /^matting_control_ledger_audit_problems\{kind="full"\} 18$/m);
  t.notRegex(text, /^matting_control_queue_(jobs|megapixels|oldest_age_seconds) /m);
  // One read of the database for all of them.
  t.deepEqual(shown.failures, ['the database']);
  storageFreeBytes = away;
  const later = performance.now() + 1001;
  const clock = sinon.stub(performance, 'now').returns(later);
  t.teardown(() => clock.restore());
  t.notRegex(await shown.text(), /^matting_control_storage_free_bytes /m);
});

test('a database that hangs holds no scrape up, and is asked once', async t => {
  // Waits that are over when the test says so.
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

test('the wanted number of nodes is shown where nodes come on demand, once somebody said it', async t => {
  t.regex(await (await page({})).text(), /^matting_control_nodes_wanted 21$/m);
  const unsaid = await page({ nodesWanted: async () => undefined });
  t.notRegex(await unsaid.text(), /^matting_control_nodes_wanted /m);
  t.regex(await unsaid.text(), /^matting_control_queue_jobs 12$/m);
  const off = await page({ nodesWanted: undefined });
  t.notRegex(await off.text(), /nodes_wanted/);
});

test('each cause of not being ready is told apart', async t => {
  const readiness = async () => ({ ready: false, causes: ['storage'] }) as const;
  const text = await (await page({ readiness })).text();
  t.regex(text, /^matting_control_unready\{cause="storage"\} 1$/m);
  for (const cause of ['draining', 'database', 'no-node-yet']) {
    t.regex(text, new RegExp(`^matting_control_unready\\{cause="${cause}"\\} 0$`, 'm'));
  }
});
