/**
 * The control plane's configuration: the only file that reads the environment. Every bad variable
 * is named at once with the form it should have, never with its value, before anything is opened.
 */
import path from 'node:path';
import { createEnvReader, type EnvReader } from '#program/env.ts';
import { warnOfUnknownVariables } from '#program/env-names.ts';
import { type LogSettings, readLogSettings } from '#program/log-settings.ts';
import { isLoopback } from '#program/loopback.ts';
import { readTlsSettings, type TlsSettings } from '#program/tls/tls-settings.ts';
import { readTracingSettings, type TracingSettings } from '#program/tracing/tracing-settings.ts';
import {
  type AccountAreaConfig,
  readAccountArea,
  warnOfAccountArea,
} from './config/config-account.ts';
import { type MailSettings, readMail } from './config/config-mail.ts';
import { type NodeTokenConfig, readNodeTokens } from './config/config-node-token.ts';
import { type OnDemandConfig, readOnDemand } from './config/config-on-demand.ts';
import { type RemovebgConfig, readRemovebg, warnOfOrigins } from './config/config-removebg.ts';
import { readSales, type SalesConfig } from './config/config-sales.ts';
import { readStorage, type StorageConfig } from './config/config-storage.ts';
import { QUEUE_MEGAPIXELS_MAX } from './domain/queue-share.ts';
import {
  JOB_RETENTION_DAYS_DEFAULT,
  JOB_RETENTION_DAYS_MAX,
  JOB_RETENTION_DAYS_MIN,
} from './domain/retention.ts';
import {
  isWebhookSchedule,
  WEBHOOK_SCHEDULE_MS,
  type WebhookSchedule,
} from './domain/webhook-schedule.ts';
import { parseSecretsKey } from './secrets/secrets-key.ts';
import { parseNetwork } from './sources/guard/allowed-address.ts';

export interface Config extends StorageConfig, NodeTokenConfig, LogSettings, MailSettings {
  readonly host: string;
  readonly port: number;
  /** Without a trailing slash; links are made of it, never of the Host header. */
  readonly baseUrl: string;
  /** Absolute. */
  readonly dataDir: string;
  /** `sqlite:<absolute path>` or `mysql://...`; holds a password, so it is never logged. */
  readonly databaseUrl: string;
  /** 32 bytes; undefined (with SQLite only) means the one kept in the data directory. */
  readonly secretsKey: Buffer | undefined;
  /** The previous key: what it sealed can still be opened. */
  readonly secretsKeyPrevious: Buffer | undefined;
  readonly registryHost: string;
  readonly registryPort: number;
  readonly metricsHost: string;
  readonly metricsPort: number;
  /** TLS of the registry, and of the channels to nodes. */
  readonly tls: TlsSettings;
  /** Undefined: the operator's interface is off. */
  readonly operatorKey: string | undefined;
  readonly syncWaitMs: number;
  readonly resultTtlMs: number;
  readonly attemptTimeoutMs: number;
  readonly noNodeGraceMs: number;
  /** A fleet that sleeps; undefined: nodes are expected to live. */
  readonly onDemand: OnDemandConfig | undefined;
  /** How long a final job's row is kept, and its idempotency key with it. */
  readonly jobRetentionMs: number;
  readonly readsRequireIdempotencyKey: boolean;
  readonly fetchPorts: readonly number[];
  readonly allowPrivateAddresses: boolean;
  /** Names of callers' URLs that the system's resolver resolves at once. */
  readonly systemLookupsMax: number;
  readonly allowHttpCallbacks: boolean;
  /** CIDR blocks that callers' URLs may reach though they are not public. */
  readonly allowedNetworks: readonly string[];
  /** Waits in ms, the first before attempt 1. */
  readonly webhookScheduleMs: WebhookSchedule;
  readonly submissionsPerMinute: number;
  readonly readsPerMinute: number;
  readonly jobsInFlightMax: number;
  readonly queueMegapixelsMax: number;
  /** The remove.bg interface; undefined: it is off. */
  readonly removebg: RemovebgConfig | undefined;
  /** The account area; undefined: it is off. */
  readonly accountArea: AccountAreaConfig | undefined;
  readonly sales: SalesConfig;
  /** Networks of proxies whose X-Forwarded-For is believed. */
  readonly trustedProxies: readonly string[];
  /** Undefined: there are no traces. */
  readonly traces: TracingSettings | undefined;
  /** Lines that every start logs. */
  readonly warnings: readonly string[];
}

