/**
 * `matting doctor`: looks at everything a control plane needs, one thing after the other, each with
 * a bound of its own. What one thing lacks keeps no other from being looked at. It changes nothing
 * but what the check of the storage writes and removes again.
 */
import { arch, platform, release } from 'node:os';
import { type Finding, look, ok, warning } from '#program/doctor/findings.ts';
import { openFilesFinding, tlsFindings } from '#program/doctor/program-findings.ts';
import { ConfigError, type Environment } from '#program/env.ts';
import pkg from '../../../package.json' with { type: 'json' };
import { JOB_RETENTION_DAYS_DEFAULT } from '../../core/retention/retention.ts';
import { loadDatabaseConfig, loadStorageConfig } from '../../core/settings.ts';
import { createStores } from '../../core/stores.ts';
import type { Database } from '../../database/database.ts';
import type { ComposedProgram, LookedAtConfig } from '../composed-program.ts';
import {
  examineConfiguration,
  secretsFindings,
  withSupervisorsToken,
} from './configuration-findings.ts';
import { type ExaminedDatabase, examineDatabase } from './database-findings.ts';
import { controlPlaneFindings, nodeFindings } from './fleet-findings.ts';
import { diskFindings, storageFindings } from './storage-findings.ts';
import {
  deliveryFindings,
  ledgerFindings,
  queueFindings,
  secretsKeyFindings,
  sweepFindings,
} from './work-findings.ts';

const DAY_MS = 86_400_000;
/** Node's major version that the project brings and is tested with. */
const NODE_MAJOR = 24;
/** With fewer the public port takes less than 4096 connections. */
const OPEN_FILES_MIN = 8192;
const BUG = 'this is a fault of the doctor itself: report it with this line';

/** @param given the process's environment, or a test's */
export async function examineControlPlane(
  given: Environment,
  composed: ComposedProgram,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [...versionFindings(given), openFilesFinding(OPEN_FILES_MIN)];
  const database = orUndefined(() => loadDatabaseConfig(given));
  const env = database === undefined ? given : await withSupervisorsToken(given, database.dataDir);
  const { config, findings: ofConfiguration } = examineConfiguration(env, composed);
  findings.push(...ofConfiguration);
  if (config !== undefined) {
    findings.push(...(await look('secrets', BUG, () => secretsFindings(config))));
    findings.push(...(await look('TLS', BUG, () => tlsFindings(config.tls))));
  }
  if (database !== undefined) {
    const open = () => examineDatabase(database.databaseUrl, composed.migrations);
    findings.push(...(await databaseFindings(open, config, env)));
  }
  const storage = orUndefined(() => loadStorageConfig(env, composed.storageKinds));
  if (storage !== undefined) {
    const advice = 'matting storage check; docs/operations.md, "Storage"';
    findings.push(...(await look('storage', advice, () => storageFindings(storage))));
    if (database !== undefined) {
      const room = () => diskFindings(storage, database);
      findings.push(...(await look('disk', 'see the file system', room)));
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
  const found = `matting ${pkg.version} on Node ${node}, ${system}`;
  const findings = [
    Number.parseInt(node, 10) === NODE_MAJOR
      ? ok('version', found)
      : warning('version', found, `run it with Node ${NODE_MAJOR}: sh bin/node24`),
  ];
  if (env.NODE_TLS_REJECT_UNAUTHORIZED === '0') {
    const off = 'NODE_TLS_REJECT_UNAUTHORIZED=0: no certificate is checked';
    findings.push(warning('version', off, 'remove it; NODE_EXTRA_CA_CERTS names an authority'));
  }
  return findings;
}

/** What is wrong with the variables was said already. */
function orUndefined<T>(load: () => T): T | undefined {
  try {
    return load();
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}

/** Asks it everything, and closes it. */
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
  const advice = 'see its log; requests get 503 meanwhile';
  const findings = [...(await look('database', advice, examine))];
  if (examined?.database === undefined) return findings;
  const { database, current } = examined;
  try {
    if (current) findings.push(...(await contentFindings(database, config, env)));
  } finally {
    // It may be away by now, which was said.
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
  const onDemand = env.MATTING_NODES_ON_DEMAND?.toLowerCase() === 'true';
  const looks: readonly (readonly [string, () => Promise<readonly Finding[]>])[] = [
    ['secrets', async () => (config === undefined ? [] : secretsKeyFindings(stores, config))],
    ['nodes', async () => nodeFindings(await stores.nodes.listAll(), onDemand)],
    ['queue', () => queueFindings(stores)],
    ['webhooks', () => deliveryFindings(stores)],
    ['sweeper', () => sweepFindings(stores, retentionMs)],
    ['ledger', () => ledgerFindings(stores)],
  ];
  const findings: Finding[] = [];
  for (const [subject, examine] of looks) {
    findings.push(...(await look(subject, 'see the database and its log', examine)));
  }
  return findings;
}
