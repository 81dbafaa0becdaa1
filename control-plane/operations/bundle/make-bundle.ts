/**
 * `matting support-bundle`: what a maintainer would ask for, in one ZIP file. Everything in it comes
 * by a list of what may: variables, fields of log lines, counters, columns of jobs. Texts are
 * scrubbed besides, and at the end no secret of the environment is in any file (secrets-out.ts).
 * A part that cannot be had is a line that says why.
 */

import { writeFile } from 'node:fs/promises';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import path from 'node:path';
import { zipSync } from 'fflate';
import { askHttp, baseOf } from '#program/doctor/ask-http.ts';
import { type Finding, jsonOf, reasonOf } from '#program/doctor/findings.ts';
import type { SecretsOut } from '#program/doctor/secrets-out.ts';
import type { Environment } from '#program/env.ts';
import pkg from '../../../package.json' with { type: 'json' };
import { type Database, openDatabase } from '../../core/database/connect.ts';
import { schemaState } from '../../core/database/migrate.ts';
import { readStatistics } from '../../core/database/probe.ts';
import { modeOf } from '../../core/jobs/job.ts';
import type { NodeMember } from '../../core/nodes/node-store.ts';
import { JOB_RETENTION_DAYS_DEFAULT } from '../../core/retention/retention.ts';
import { loadDatabaseConfig } from '../../core/settings.ts';
import { createStores, type StoresWithoutEnds } from '../../core/stores.ts';
import type { ComposedProgram, LookedAtConfig } from '../composed-program.ts';
import { withSupervisorsToken } from '../doctor/configuration-findings.ts';
import { missingFile } from '../doctor/database-findings.ts';
import { examineControlPlane } from '../doctor/examine.ts';
import { readLog } from './log-lines.ts';
import { scrubbed, scrubbedOfPlaces } from './scrub.ts';
import { shownConfiguration } from './shown-configuration.ts';

