import path from 'node:path';
import { parseNetwork } from '@matting/http/outgoing/open-addresses.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import {
  type About,
  type Environment,
  type EnvReader,
  readEnvironment,
} from '@matting/program/env.ts';
import { httpBaseOf, isLoopback } from '@matting/program/ports/addresses.ts';
import {
  readDataDir,
  readGivenBaseUrl,
  readHost,
  readModelsOffered,
  readPort,
} from '@matting/program/shared-settings.ts';
import { readTlsSettings } from '@matting/program/tls/tls-settings.ts';
import { readNodeTokens, TOKEN_FORM } from '@matting/program/tokens.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';
import { readStorage } from '@matting/storage/open-storage.ts';
import type { StorageKind } from '@matting/storage/storage-kind.ts';
import { QUEUE_MEGAPIXELS_MAX } from './queue/queue-bound.ts';
import { JOB_RETENTION_DAYS_MAX, JOB_RETENTION_DAYS_MIN } from './retention/retention.ts';
import { parseSecretsKey } from './secrets/secrets-key.ts';
import {
  isWebhookSchedule,
  WEBHOOK_SCHEDULE_MS,
  type WebhookSchedule,
} from './webhooks/webhook-schedule.ts';

export const JOB_RETENTION_DAYS_DEFAULT = JOB_RETENTION_DAYS_MIN;

export type CoreSettings = ReturnType<typeof readCoreSettings>;

const LOOPBACK = '127.0.0.1';
const HOUR_MS = 3_600_000;
const OPERATOR_KEY = /^[\x21-\x7e]{32,256}$/;
const DATABASE_FORM = 'mysql://user:password@host:3306/database or sqlite:/path/of/the/file';
const PREVIOUS_KEY = 'MATTING_SECRETS_KEY_PREVIOUS';
const SECRETS_KEY_FORM = '32 bytes as 64 hexadecimal digits or as Base64';

/** libuv's default. Half of the threads, rounded up, look up host names. */
const THREADS_DEFAULT = 4;
const OWN_LOOKUPS = 2;

export function readCoreSettings(
  reader: EnvReader,
  env: Environment,
  storageKinds: readonly StorageKind[],
) {
  const database = readDatabase(reader);
  return {
    ...database,
    ...readListenAddress(reader),
    ...readInnerPorts(reader.section('Addresses')),
    trustedProxies: readNetworks(reader.section('Addresses'), 'MATTING_TRUSTED_PROXIES', {
      about: 'The networks of your proxies. The service believes their `X-Forwarded-For`.',
      required: 'behind a proxy',
    }),
    ...readStorage(reader.section('Database and storage'), database.dataDir, storageKinds),
    ...readSecrets(reader, database.databaseUrl),
    tls: readTlsSettings(reader),
    ...readTimes(reader),
    modelsOffered: readModelsOffered(reader, SELECTABLE_NAME),
    ...readLimits(reader.section('Limits')),
    ...readOutgoing(reader.section('URLs of callers and webhooks')),
    systemLookupsMax: systemLookupsMax(env),
    onDemand: reader.section('Nodes on demand').boolean('MATTING_NODES_ON_DEMAND', {
      about: `Accepts jobs while no node lives, for nodes that
        [come when there is work](scaling.md#start-nodes-on-demand).`,
      default: false,
    }),
  };
}

function systemLookupsMax(env: Environment): number {
  const threads = Number.parseInt(env.UV_THREADPOOL_SIZE ?? '', 10) || THREADS_DEFAULT;
  const lookups = Math.ceil(threads / 2);
  // With only two look-ups, callers may use both: an account uses one, so another finds one free.
  return Math.max(Math.min(2, lookups), lookups - OWN_LOOKUPS);
}

function readInnerPorts(reader: EnvReader) {
  return {
    registryHost: reader.string('MATTING_REGISTRY_HOST', {
      about: 'The address on which nodes register, in their network. Callers must not reach it.',
      required: 'if nodes run on other machines',
      default: LOOPBACK,
    }),
    registryPort: readPort(reader, 'registry'),
    metricsHost: reader.string('MATTING_METRICS_HOST', {
      about: `The address of \`/metrics\` and \`/operator\`. Metrics need
        [no key](security.md#metrics-without-a-key): keep callers out.`,
      default: LOOPBACK,
    }),
    metricsPort: readPort(reader, 'metrics'),
  };
}

const FETCH_CONTACT = /^[\x21-\x27\x2a-\x5b\x5d-\x7e]{1,200}$/;

