/**
 * Statements that a job costs the database, counted on a private MariaDB by the statement meter,
 * under one control plane with a scripted node: one job after the other, then all at once. Those of
 * a replica that rests are counted apart, by the second. BEGIN and COMMIT are not statements of the
 * meter: a transaction that writes has both.
 * Needs: portal.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ChannelCredentials } from '@grpc/grpc-js';
import { pino } from 'pino';
import { loadConfig } from '../control-plane/core/config.ts';
import { buildApp } from '../control-plane/core/http/public-app.ts';
import { LEASE_TIMING } from '../control-plane/core/jobs/job.ts';
import { ControlMetrics } from '../control-plane/core/metrics/control-metrics.ts';
import {
  composeConditions,
  composeDispatch,
  composeServices,
  openResources,
} from '../control-plane/core/open-core.ts';
import { JobEvents } from '../control-plane/core/results/job-view.ts';
import { createStores } from '../control-plane/core/stores.ts';
import { until } from '../control-plane/core/test/harness.ts';
import { ScriptedNode, TEST_TOKEN } from '../control-plane/core/test/scripted-node.ts';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { OutgoingGuard } from '../control-plane/http/outgoing/outgoing-guard.ts';
import { PACKAGES } from '../control-plane/packages.ts';
import { SETTLED_STEPS } from '../control-plane/portal/settled-steps.ts';
import { series } from '../control-plane/test/fixtures.ts';
import { NodeTokens } from '../program/tokens.ts';
import { createTestDatabase } from '../test/support/database.ts';
import { openMeteredDatabase } from '../test/support/statement-meter.ts';
import { writeResults } from './results.ts';

const JOBS = 96;
/** Together, but below what one account may have at the database at once. */
const CALLERS = 6;
const REST_MS = 10_000;

const directory = await mkdtemp(path.join(tmpdir(), 'matting-statements-'));
const test = await createTestDatabase('mysql', { series });
const { database, statements } = openMeteredDatabase('mysql', test.url);
const stores = createStores(database, { renderOutboxBody: () => '{}', settled: SETTLED_STEPS });
const log = pino({ level: 'silent' });
const config = loadConfig(
  {
    MATTING_DATA_DIR: directory,
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_NODE_TOKEN: TEST_TOKEN,
    MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
    MATTING_READS_PER_MINUTE: '1000000',
  },
  PACKAGES,
);
const resources = await openResources(config, log);
const events = new JobEvents();
const guard = new OutgoingGuard({ policy: config, systemLookupsMax: 1 });
const dispatch = composeDispatch({
  ...resources,
  config,
  log,
  nodeTokens: new NodeTokens(config.nodeTokens, log),
  replicaId: 'replica',
  stores,
  fetcher: { fetchImage: () => Promise.reject(new Error('nothing is fetched')) },
  events,
  observer: new ControlMetrics([]),
  leaseTiming: LEASE_TIMING,
  security: { credentials: ChannelCredentials.createInsecure(), options: {} },
});
const { fleet, dispatcher } = dispatch;
const conditions = composeConditions({ ...resources, config, log, stores }, dispatch);
const services = composeServices({
  ...resources,
  ...conditions,
  models: dispatch.models,
  ...{ config, log, stores, events, guard },
  observer: new ControlMetrics([]),
});
const { app } = buildApp(services, {
  ...{ ...config, version: '0.0.0', errorsPage: '', interfaces: [] },
});
const account = await stores.accounts.create('bench');
assert.ok(account);
await stores.ledger.grant(account.id, 10 * JOBS, 'bench');
const { token } = await stores.apiKeys.create(account.id, 'bench');
const node = await ScriptedNode.start({ imagesMax: 4 });
await stores.nodes.register(node.registration, 3_600_000);
await fleet.start();
dispatcher.start();
await until(() => fleet.snapshots().length === 1, 'a node');

async function submit(url: string): Promise<string> {
  const image = Buffer.concat([pngHeader(2000, 1000), Buffer.from(randomUUID())]);
  const answer = await app.inject({
    method: 'POST',
    url,
    headers: { authorization: `Bearer ${token}`, 'idempotency-key': randomUUID() },
    payload: { image_base64: image.toString('base64') },
  });
  assert.ok(answer.statusCode < 300, answer.body);
  return answer.json().job_id;
}

async function submitSome(): Promise<void> {
  for (let job = 0; job < JOBS / CALLERS; job += 1) await submit('/v1/matting/jobs');
}

/** `select jobs`, `insert ledger_entries`: what a statement does and to which table. */
function kindOf(sql: string): string {
  const verb = /^\s*\(?\s*(\w+)/.exec(sql)?.[1] ?? '';
  // Through a subquery to its table; without any it is the clock that is read.
  const table = /(?:from|into|update)\s+`?([a-z_]\w*)/i.exec(sql)?.[1] ?? 'the clock';
  return `${verb} ${table}`.toLowerCase().trim();
}

/** What was issued since, by kind. */
function countedSince(place: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { sql } of statements.slice(place)) {
    const kind = kindOf(sql);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return counts;
}

function shown(counts: ReadonlyMap<string, number>, over: number): Record<string, number> {
  const entries = [...counts].map(([kind, count]) => [
    kind,
    Math.round((count / over) * 100) / 100,
  ]);
  return Object.fromEntries(entries);
}

function sum(counts: Readonly<Record<string, number>>): number {
  return Math.round(Object.values(counts).reduce((total, count) => total + count, 0) * 100) / 100;
}

await submit('/v1/matting');
let place = statements.length;
await delay(REST_MS);
const resting = shown(countedSince(place), REST_MS / 1000);

place = statements.length;
const startedMs = performance.now();
for (let job = 0; job < JOBS; job += 1) await submit('/v1/matting');
const seconds = (performance.now() - startedMs) / 1000;
const single = shown(countedSince(place), JOBS);

place = statements.length;
let done = 0;
events.onImageDone(() => {
  done += 1;
});
await Promise.all(Array.from({ length: CALLERS }, submitSome));
const submitted = shown(countedSince(place), JOBS);
// Asks the database nothing.
await until(() => done === JOBS && dispatcher.running === 0, 'all jobs');
const together = shown(countedSince(place), JOBS);

await app.close();
await dispatcher.stop(1000);
await fleet.close();
await node.down();
resources.tls.close();
await resources.stores.close();
await database.close();
await test.close();
await rm(directory, { recursive: true });
writeResults('job-statements', {
  restingPerS: sum(resting),
  resting,
  oneAfterTheOther: sum(single),
  single,
  seconds,
  allAtOnce: sum(together),
  submitted,
  together,
});
