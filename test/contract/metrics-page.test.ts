/** docs/operations.md and what the programs measure: neither has a metric that the other lacks. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import { ControlMetrics, registerGauges } from '../../control-plane/src/metrics.ts';
import { openTestNode } from '../../inference-node/test/grpc/test-node.ts';

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

test('every metric is in the list, and the list has no other', () => {
  assert.deepEqual([...namesIn(LIST)].sort(), [...namesIn(sources())].sort());
});

test('the alerts name metrics that there are', () => {
  const made = namesIn(sources());
  const alerts = PAGE.slice(PAGE.indexOf('### Alerts'), PAGE.indexOf('### All of them'));
  const missing = [...namesIn(alerts)].filter(name => !made.has(name));
  assert.deepEqual(missing, []);
  assert.ok(namesIn(alerts).size > 15);
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

async function requireListed(registry: Registry): Promise<void> {
  const metrics = await registry.getMetricsAsArray();
  for (const metric of metrics.filter(({ name }) => name.startsWith('matting_'))) {
    const { labelNames = [] } = metric as { labelNames?: string[] };
    const labels = labelNames.length === 0 ? '' : `{${labelNames.join(',')}}`;
    assert.ok(LIST.includes(`\`${metric.name}${labels}\``), `${metric.name}${labels}`);
    assert.ok(metric.help.length > 10, metric.name);
  }
}

test('the labels of a control plane are those that the list says', async () => {
  const { registry } = new ControlMetrics();
  registerGauges(registry, READABLE, () => assert.fail());
  await requireListed(registry);
});

test('the labels of a node are those that the list says', async t => {
  const node = await openTestNode();
  t.after(() => node.close());
  await requireListed(node.metrics.registry);
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
  assert.match(text, /^matting_control_storage_free_bytes 10$/m);
  assert.match(text, /^matting_control_uploads_waiting 8$/m);
  assert.match(text, /^matting_control_database_waiting 11$/m);
  assert.match(text, /^matting_control_database_clock_difference_seconds 25$/m);
  assert.match(text, /^matting_control_nodes\{state="unroutable"\} 1$/m);
  assert.match(text, /^matting_control_webhooks_oldest_due_seconds 16$/m);
  assert.match(text, /^matting_control_mails_waiting 23$/m);
  assert.match(text, /^matting_control_mails_oldest_due_seconds 24$/m);
  assert.match(text, /^matting_control_ledger_audit_age_seconds\{kind="full"\} 17$/m);
  assert.match(text, /^matting_control_ledger_audit_problems\{kind="full"\} 18$/m);
  assert.doesNotMatch(text, /^matting_control_queue_(jobs|megapixels|oldest_age_seconds) /m);
  // One read of the database for all of them.
  assert.deepEqual(shown.failures, ['the database']);
  storageFreeBytes = away;
  const later = performance.now() + 1001;
  t.mock.method(performance, 'now', () => later);
  assert.doesNotMatch(await shown.text(), /^matting_control_storage_free_bytes /m);
});

test('a database that hangs holds no scrape up, and is asked once', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let asked = 0;
  const queued = () => {
    asked += 1;
    return new Promise<never>(() => undefined);
  };
  const { text } = await page({ queued });
  for (let scrapes = 0; scrapes < 2; scrapes += 1) {
    const scraped = text();
    await new Promise(setImmediate);
    t.mock.timers.tick(2000);
    assert.doesNotMatch(await scraped, /^matting_control_queue_jobs /m);
    assert.match(await scraped, /^matting_control_webhooks_due 15$/m);
  }
  assert.equal(asked, 1);
});

test('the wanted number of nodes is shown where nodes come on demand, once somebody said it', async () => {
  assert.match(await (await page({})).text(), /^matting_control_nodes_wanted 21$/m);
  const unsaid = await page({ nodesWanted: async () => undefined });
  assert.doesNotMatch(await unsaid.text(), /^matting_control_nodes_wanted /m);
  assert.match(await unsaid.text(), /^matting_control_queue_jobs 12$/m);
  const off = await page({ nodesWanted: undefined });
  assert.doesNotMatch(await off.text(), /nodes_wanted/);
});

test('each cause of not being ready is told apart', async () => {
  const readiness = async () => ({ ready: false, causes: ['storage'] }) as const;
  const text = await (await page({ readiness })).text();
  assert.match(text, /^matting_control_unready\{cause="storage"\} 1$/m);
  for (const cause of ['draining', 'database', 'no-node-yet']) {
    assert.match(text, new RegExp(`^matting_control_unready\\{cause="${cause}"\\} 0$`, 'm'));
  }
});