function readOutgoing(reader: EnvReader) {
  return {
    fetchPorts: reader.list('MATTING_FETCH_PORTS', 'ports, 1 to 65535', parsePort, {
      about: 'The ports that an `image_url` may name.',
      default: [80, 443],
    }),
    fetchContact: reader.string('MATTING_FETCH_CONTACT', {
      about: `Your page or address, which the service shows in \`User-Agent\` where it fetches an
        \`image_url\`. Some sites ask for one, such as Wikimedia.`,
      pattern: FETCH_CONTACT,
      expected: 'up to 200 characters of ASCII without blanks and parentheses',
      default: undefined,
    }),
    allowedNetworks: readNetworks(reader, 'MATTING_ALLOWED_NETWORKS', {
      about: `The private networks that URLs of callers may reach. The service judges
        names by their addresses, which it then finds by the hosts file and the search list
        too, on 67 threads unless you set \`UV_THREADPOOL_SIZE\`. Every start logs it.
        \`make start\` on loopback without \`MATTING_BASE_URL\` sets \`127.0.0.0/8,::1/128\`, and allows callbacks by http.`,
    }),
    allowPrivateAddresses: reader.boolean('MATTING_ALLOW_PRIVATE_ADDRESSES', {
      about: `Lets URLs reach every private address and port, by any name that the machine knows.
        Use it in tests and trusted networks only. Every start logs it.`,
      default: false,
    }),
    allowHttpCallbacks: reader.boolean('MATTING_ALLOW_HTTP_CALLBACKS', {
      about: 'Lets a `callback_url` be http. Every start logs it.',
      default: false,
    }),
    webhookScheduleMs: readWebhookSchedule(reader),
  };
}

function readNetworks(reader: EnvReader, variable: string, about: About) {
  const expected = 'networks such as 10.1.0.0/16 or fd00:1::/32';
  const none = { ...about, default: [] as readonly string[] };
  return reader.list(variable, expected, parseNetwork, none);
}

export function loadDatabaseConfig(env: Environment) {
  return readEnvironment(env, readDatabase);
}

export function loadStorageConfig(env: Environment, storageKinds: readonly StorageKind[]) {
  return readEnvironment(env, reader => {
    const { dataDir } = readDatabase(reader);
    const { resultTtlMs } = readTimes(reader);
    return { ...readStorage(reader, dataDir, storageKinds), resultTtlMs };
  });
}

export function loadKeyConfig(env: Environment) {
  return readEnvironment(env, reader => {
    const { databaseUrl, dataDir } = readDatabase(reader);
    return { secretsKey: readSecretsKey(reader, databaseUrl), dataDir };
  });
}

export function readListenAddress(whole: EnvReader) {
  const reader = whole.section('Addresses');
  const host = readHost(reader);
  const port = readPort(reader, 'http');
  return { host, port, baseUrl: readBaseUrl(reader, host, port) };
}

/** The URL may hold a password, so it is never logged. Paths are absolute. */
function readDatabase(whole: EnvReader) {
  const reader = whole.section('Database and storage');
  const dataDir = readDataDir(reader);
  const databaseUrl = reader.parsed('MATTING_DATABASE_URL', DATABASE_FORM, parseDatabaseUrl, {
    about:
      'The database. MySQL and MariaDB both use `mysql://`, with TLS by [`ssl-mode`](database.md#tls).',
    required: 'for several control planes',
    otherwise: 'a SQLite file in `MATTING_DATA_DIR`',
    default: `sqlite:${path.join(dataDir, 'matting.sqlite')}`,
  });
  return { databaseUrl, dataDir };
}

function readTimes(whole: EnvReader) {
  const reader = whole.section('Jobs and results');
  return {
    syncWaitMs: reader.integer('MATTING_SYNC_WAIT_MS', {
      about: 'How long a synchronous request waits. Then the answer is 202, and the job continues.',
      ...{ min: 0, max: HOUR_MS, default: 120_000 },
    }),
    resultTtlMs: reader.integer('MATTING_RESULT_TTL_MS', {
      about: 'How long a result link works.',
      ...{ min: 1000, max: 30 * DAY_MS, default: DAY_MS },
    }),
    attemptTimeoutMs: reader.integer('MATTING_ATTEMPT_TIMEOUT_MS', {
      about: 'How long a node has for one attempt. Then the control plane makes another attempt.',
      ...{ min: 1000, max: 2 * HOUR_MS, default: 600_000 },
    }),
    noNodeGraceMs: reader.integer('MATTING_NO_NODE_GRACE_MS', {
      about: `How long the service accepts jobs that no node can take. Then submissions get 503, or the
        error of the field that no node supports.`,
      ...{ min: 0, max: HOUR_MS, default: 60_000 },
    }),
    jobRetentionMs:
      DAY_MS *
      reader.integer('MATTING_JOB_RETENTION_DAYS', {
        about: 'How long the service keeps a finished job and its idempotency key.',
        ...{ min: JOB_RETENTION_DAYS_MIN, max: JOB_RETENTION_DAYS_MAX },
        default: JOB_RETENTION_DAYS_DEFAULT,
      }),
    corrections:
      reader.oneOf('MATTING_CORRECTIONS', ['on', 'off'] as const, {
        about: `\`on\`: callers can have a job's input and matte kept for
          [corrections](batches-and-corrections.md#correct-a-result), as long as its result.`,
        default: 'on',
      }) === 'on',
    readsRequireIdempotencyKey: reader.boolean('MATTING_READS_REQUIRE_IDEMPOTENCY_KEY', {
      about:
        'Requires an `Idempotency-Key` on GET, HEAD and DELETE, too. `make start` sets `false`.',
      default: true,
    }),
  };
}

