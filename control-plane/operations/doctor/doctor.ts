/**
 * `matting doctor`: looks at everything a control plane needs, one thing after the other, each with
 * a bound of its own. What one thing lacks keeps no other from being looked at. It changes nothing
 * but what the check of the storage writes and removes again.
 */

import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import { arch, platform, release } from 'node:os';
import path from 'node:path';
import {
  type CliContext,
  type CliPackages,
  CommandError,
  type LookedAtConfig,
} from '@matting/core/cli/context.ts';
import { JOB_RETENTION_DAYS_DEFAULT } from '@matting/core/retention/retention.ts';
import {
  type CoreSettings,
  loadDatabaseConfig,
  loadStorageConfig,
  type StorageSettings,
} from '@matting/core/settings.ts';
import {
  checkStorage,
  missingOfStorage,
  storageDirectory,
  storageKindOf,
} from '@matting/core/storage/open-storage.ts';
import type { StorageKind } from '@matting/core/storage/storage-kind.ts';
import { createStores } from '@matting/core/stores.ts';
import { DatabaseOpenError, databaseCertificates } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { ConfigError } from '@matting/program/config-error.ts';
import { askHttp, baseOf } from '@matting/program/doctor/ask.ts';
import {
  counted,
  type Finding,
  failure,
  jsonOf,
  look,
  ok,
  pageOf,
  reasonOf,
  summaryOf,
  warning,
} from '@matting/program/doctor/findings.ts';
import {
  expiryFindings,
  openFilesFinding,
  tlsFindings,
} from '@matting/program/doctor/program-findings.ts';
import { SecretsOut } from '@matting/program/doctor/secrets.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { Environment } from '@matting/program/env.ts';
import { VERSION } from '@matting/program/version.ts';
import type { Command } from 'commander';
import {
  examineConfiguration,
  secretsFindings,
  secretsInFiles,
  withSupervisorsToken,
} from './configuration-findings.ts';
import {
  deliveryFindings,
  type ExaminedDatabase,
  examineDatabase,
  ledgerFindings,
  queueFindings,
  secretsKeyFindings,
  sweepFindings,
} from './database-findings.ts';
import { nodeFindings } from './node-findings.ts';

/** The project brings this major version of Node and is tested with it. */
const NODE_MAJOR = 24;
/** With fewer open files the public port takes less than 4096 connections. */
const OPEN_FILES_MIN = 8192;
const BUG = 'this is a bug in the doctor; report it with this line';

export async function examineControlPlane(
  given: Environment,
  packages: CliPackages,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [...versionFindings(given), openFilesFinding(OPEN_FILES_MIN)];
  const database = orUndefined(() => loadDatabaseConfig(given));
  const env = database === undefined ? given : await withSupervisorsToken(given, database.dataDir);
  const { config, findings: ofConfiguration } = examineConfiguration(env, packages);
  findings.push(...ofConfiguration);
  if (config !== undefined) {
    findings.push(...(await look('secrets', BUG, () => secretsFindings(config))));
    findings.push(...(await look('TLS', BUG, () => tlsFindings(config.tls))));
  }
  if (database !== undefined) {
    const ends = orUndefined(() => databaseCertificates(database.databaseUrl)) ?? [];
    findings.push(...expiryFindings(ends));
    const open = () => examineDatabase(database.databaseUrl, packages.migrations);
    findings.push(...(await databaseFindings(open, config, env)));
  }
  const storage = orUndefined(() => loadStorageConfig(env, packages.storageKinds));
  if (storage !== undefined) {
    const advice = 'run matting storage check; see docs/storage.md';
    findings.push(...(await look('storage', advice, () => storageFindings(storage))));
    if (database !== undefined) {
      const room = () => diskFindings(storage, database);
      findings.push(...(await look('disk', 'check the file system', room)));
    }
  }
  if (config !== undefined) {
    findings.push(...(await look('control plane', BUG, () => controlPlaneFindings(config))));
  }
  return findings;
}

function versionFindings(env: Environment): Finding[] {
  const { node } = process.versions;
  const system = `${platform()} ${release()} ${arch()}`;
  const found = `matting ${VERSION} on Node ${node}, ${system}`;
  const findings = [
    Number.parseInt(node, 10) === NODE_MAJOR
      ? ok('version', found)
      : warning('version', found, `use Node ${NODE_MAJOR}: sh bin/node24`),
  ];
  if (env.NODE_TLS_REJECT_UNAUTHORIZED === '0') {
    const off = 'NODE_TLS_REJECT_UNAUTHORIZED=0 turns off certificate checks';
    findings.push(
      warning('version', off, 'remove it; to trust an authority, set NODE_EXTRA_CA_CERTS'),
    );
  }
  return findings;
}