/** Jobs that failed in DAYS; open jobs and failed notifications of any age. */
const LISTED_MAX = 200;
const DAYS = 7;
const DAY_MS = 86_400_000;
/** Nodes whose metrics are asked for. */
const NODES_MAX = 16;
/** Logs that are read. */
export const LOGS_MAX = 10;
/** Names as the programs give them. */
const METRIC = /^(?:# (?:HELP|TYPE) )?(?:matting|nodejs|process)_/;

export interface BundleOptions {
  readonly env: Environment;
  readonly composed: ComposedProgram;
  /** Files of log lines, LOGS_MAX at most. */
  readonly logs: readonly string[];
  readonly secretsOut: SecretsOut;
}

/** Names in the archive and texts. */
export type BundleFiles = Map<string, string>;

/** Never rejects because of what is broken: that is what it is for. */
export async function collectBundle({
  env,
  composed,
  logs,
  secretsOut,
}: BundleOptions): Promise<BundleFiles> {
  const files: BundleFiles = new Map();
  const add = async (name: string, make: () => Promise<string> | string) => {
    try {
      files.set(name, await make());
    } catch (error) {
      files.set(name, `not to be had: ${scrubbed(reasonOf(error))}\n`);
    }
  };
  await add('README.txt', () => README);
  await add('versions.json', () => json(versions()));
  await add('configuration.json', () => json(shownConfiguration(env)));
  await add('doctor.json', async () =>
    json(jsonOf(shown(await examineControlPlane(env, composed)))),
  );
  await add('metrics-control-plane.txt', () => controlPlaneMetrics(env, composed));
  await addDatabase(add, env, composed);
  for (const [index, file] of logs.slice(0, LOGS_MAX).entries()) {
    const name = `log-${index + 1}.jsonl`;
    await add(name, async () => {
      const { lines, leftOut } = await readLog(file);
      return [json({ file: path.basename(file), lines: lines.length, leftOut }), ...lines].join(
        '\n',
      );
    });
  }
  for (const [name, text] of files) files.set(name, secretsOut.of(text));
  return files;
}

/** Rejects where there is a file of that name already. Readable by its owner alone. */
export async function writeBundle(file: string, files: BundleFiles): Promise<number> {
  const folder = `matting-support-${new Date().toISOString().slice(0, 10)}`;
  const entries = [...files].map(
    ([name, text]) => [`${folder}/${name}`, Buffer.from(text)] as const,
  );
  const archive = zipSync(Object.fromEntries(entries), { level: 9 });
  await writeFile(file, archive, { flag: 'wx', mode: 0o600 });
  return archive.length;
}

/** What the doctor tells its operator, without the addresses of machines. */
function shown(findings: readonly Finding[]): Finding[] {
  return findings.map(({ subject, status, found, advice }) => ({
    subject: scrubbed(subject),
    status,
    found: scrubbedOfPlaces(found),
    ...(advice === undefined ? {} : { advice: scrubbedOfPlaces(advice) }),
  }));
}

type Add = (name: string, make: () => Promise<string> | string) => Promise<void>;

async function addDatabase(add: Add, env: Environment, composed: ComposedProgram): Promise<void> {
  let database: Database | undefined;
  await add('database.json', async () => {
    const log = { info: () => undefined, warn: () => undefined };
    const { databaseUrl } = loadDatabaseConfig(env);
    // Opening it would make it.
    if ((await missingFile(databaseUrl)) !== undefined) throw new Error('there is no file');
    database = await openDatabase(databaseUrl, { log });
    const { name } = database.engine;
    const state = await schemaState(database, composed.migrations);
    return json({ engine: name, ...state, ...(await readStatistics(database)) });
  });
  if (database === undefined) return;
  try {
    const stores = createStores(database);
    await add('jobs-failed.json', async () => json(await jobsOf(stores, ['failed'])));
    await add('jobs-open.json', async () => json(await jobsOf(stores, OPEN)));
    await add('notifications-failed.json', async () => json(await notificationsOf(stores)));
    await add('work.json', async () =>
      json(await workOf(stores, await retentionMsOf(env, composed))),
    );
    await addNodes(add, stores);
  } finally {
    // It may be away by now, as the lines above say.
    await database.close().catch(() => undefined);
  }
}

const OPEN = ['accepted', 'fetching', 'ready', 'running'] as const;

async function jobsOf(stores: StoresWithoutEnds, states: readonly ['failed'] | typeof OPEN) {
  const filter = { states, endedWithinMs: DAYS * DAY_MS, limit: LISTED_MAX };
  return (await stores.jobs.list(filter)).map(job => ({
    job_id: job.id,
    state: job.state,
    mode: modeOf(job),
    created_at: job.createdAtMs,
    started_at: job.startedAtMs,
    finished_at: job.finishedAtMs,
    input: job.input && { format: job.input.format, bytes: job.input.bytes },
    output_format: job.outputFormat,
    finishing: job.finishing !== null,
    error: job.failure && {
      code: job.failure.code,
      detail: scrubbed(job.failure.detail),
      retryable: job.failure.retryable,
    },
    fence: job.fence,
    leased: job.lease !== null,
    lost_attempts: job.lostAttempts,
    takeovers: job.takeovers,
    timings: job.timings,
  }));
}

async function notificationsOf({ outbox }: StoresWithoutEnds) {
  const rows = await outbox.list({ jobId: undefined, status: 'failed', limit: LISTED_MAX });
  return rows.map(row => ({
    attempts: row.attempts,
    last_status_code: row.lastStatusCode,
    last_attempt_at: row.lastAttemptAtMs,
  }));
}

async function workOf(stores: StoresWithoutEnds, jobRetentionMs: number) {
  const { byAccount, ...queued } = await stores.jobs.queued();
  return {
    queued: { ...queued, accounts: byAccount.size },
    webhooks_due: await stores.outbox.due(),
    mails_waiting: await stores.outbox.mailsWaiting(),
    ledger_audits: await stores.ledger.lastAudits(),
    sweep_backlog: await stores.sweeps.backlog(jobRetentionMs),
  };
}

async function addNodes(add: Add, { nodes }: StoresWithoutEnds): Promise<void> {
  let members: readonly NodeMember[] = [];
  await add('nodes.json', async () => {
    members = await nodes.listAll();
    return json(
      members.map(({ nodeId, version, live, gone, draining, registeredAtMs, heartbeatAtMs }) => ({
        node_id: scrubbed(nodeId),
        ...{ version, live, gone, draining },
        registered_at: registeredAtMs,
        heartbeat_at: heartbeatAtMs,
      })),
    );
  });
  const asked = members.filter(({ live, httpAddress }) => live && httpAddress !== '');
  for (const [index, { httpAddress }] of asked.slice(0, NODES_MAX).entries()) {
    await add(`metrics-node-${index + 1}.txt`, () => metricsOf(`http://${httpAddress}/metrics`));
  }
}

/** As the doctor reads it. @throws ConfigError */
async function configOf(
  env: Environment,
  { loadConfig, storageKinds }: ComposedProgram,
): Promise<LookedAtConfig> {
  const { dataDir } = loadDatabaseConfig(env);
  return loadConfig(await withSupervisorsToken(env, dataDir), storageKinds);
}

async function retentionMsOf(env: Environment, composed: ComposedProgram): Promise<number> {
  const config = await configOf(env, composed).catch(() => undefined);
  return config?.jobRetentionMs ?? JOB_RETENTION_DAYS_DEFAULT * DAY_MS;
}

async function controlPlaneMetrics(env: Environment, composed: ComposedProgram): Promise<string> {
  const { metricsHost, metricsPort } = await configOf(env, composed);
  return await metricsOf(`${baseOf(metricsHost, metricsPort)}/metrics`);
}

async function metricsOf(url: string): Promise<string> {
  const answer = await askHttp(url);
  if (answer?.status !== 200) throw new Error('nobody answered');
  const lines = answer.text.split('\n').filter(line => METRIC.test(line));
  return `${lines.join('\n')}\n`;
}

function versions() {
  const { node, v8, openssl, uv, sqlite } = process.versions;
  return {
    matting: pkg.version,
    runtime: { node, v8, openssl, uv, sqlite },
    dependencies: pkg.dependencies,
    machine: {
      system: `${platform()} ${release()} ${arch()}`,
      cores: cpus().length,
      cpu: cpus()[0]?.model ?? 'unknown',
      memory_bytes: totalmem(),
      memory_limit_bytes: process.constrainedMemory(),
    },
    made_at: new Date().toISOString(),
  };
}

function json(value: unknown): string {
  return `${JSON.stringify(value, undefined, 1)}\n`;
}

const README = `What matting support-bundle gathered; docs/operations.md says what is in each file.

Left out by lists of what may be in: values of variables but numbers, truth values and fixed words;
URLs, mail and IP addresses, names of accounts and of people; pictures; every field of a log line
that is no number and not on the list. What may be left of yours: names of nodes, paths of files,
and names of machines where an error has them in its words.
Look through it before you send it: it is text.
`;