function readLimits(reader: EnvReader) {
  return {
    submissionsPerMinute: reader.integer('MATTING_SUBMISSIONS_PER_MINUTE', {
      about: 'The submissions that an account may send, over all control planes.',
      ...{ min: 1, default: 1200 },
    }),
    readsPerMinute: reader.integer('MATTING_READS_PER_MINUTE', {
      about: 'The reads that an account may send. They count apart from submissions.',
      ...{ min: 1, default: 6000 },
    }),
    jobsInFlightMax: reader.integer('MATTING_JOBS_IN_FLIGHT_MAX', {
      about: 'The jobs that an account may have open, with those of its batches.',
      ...{ min: 1, default: 1000 },
    }),
    queueMegapixelsMax: reader.number('MATTING_QUEUE_MEGAPIXELS_MAX', {
      about: 'The size of the queue. Above it, accounts that hold more than their share get 503.',
      ...{ min: 1, default: QUEUE_MEGAPIXELS_MAX },
    }),
  };
}

/** Links begin with it, never with the Host header. */
function readBaseUrl(reader: EnvReader, host: string, port: number): string {
  const given = readGivenBaseUrl(reader);
  if (given === undefined) {
    if (port === 0) reader.problem('MATTING_BASE_URL', 'set where MATTING_PORT is 0');
    return httpBaseOf(host, port);
  }
  const url = new URL(given);
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    reader.problem('MATTING_BASE_URL', 'a URL of scheme, host, port and path only');
  }
  return given.replace(/\/+$/, '');
}

function readSecrets(whole: EnvReader, databaseUrl: string | undefined) {
  const reader = whole.section('Secrets');
  return {
    /** The service sends nodes the first token, and accepts any of these from nodes. */
    nodeTokens: readNodeTokens(reader, `set: ${TOKEN_FORM}`),
    /**
     * The 32-byte key that encrypts secrets. Undefined only with SQLite, whose key file is in the
     * data directory.
     */
    secretsKey: readSecretsKey(reader, databaseUrl),
    secretsKeyPrevious: reader.parsed(PREVIOUS_KEY, SECRETS_KEY_FORM, parseSecretsKey, {
      about: 'The old key while you [change it](operate.md#change-the-secrets-key).',
      default: undefined,
    }),
    operatorKey: reader.string('MATTING_OPERATOR_KEY', {
      about: 'The key of `/operator`, its JSON and its pages. Without it `/operator` is off.',
      pattern: OPERATOR_KEY,
      expected: '32 to 256 printable ASCII characters without blanks',
      default: undefined,
    }),
  };
}

function readSecretsKey(reader: EnvReader, databaseUrl: string | undefined): Buffer | undefined {
  const absent = databaseUrl?.startsWith('sqlite:') ? { default: undefined } : {};
  return reader.parsed('MATTING_SECRETS_KEY', SECRETS_KEY_FORM, parseSecretsKey, {
    about: `The key that encrypts callback secrets and the texts of waiting mails and notifications. Set
      the same on all control planes.`,
    required: 'with MySQL or MariaDB',
    otherwise: 'generated with SQLite',
    ...absent,
  });
}

function readWebhookSchedule(reader: EnvReader): WebhookSchedule {
  const expected = 'waits in milliseconds, the first before attempt 1, all within 24 hours';
  const parse = (text: string) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined);
  const schedule = reader.list('MATTING_WEBHOOK_SCHEDULE_MS', expected, parse, {
    about: 'The waits between attempts to deliver a notification. Each varies by up to 10 %.',
    default: WEBHOOK_SCHEDULE_MS,
  });
  if (isWebhookSchedule(schedule)) return schedule;
  reader.problem('MATTING_WEBHOOK_SCHEDULE_MS', expected);
  return WEBHOOK_SCHEDULE_MS;
}

export function requireDistinctPorts(reader: EnvReader, config: CoreSettings): void {
  const ports = new Map<number, string>();
  const named = [
    ['MATTING_PORT', config.port],
    ['MATTING_REGISTRY_PORT', config.registryPort],
    ['MATTING_METRICS_PORT', config.metricsPort],
  ] as const;
  for (const [variable, port] of named) {
    const other = ports.get(port);
    if (other !== undefined && port !== 0) reader.problem(variable, `another port than ${other}`);
    ports.set(port, variable);
  }
}

export function warnOfHosts(reader: EnvReader, config: CoreSettings): string[] {
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