/** Another finding has already said what is wrong with the variables. */
function orUndefined<T>(load: () => T): T | undefined {
  try {
    return load();
  } catch (error) {
    if (error instanceof ConfigError || error instanceof DatabaseOpenError) return undefined;
    throw error;
  }
}

async function databaseFindings(
  open: () => Promise<ExaminedDatabase>,
  config: LookedAtConfig | undefined,
  env: Environment,
): Promise<readonly Finding[]> {
  let examined: ExaminedDatabase | undefined;
  const examine = async () => {
    examined = await open();
    return examined.findings;
  };
  const advice = 'see the database log; requests get 503 meanwhile';
  const findings = [...(await look('database', advice, examine))];
  if (examined?.database === undefined) return findings;
  const { database, current } = examined;
  try {
    if (current) findings.push(...(await contentFindings(database, config, env)));
  } finally {
    await database.close().catch(() => undefined);
  }
  return findings;
}

async function contentFindings(
  database: Database,
  config: LookedAtConfig | undefined,
  env: Environment,
): Promise<Finding[]> {
  const stores = createStores(database);
  const retentionMs = config?.jobRetentionMs ?? JOB_RETENTION_DAYS_DEFAULT * DAY_MS;
  const looks: readonly (readonly [string, () => Promise<readonly Finding[]>])[] = [
    ['secrets', async () => (config === undefined ? [] : secretsKeyFindings(stores, config))],
    [
      'nodes',
      async () =>
        nodeFindings({
          members: await stores.nodes.listAll(),
          sightings: await stores.sightings.list(),
          queued: await stores.jobs.queued(),
          onDemand: env.MATTING_NODES_ON_DEMAND?.toLowerCase() === 'true',
          offered: config?.modelsOffered,
        }),
    ],
    ['queue', () => queueFindings(stores, config?.queueMegapixelsMax)],
    ['webhooks', () => deliveryFindings(stores)],
    ['sweeper', () => sweepFindings(stores, retentionMs)],
    ['ledger', () => ledgerFindings(stores)],
  ];
  const findings: Finding[] = [];
  for (const [subject, examine] of looks) {
    findings.push(...(await look(subject, 'see the database log', examine)));
  }
  return findings;
}

/* `doctor`: one page about what a control plane needs, and whether it has it. */

type DoctorOptions = { readonly strict?: boolean };

export function addDoctorCommand(program: Command, context: CliContext): void {
  program
    .command('doctor')
    .description(
      'check everything this control plane needs; exit 1 on a failure (--node: check a node)',
    )
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 on warnings too')
    .action((options: DoctorOptions) => examine(context, options));
}

async function examine(context: CliContext, options: DoctorOptions): Promise<void> {
  const { environment } = context;
  const findings = await examineControlPlane(environment, context.packages);
  const secretsOut = new SecretsOut(environment, await secretsInFiles(environment));
  const { failures, warnings } = summaryOf(findings);
  const text = context.json ? JSON.stringify(jsonOf(findings)) : pageOf(findings).join('\n');
  context.print(secretsOut.of(text));
  if (failures > 0) throw new CommandError(counted(failures, 'failure'));
  if (options.strict && warnings > 0) throw new CommandError(counted(warnings, 'warning'));
}

/* The program that runs: this machine's control plane. */

const CONTROL_PLANE = 'control plane';

/** Looks at what listens at the addresses of this configuration, and at no other machine. */
async function controlPlaneFindings(config: CoreSettings): Promise<readonly Finding[]> {
  const { host, port, metricsHost, metricsPort } = config;
  if (port === 0 || metricsPort === 0) return [];
  const ready = await askHttp(`${baseOf(host, port)}/readyz`);
  if (ready === undefined) {
    const found = `no answer at ${host}:${port} of this machine`;
    const advice = 'start it, read its last line on standard error, or run doctor on its machine';
    return [warning(CONTROL_PLANE, found, advice)];
  }
  const metrics = (await askHttp(`${baseOf(metricsHost, metricsPort)}/metrics`))?.text ?? '';
  const version = /^matting_control_info\{version="([^"]+)"\}/m.exec(metrics)?.[1];
  const findings: Finding[] = [];
  if (version === undefined) {
    const found = `no metrics of a control plane at ${metricsHost}:${metricsPort}`;
    const advice = `check that a control plane with these variables listens at ${host}:${port}`;
    findings.push(warning(CONTROL_PLANE, found, advice));
  } else if (version !== VERSION) {
    const found = `it runs ${version}, and this is ${VERSION}`;
    findings.push(warning(CONTROL_PLANE, found, 'restart it to finish the upgrade'));
  }
  if (ready.status === 200) return [...findings, ok(CONTROL_PLANE, `ready at ${host}:${port}`)];
  const causes = [...metrics.matchAll(/^matting_control_unready\{cause="([^"]+)"\} 1$/gm)];
  const why = causes.map(([, cause]) => cause).join(', ') || `/readyz is ${ready.status}`;
  const advice = 'see the line "not ready" in its log';
  return [...findings, failure(CONTROL_PLANE, `not ready: ${why}`, advice)];
}