/** What a command of the CLI needs to open the database and nothing else. */
export interface DatabaseConfig {
  readonly databaseUrl: string;
  readonly dataDir: string;
}

/** What a command of the CLI needs of the storage. */
export type StorageSettings = StorageConfig & Pick<Config, 'resultTtlMs'>;

/** What a command of the CLI needs to make a link into the account area. */
export type LinkConfig = Pick<Config, 'baseUrl' | 'accountArea' | 'mail'>;

export type Environment = Readonly<Record<string, string | undefined>>;

const LOOPBACK = '127.0.0.1';
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** It controls every node and every job: longer than what a person would type. */
const OPERATOR_KEY = /^[\x21-\x7e]{32,256}$/;
const SECRETS_KEY_FORM = '32 bytes as 64 hexadecimal digits or as Base64';

/** Default threads of libuv's pool; at most half of them, rounded up, resolve names. */
const THREADS_DEFAULT = 4;
/** For 32 look-ups for callers and two of the service's own: its database, its nodes. */
const THREADS_FOR_LOOKUPS = 67;
const OWN_LOOKUPS = 2;

/**
 * Called before the first file is read, which starts the pool: sets enough threads for the names of
 * callers where the system's resolver is used, whose look-ups cannot be cancelled. A number that the
 * environment already has is kept.
 */
export function growThreadPool(env: NodeJS.ProcessEnv = process.env): void {
  if (env.MATTING_ALLOW_PRIVATE_ADDRESSES !== 'true') return;
  env.UV_THREADPOOL_SIZE ??= String(THREADS_FOR_LOOKUPS);
}

function systemLookupsMax(env: Environment): number {
  const threads = Number.parseInt(env.UV_THREADPOOL_SIZE ?? '', 10) || THREADS_DEFAULT;
  const lookups = Math.ceil(threads / 2);
  // At least two where there are two: an account gets one of them, so another finds one free.
  return Math.max(Math.min(2, lookups), lookups - OWN_LOOKUPS);
}

/** @throws ConfigError naming every variable that is not usable. */
export function loadConfig(env: Environment = process.env): Config {
  const reader = createEnvReader(env);
  const database = readDatabase(reader);
  const { host, port } = readPlace(reader);
  const baseUrl = readBaseUrl(reader, host, port);
  const config: Config = {
    ...database,
    host,
    port,
    baseUrl,
    ...readStorage(reader, database.dataDir),
    secretsKey: readSecretsKey(reader, database.databaseUrl),
    secretsKeyPrevious: reader.parsed(
      'MATTING_SECRETS_KEY_PREVIOUS',
      SECRETS_KEY_FORM,
      parseSecretsKey,
      { default: undefined },
    ),
    registryHost: reader.string('MATTING_REGISTRY_HOST', { default: LOOPBACK }),
    registryPort: reader.port('MATTING_REGISTRY_PORT', { default: 50_050 }),
    metricsHost: reader.string('MATTING_METRICS_HOST', { default: LOOPBACK }),
    metricsPort: reader.port('MATTING_METRICS_PORT', { default: 9464 }),
    ...readNodeTokens(reader),
    tls: readTlsSettings(reader),
    operatorKey: reader.string('MATTING_OPERATOR_KEY', {
      pattern: OPERATOR_KEY,
      expected: '32 to 256 printable ASCII characters without blanks',
      default: undefined,
    }),
    ...readTimes(reader),
    readsRequireIdempotencyKey: reader.boolean('MATTING_READS_REQUIRE_IDEMPOTENCY_KEY', {
      default: true,
    }),
    fetchPorts: reader.list('MATTING_FETCH_PORTS', 'ports, 1 to 65535', parsePort, {
      default: [80, 443],
    }),
    allowPrivateAddresses: reader.boolean('MATTING_ALLOW_PRIVATE_ADDRESSES', { default: false }),
    systemLookupsMax: systemLookupsMax(env),
    allowHttpCallbacks: reader.boolean('MATTING_ALLOW_HTTP_CALLBACKS', { default: false }),
    allowedNetworks: reader.list(
      'MATTING_ALLOWED_NETWORKS',
      'networks such as 10.1.0.0/16 or fd00:1::/32',
      parseNetwork,
      { default: [] },
    ),
    webhookScheduleMs: readWebhookSchedule(reader),
    ...readLimits(reader),
    onDemand: readOnDemand(reader),
    removebg: readRemovebg(reader),
    ...readAccountArea(reader, baseUrl),
    ...readMail(reader),
    sales: readSales(reader),
    ...readLogSettings(reader),
    traces: readTracingSettings(reader),
    warnings: [],
  };
  requireDistinctPorts(reader, config);
  reader.requireValid();
  const warnings = [
    ...warnOfHosts(reader, config),
    warnOfOrigins(config),
    warnOfAccountArea(config),
    warnOfUnknownVariables(env),
  ];
  return { ...config, warnings: warnings.filter(line => line !== undefined) };
}

