/**
 * `matting support-bundle`: what a maintainer would ask for, in one ZIP file. Everything in it comes
 * by a list of what may: variables, fields of log lines, counters, columns of jobs. Texts are
 * scrubbed besides, and at the end no secret of the environment is in any file (secrets-out.ts).
 * A part that cannot be had is a line that says why.
 */
import { open } from 'node:fs/promises';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import path from 'node:path';
import { zipSync } from 'fflate';
import { askHttp, baseOf } from '#program/doctor/ask-http.ts';
import { jsonOf, reasonOf } from '#program/doctor/findings.ts';
import type { SecretsOut } from '#program/doctor/secrets-out.ts';
import pkg from '../../../package.json' with { type: 'json' };
import { type Environment, loadConfig, loadDatabaseConfig } from '../config.ts';
import { examineControlPlane } from '../doctor/examine.ts';
import { type Database, openDatabase } from '../store/database/connect.ts';
import { schemaState } from '../store/database/migrate.ts';
import { readStatistics } from '../store/database/statistics.ts';
import { createStores, type Stores } from '../store/stores.ts';
import { readLog } from './log-lines.ts';
import { scrubbed } from './scrub.ts';
import { shownConfiguration } from './shown-configuration.ts';

/** Jobs that failed, and notifications that did; open jobs. */
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
  /** Files of log lines, LOGS_MAX at most. */
  readonly logs: readonly string[];
  readonly secretsOut: SecretsOut;
}

/** Names in the archive and texts. */
export type BundleFiles = Map<string, string>;

/** Never rejects because of what is broken: that is what it is for. */
export async function collectBundle({
  env,
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
  await add('doctor.json', async () => json(jsonOf(await examineControlPlane(env))));
  await add('metrics-control-plane.txt', () => controlPlaneMetrics(env));
  await addDatabase(files, add, env);
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
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.writeFile(archive);
  } finally {
    await handle.close();
  }
  return archive.length;
}

type Add = (name: string, make: () => Promise<string> | string) => Promise<void>;

async function addDatabase(files: BundleFiles, add: Add, env: Environment): Promise<void> {
  let database: Database | undefined;
  await add('database.json', async () => {
    const log = { info: () => undefined, warn: () => undefined };
    const { databaseUrl } = loadDatabaseConfig(env);
    // Without a doctor's care, which has just looked: a file that is not there is not made.
    if (/there is no file/.test(files.get('doctor.json') ?? ''))
      throw new Error('there is no file');
    database = await openDatabase(databaseUrl, { log });
    const { name } = database.engine;
    const state = await schemaState(database);
    return json({ engine: name, ...state, ...(await readStatistics(database)) });
  });
  if (database === undefined) return;
  try {
    const stores = createStores(database, {
      renderOutboxBody: () => {
        throw new Error('a bundle ends no job');
      },
    });
    await add('jobs-failed.json', async () => json(await jobsOf(stores, ['failed'])));
    await add('jobs-open.json', async () => json(await jobsOf(stores, OPEN)));
    await add('notifications-failed.json', async () => json(await notificationsOf(stores)));
    await add('work.json', async () => json(await workOf(stores)));
    await addNodes(add, stores);
  } finally {
    await database.close();
  }
}

const OPEN = ['accepted', 'fetching', 'ready', 'running'] as const;

async function jobsOf(stores: Stores, states: readonly ['failed'] | typeof OPEN) {
  const filter = { states, endedWithinMs: DAYS * DAY_MS, limit: LISTED_MAX };
  return (await stores.jobs.list(filter)).map(job => ({
    job_id: job.id,
    state: job.state,
    mode: job.mode,
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

async function notificationsOf({ webhookOutbox }: Stores) {
  const rows = await webhookOutbox.list({ jobId: undefined, status: 'failed', limit: LISTED_MAX });
  return rows.map(row => ({
    attempts: row.attempts,
    last_status_code: row.lastStatusCode,
    last_attempt_at: row.lastAttemptAtMs,
  }));
}

async function workOf(stores: Stores) {
  const { byAccount, ...queued } = await stores.jobs.queued();
  return {
    queued: { ...queued, accounts: byAccount.size },
    webhooks_due: await stores.webhookOutbox.due(),
    mails_waiting: await stores.mailOutbox.waiting(),
    ledger_audits: await stores.ledger.lastAudits(),
    sweep_backlog: await stores.sweeps.backlog(DAYS * DAY_MS),
  };
}

async function addNodes(add: Add, { nodes }: Stores): Promise<void> {
  const members = await nodes.listAll();
  await add('nodes.json', () =>
    json(
      members.map(({ nodeId, version, live, gone, draining, registeredAtMs, heartbeatAtMs }) => ({
        node_id: scrubbed(nodeId),
        ...{ version, live, gone, draining },
        registered_at: registeredAtMs,
        heartbeat_at: heartbeatAtMs,
      })),
    ),
  );
  const asked = members.filter(({ live, httpAddress }) => live && httpAddress !== '');
  for (const [index, { httpAddress }] of asked.slice(0, NODES_MAX).entries()) {
    await add(`metrics-node-${index + 1}.txt`, () => metricsOf(`http://${httpAddress}/metrics`));
  }
}

function controlPlaneMetrics(env: Environment): Promise<string> {
  const { metricsHost, metricsPort } = loadConfig(env);
  return metricsOf(`${baseOf(metricsHost, metricsPort)}/metrics`);
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
URLs, addresses, names of accounts and of people; pictures; every field of a log line that is no
number and not on the list. Look through it before you send it: it is text.
`;
