/** Opens the database like a start, but creates nothing. Checks the secrets key and the nodes. */
import path from 'node:path';
import type { CliContext } from '@matting/core/cli/context.ts';
import { type OperatorNode, viewNodes } from '@matting/core/operator/operate-nodes.ts';
import { SecretBox } from '@matting/core/secrets/secret-box.ts';
import {
  readSecretsKey,
  requireKeyOf,
  SECRETS_KEY_FILE,
} from '@matting/core/secrets/secrets-key.ts';
import { createStores, type StoresWithoutEnds } from '@matting/core/stores.ts';
import { databaseCertificates, openDatabase, parseMysqlUrl } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { isFull } from '@matting/database/engines.ts';
import { type MigrationSeries, requireCurrentSchema } from '@matting/database/migrate.ts';
import { probeDatabase } from '@matting/database/probe.ts';
import { type Finding, runCheck, type Warn } from '@matting/program/doctor/findings.ts';
import { endsText } from '@matting/program/doctor/program-findings.ts';
import { warnOfEnds } from '@matting/program/tls/certificate-ends.ts';

type LoadedConfig = ReturnType<CliContext['packages']['loadConfig']>;

const PAGE = 'docs/database.md';
const CHANGING = 'docs/operate.md, "Change the secrets key"';
const NODES_ADVICE =
  'run matting nodes list; see docs/runbook.md, MattingNoNode and MattingNodesUnroutable';
const NAMED_MAX = 10;

/** @param config undefined: other variables are wrong */
export async function databaseFindings(
  url: string,
  migrations: readonly MigrationSeries[],
  config: LoadedConfig | undefined,
): Promise<readonly Finding[]> {
  let database: Database | undefined;
  let stores: StoresWithoutEnds | undefined;
  const findings = await runCheck({ subject: 'database', advice: adviceOf }, async log => {
    warnOfEnds(databaseCertificates(url), log);
    database = await openDatabase(url, { log });
    await requireCurrentSchema(database, migrations);
    stores = createStores(database);
    await stores.check();
    const { engine, version } = await probeDatabase(database);
    // The rest of the version names the distribution's build.
    const name = `${engine} ${/^[\d.]+/.exec(version)?.[0] ?? version}`;
    return `${name} is up to date and takes writes${connectionOf(url)}`;
  });
  try {
    if (stores === undefined || config === undefined) return findings;
    const own = stores;
    const key = await runCheck({ subject: 'secrets key', advice: `see ${CHANGING}` }, (_, warn) =>
      requireKey(own, config, warn),
    );
    const { onDemand } = config;
    const nodes = await runCheck({ subject: 'nodes', advice: NODES_ADVICE }, (_, warn) =>
      requireNodes(own, onDemand, warn),
    );
    return [...findings, ...key, ...nodes];
  } finally {
    await database?.close().catch(() => undefined);
  }
}

function connectionOf(url: string): string {
  if (url.startsWith('sqlite:')) return '';
  if (parseMysqlUrl(url).ssl === undefined) return ', without TLS';
  const ends = endsText(databaseCertificates(url));
  return ends === '' ? ', with TLS' : `, with TLS: ${ends}`;
}

/** The server's message has the user and host, but no password. */
function adviceOf(found: string, cause: unknown): string {
  const [, user] = /Access denied for user ('[^']*'@'[^']*')/.exec(found) ?? [];
  if (user !== undefined) {
    return `create the user ${user}, or correct the password in MATTING_DATABASE_URL; see docs/security.md`;
  }
  const { errno } = (cause ?? {}) as { errno?: unknown };
  if (isFull(errno)) {
    return 'let the user open more connections, or set connection-limit in MATTING_DATABASE_URL';
  }
  if (typeof errno === 'number' && errno < 0) {
    return 'start the database, or correct MATTING_DATABASE_URL; requests get 503 meanwhile';
  }
  return `see ${PAGE}`;
}

async function requireKey(
  { secretsCanary, outbox }: StoresWithoutEnds,
  { secretsKey: given, secretsKeyPrevious: previous, dataDir }: LoadedConfig,
  warn: Warn,
): Promise<string> {
  const canary = await secretsCanary.find();
  const key = given ?? (await readSecretsKey(dataDir));
  if (key === undefined) {
    const found = `neither MATTING_SECRETS_KEY nor ${path.join(dataDir, SECRETS_KEY_FILE)} is there`;
    // The first start makes a key if none has sealed anything yet.
    if (canary === undefined) return `${found}; the first start makes it`;
    throw new Error(`${found}: restore the key that this database was used with`);
  }
  if (canary !== undefined) requireKeyOf(canary, key, previous);
  const keys = previous === undefined ? [key] : [key, previous];
  const count = await outbox.countSealedWithOthers(keys.map(one => new SecretBox(one).keyId));
  if (count > 0) warn(`no key opens the secrets of ${count} waiting notifications`);
  if (previous !== undefined) warn('MATTING_SECRETS_KEY_PREVIOUS is set: the key is changing');
  return 'opens what the database holds';
}

async function requireNodes(
  stores: StoresWithoutEnds,
  onDemand: boolean,
  warn: Warn,
): Promise<string> {
  const members = await stores.nodes.listAll();
  const nodes = viewNodes(members, await stores.sightings.list());
  const taking = nodes.filter(({ state }) => state === 'live');
  const others = nodes.filter(({ state }) => state !== 'live' && state !== 'gone');
  const idle = others.every(({ state }) => state === 'silent');
  if (taking.length === 0 && onDemand && idle) return 'none; they start when there is work';
  const named = others.slice(0, NAMED_MAX).map(inWords).join(', ');
  if (taking.length === 0) {
    const { jobs, oldestAgeMs } = await stores.queue.queued();
    const waited = jobs === 0 ? '' : `; jobs wait, for ${Math.round(oldestAgeMs / 1000)} s`;
    throw new Error(`none takes images${named && `: ${named}`}${waited}`);
  }
  if (others.length > 0) warn(`${others.length} of ${nodes.length} take no images: ${named}`);
  return `${taking.length} of ${nodes.length} take images`;
}

function inWords({ node_id: nodeId, state, cause }: OperatorNode): string {
  return `${nodeId} (${cause ?? state})`;
}