/* The storage, and the disks that fill up. */

const SUBJECT = 'storage';
const DISK = 'disk';
/** The first is MattingStorageNearlyFull's bound; a busy hour fills a disk below the second. */
const FREE_BYTES_WARN = 10e9;
const FREE_BYTES_MIN = 1e9;

/** Tries the storages, the fallback too, as `matting storage check` does. */
async function storageFindings({
  storageUrl,
  fallbackUrl,
  storageKinds,
}: StorageSettings): Promise<readonly Finding[]> {
  const findings = await triedFindings(storageUrl, 'MATTING_STORAGE_URL', storageKinds);
  if (fallbackUrl === undefined) return findings;
  const found = 'MATTING_STORAGE_FALLBACK_URL is set, so a move is in progress';
  const moving = warning(SUBJECT, found, 'see docs/storage.md, "Move to a bucket"');
  const variable = 'MATTING_STORAGE_FALLBACK_URL';
  const ofFallback = await triedFindings(fallbackUrl, variable, storageKinds);
  return [...findings, moving, ...ofFallback];
}

async function triedFindings(
  storageUrl: string,
  variable: string,
  storageKinds: readonly StorageKind[],
): Promise<Finding[]> {
  const kind = `the ${storageKindOf(storageUrl, storageKinds)?.noun ?? 'directory'}`;
  // A try would create it with this user's rights in place of the service's.
  const missing = await missingOfStorage(storageUrl, storageKinds);
  if (missing.length > 0) {
    const root = storageDirectory(storageUrl);
    const lacks = `lacks ${missing.map(directory => path.relative(root, directory)).join(', ')}`;
    const found = `${kind} of ${variable} ${missing.includes(root) ? 'does not exist yet' : lacks}`;
    return [warning(SUBJECT, found, 'start a control plane, which creates it')];
  }
  const tried = await checkStorage(storageUrl, storageKinds);
  const failed = tried.filter(({ problem }) => problem !== undefined);
  if (failed.length === 0) {
    return [ok(SUBJECT, `${kind} of ${variable} passed all ${tried.length} checks`)];
  }
  const advice = 'see docs/storage.md; to test again, run matting storage check';
  return failed.map(({ ability, problem }) =>
    failure(SUBJECT, `${kind} of ${variable}, ${ability}: ${problem}`, advice),
  );
}

/**
 * Measures room where the service writes: data directory, SQLite file, storage directory, spool.
 */
async function diskFindings(
  { storageUrl, spoolDir, storageKinds }: StorageSettings,
  { databaseUrl, dataDir }: { readonly databaseUrl: string; readonly dataDir: string },
): Promise<readonly Finding[]> {
  const sends = storageKindOf(storageUrl, storageKinds) !== undefined;
  const places = new Set([
    dataDir,
    ...(databaseUrl.startsWith('sqlite:') ? [path.dirname(databaseUrl.slice(7))] : []),
    sends ? spoolDir : storageDirectory(storageUrl),
  ]);
  const byDevice = new Map<number, Finding>();
  for (const place of places) {
    const found = await stat(place).catch(unlessMissing);
    if (found === undefined || byDevice.has(found.dev)) continue;
    byDevice.set(found.dev, await roomOf(place));
  }
  if (sends) {
    await access(spoolDir, constants.W_OK | constants.X_OK).catch(error => {
      const advice = 'set MATTING_SPOOL_DIR to a writable directory';
      byDevice.set(-1, failure(DISK, reasonOf(error), advice));
    });
  }
  return [...byDevice.values()];
}

async function roomOf(place: string): Promise<Finding> {
  const { bavail, bsize } = await statfs(place);
  const free = bavail * bsize;
  const found = `${(free / 1e9).toFixed(1)} GB free at ${place}`;
  const advice = 'free some space; a full disk refuses images and fails jobs (retryable)';
  if (free < FREE_BYTES_MIN) return failure(DISK, found, advice);
  return free < FREE_BYTES_WARN ? warning(DISK, found, advice) : ok(DISK, found);
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
  throw error;
}