/** @throws ConfigError naming every variable that is not usable. */
export function loadDatabaseConfig(env: Environment = process.env): DatabaseConfig {
  const reader = createEnvReader(env);
  const config = readDatabase(reader);
  reader.requireValid();
  return config;
}

/** @throws ConfigError naming every variable that is not usable. */
export function loadStorageConfig(env: Environment = process.env): StorageSettings {
  const reader = createEnvReader(env);
  const { dataDir } = readDatabase(reader);
  const { resultTtlMs } = readTimes(reader);
  const config = { ...readStorage(reader, dataDir), resultTtlMs };
  reader.requireValid();
  return config;
}

/** @throws ConfigError naming every variable that is not usable. */
export function loadLinkConfig(env: Environment = process.env): LinkConfig {
  const reader = createEnvReader(env);
  const { host, port } = readPlace(reader);
  const baseUrl = readBaseUrl(reader, host, port);
  const { accountArea } = readAccountArea(reader, baseUrl);
  const { mail } = readMail(reader);
  reader.requireValid();
  return { baseUrl, accountArea, mail };
}

/** What a command that seals something needs. @throws ConfigError */
export function loadKeyConfig(env: Environment = process.env) {
  const reader = createEnvReader(env);
  const { databaseUrl, dataDir } = readDatabase(reader);
  const secretsKey = readSecretsKey(reader, databaseUrl);
  reader.requireValid();
  return { secretsKey, dataDir };
}

/** Where REST listens. */
function readPlace(reader: EnvReader) {
  return {
    host: reader.string('MATTING_HOST', { default: LOOPBACK }),
    port: reader.port('MATTING_PORT', { default: 8080 }),
  };
}

function readDatabase(reader: EnvReader): DatabaseConfig {
  const dataDir = path.resolve(reader.string('MATTING_DATA_DIR', { default: 'data' }));
  const databaseUrl = reader.parsed(
    'MATTING_DATABASE_URL',
    'mysql://user:password@host:3306/database or sqlite:/path/of/the/file',
    parseDatabaseUrl,
    { default: `sqlite:${path.join(dataDir, 'matting.sqlite')}` },
  );
  return { databaseUrl, dataDir };
}

function readTimes(reader: EnvReader) {
  return {
    syncWaitMs: reader.integer('MATTING_SYNC_WAIT_MS', { min: 0, max: HOUR_MS, default: 120_000 }),
    resultTtlMs: reader.integer('MATTING_RESULT_TTL_MS', {
      min: 1000,
      max: 30 * DAY_MS,
      default: DAY_MS,
    }),
    attemptTimeoutMs: reader.integer('MATTING_ATTEMPT_TIMEOUT_MS', {
      min: 1000,
      max: 2 * HOUR_MS,
      default: 600_000,
    }),
    noNodeGraceMs: reader.integer('MATTING_NO_NODE_GRACE_MS', {
      min: 0,
      max: HOUR_MS,
      default: 60_000,
    }),
    jobRetentionMs:
      DAY_MS *
      reader.integer('MATTING_JOB_RETENTION_DAYS', {
        min: JOB_RETENTION_DAYS_MIN,
        max: JOB_RETENTION_DAYS_MAX,
        default: JOB_RETENTION_DAYS_DEFAULT,
      }),
  };
}

