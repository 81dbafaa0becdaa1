/**
 * `matting doctor`: looks at everything a control plane needs, one thing after the other, each with
 * a bound of its own. What one thing lacks keeps no other from being looked at. It changes nothing
 * but what the check of the storage writes and removes again.
 */

import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import { viewNodes } from '@matting/core/operator/operate-nodes.ts';
import {
  JOB_RETENTION_DAYS_DEFAULT,
  loadDatabaseConfig,
  loadStorageConfig,
} from '@matting/core/settings.ts';
import { createStores } from '@matting/core/stores.ts';
import { DatabaseOpenError, databaseCertificates } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { ConfigError } from '@matting/program/config-error.ts';
import { type Finding, look, reportOf } from '@matting/program/doctor/findings.ts';
import {
  configurationFindings,
  expiryFindings,
  openFilesFinding,
  tlsFindings,
  versionFindings,
} from '@matting/program/doctor/program-findings.ts';
import { SecretsOut } from '@matting/program/doctor/secrets.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { Environment } from '@matting/program/env.ts';
import type { Command } from 'commander';
import { type ExaminedDatabase, examineDatabase } from './database-findings.ts';
import { diskFindings } from './disk-findings.ts';
import { nodeFindings } from './node-findings.ts';
import { controlPlaneFindings } from './running-findings.ts';
import { secretsFindings, secretsInFiles, withSupervisorsToken } from './secrets-findings.ts';
import { secretsKeyFindings } from './secrets-key-findings.ts';
import { storageFindings } from './storage-findings.ts';
import { deliveryFindings, ledgerFindings, queueFindings, sweepFindings } from './work-findings.ts';

type LookedAtConfig = ReturnType<CliContext['packages']['loadConfig']>;

/** With fewer open files the public port takes less than 4096 connections. */
const OPEN_FILES_MIN = 8192;
const BUG = 'this is a bug in the doctor; report it with this line';

async function examineControlPlane(given: Environment, packages: CliContext['packages']) {
  const findings: Finding[] = [...versionFindings(given), openFilesFinding(OPEN_FILES_MIN)];
  const database = orUndefined(() => loadDatabaseConfig(given));
  const env = database === undefined ? given : await withSupervisorsToken(given, database.dataDir);
  const { config, findings: ofConfiguration } = configurationFindings(env, packages.loadConfig);
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
      async () => {
        const members = await stores.nodes.listAll();
        const sightings = await stores.sightings.list();
        return await nodeFindings({
          nodes: viewNodes(members, sightings),
          replicas: sightings.replicas,
          queued: await stores.queue.queued(),
          onDemand: env.MATTING_NODES_ON_DEMAND?.toLowerCase() === 'true',
          offered: config?.modelsOffered,
        });
      },
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
  const { text, fault } = reportOf(findings, { ...options, json: context.json });
  context.print(secretsOut.of(text));
  if (fault !== undefined) throw new CommandError(fault);
}