function readLimits(reader: EnvReader) {
  return {
    submissionsPerMinute: reader.integer('MATTING_SUBMISSIONS_PER_MINUTE', {
      min: 1,
      default: 1200,
    }),
    readsPerMinute: reader.integer('MATTING_READS_PER_MINUTE', { min: 1, default: 6000 }),
    jobsInFlightMax: reader.integer('MATTING_JOBS_IN_FLIGHT_MAX', { min: 1, default: 1000 }),
    queueMegapixelsMax: reader.number('MATTING_QUEUE_MEGAPIXELS_MAX', {
      min: 1,
      default: QUEUE_MEGAPIXELS_MAX,
    }),
  };
}

function readBaseUrl(reader: EnvReader, host: string, port: number): string {
  const given = reader.url('MATTING_BASE_URL', {
    schemes: ['http', 'https'],
    default: undefined,
  });
  if (given === undefined) {
    if (port === 0) reader.problem('MATTING_BASE_URL', 'set where MATTING_PORT is 0');
    return `http://${dialableHost(host)}:${port}`;
  }
  const url = new URL(given);
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    reader.problem('MATTING_BASE_URL', 'a URL of scheme, host, port and path only');
  }
  return given.replace(/\/+$/, '');
}

/** Where a listener's host can be reached from this machine. */
function dialableHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
}

function readSecretsKey(reader: EnvReader, databaseUrl: string | undefined): Buffer | undefined {
  // With SQLite there is one control plane and its key lies beside its database.
  if (databaseUrl?.startsWith('sqlite:')) {
    return reader.parsed('MATTING_SECRETS_KEY', SECRETS_KEY_FORM, parseSecretsKey, {
      default: undefined,
    });
  }
  return reader.parsed('MATTING_SECRETS_KEY', SECRETS_KEY_FORM, parseSecretsKey);
}

function readWebhookSchedule(reader: EnvReader): WebhookSchedule {
  const expected = 'waits in milliseconds, the first before attempt 1, all within 24 hours';
  const parse = (text: string) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined);
  const schedule = reader.list('MATTING_WEBHOOK_SCHEDULE_MS', expected, parse, {
    default: WEBHOOK_SCHEDULE_MS,
  });
  if (isWebhookSchedule(schedule)) return schedule;
  reader.problem('MATTING_WEBHOOK_SCHEDULE_MS', expected);
  return WEBHOOK_SCHEDULE_MS;
}

function requireDistinctPorts(reader: EnvReader, config: Config): void {
  const ports = new Map<number, string>();
  const named = [
    ['MATTING_PORT', config.port],
    ['MATTING_REGISTRY_PORT', config.registryPort],
    ['MATTING_METRICS_PORT', config.metricsPort],
  ] as const;
  for (const [variable, port] of named) {
    const other = ports.get(port);
    // 0 is any free port, so two of them never conflict.
    if (other !== undefined && port !== 0) reader.problem(variable, `another port than ${other}`);
    ports.set(port, variable);
  }
}

/** Listeners that others can reach without protection, and those that others cannot reach. */
function warnOfHosts(reader: EnvReader, config: Config): string[] {
  const { host, registryHost, metricsHost, tls } = config;
  const warnings: string[] = [];
  if (!isLoopback(host) && !reader.has('MATTING_REGISTRY_HOST')) {
    warnings.push(
      `MATTING_REGISTRY_HOST is not set: only nodes of this machine can register, though MATTING_HOST is ${host}`,
    );
  }
  if (!isLoopback(registryHost) && tls.identity === undefined) {
    warnings.push(
      `MATTING_REGISTRY_HOST is ${registryHost} without MATTING_TLS_CERT_FILE: the node token can be read on the way`,
    );
  }
  if (!isLoopback(metricsHost)) {
    const operator = config.operatorKey === undefined ? '' : ', MATTING_OPERATOR_KEY can be read';
    warnings.push(
      `MATTING_METRICS_HOST is ${metricsHost}: /metrics is open to everyone who reaches it${operator}`,
    );
  }
  return warnings;
}

function parsePort(text: string): number | undefined {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? port : undefined;
}

function parseDatabaseUrl(text: string): string | undefined {
  const file = /^sqlite:(?:\/\/(?=\/))?(.+)$/i.exec(text)?.[1];
  if (file !== undefined) return `sqlite:${path.resolve(file)}`;
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  return url.protocol === 'mysql:' && url.pathname.length > 1 ? text : undefined;
}
