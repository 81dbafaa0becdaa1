/**
 * The control plane's configuration: the only file that reads the environment. Every bad variable
 * is named at once with the form it should have, never with its value, before anything is opened.
 */
import path from 'node:path';
import { EnvReader } from '#program/env.ts';
import { warnOfUnknownVariables } from '#program/env-names.ts';
import { readLogSettings } from '#program/log-settings.ts';
import { isLoopback } from '#program/loopback.ts';
import { readTlsSettings } from '#program/tls/tls-settings.ts';
import { readTracingSettings } from '#program/tracing/tracing-settings.ts';
import { QUEUE_MEGAPIXELS_MAX } from './core/dispatch/queue-share.ts';
import { parseNetwork } from './core/fetching/public-address.ts';
import {
  JOB_RETENTION_DAYS_DEFAULT,
  JOB_RETENTION_DAYS_MAX,
  JOB_RETENTION_DAYS_MIN,
} from './core/retention/retention.ts';
import { parseSecretsKey } from './core/secrets/secrets-key.ts';
import type { StorageKind } from './core/storage/storage-kind.ts';
import { asksForStorageKinds, readStorage } from './core/storage/storage-settings.ts';
import {
  isWebhookSchedule,
  WEBHOOK_SCHEDULE_MS,
  type WebhookSchedule,
} from './core/webhooks/webhook-schedule.ts';
import { ACCOUNT_MAILS_DEFAULT, ACCOUNT_MAILS_MAX } from './portal/alerts/message-limits.ts';
import type { ListOnSale } from './portal/orders/orders.ts';
import { parseMail } from './portal/people/mail-address.ts';
import { isRole, type Role } from './portal/people/roles.ts';
import {
  PLAYGROUND_IMAGES_DEFAULT,
  PLAYGROUND_IMAGES_MAX,
} from './portal/playground/playground.ts';
import { REMOVEBG_SIZES } from './removebg/removebg-values.ts';

type Settings = ReturnType<typeof readSettings>;

export interface Config extends Settings {
  /** Lines that every start logs. */
  readonly warnings: readonly string[];
}

/** What a command of the CLI needs to open the database and nothing else. */
export type DatabaseConfig = ReturnType<typeof readDatabase>;

/** What a command of the CLI needs of the storage. */
export type StorageSettings = ReturnType<typeof loadStorageConfig>;

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

/** For commands that look at all of it. */
export function wholeEnvironment(): Environment {
  return process.env;
}

/** @throws ConfigError naming every variable that is not usable. */
/** Kinds of storage beside directories: loaded where a URL asks for one, since the SDK is large. */
export async function loadStorageKinds(
  env: Environment = process.env,
): Promise<readonly StorageKind[]> {
  if (!asksForStorageKinds(env)) return [];
  return [(await import('./object-storage/bucket-storage.ts')).bucketStorage];
}

/** @param storageKinds those that its URLs ask for */
export function loadConfig(
  env: Environment = process.env,
  storageKinds: readonly StorageKind[] = [],
): Config {
  const reader = new EnvReader(env);
  const settings = readSettings(reader, env, storageKinds);
  requireDistinctPorts(reader, settings);
  reader.requireValid();
  const warnings = [
    ...warnOfHosts(reader, settings),
    warnOfOrigins(settings),
    warnOfAccountArea(settings),
    warnOfUnknownVariables(env),
  ];
  return { ...settings, warnings: warnings.filter(line => line !== undefined) };
}

function readSettings(reader: EnvReader, env: Environment, storageKinds: readonly StorageKind[]) {
  const database = readDatabase(reader);
  const place = readPlace(reader);
  return {
    ...database,
    ...place,
    ...readStorage(reader, database.dataDir, storageKinds),
    /** What seals; 32 bytes. Undefined (with SQLite only): the one kept in the data directory. */
    secretsKey: readSecretsKey(reader, database.databaseUrl),
    /** What it sealed can still be opened. */
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
    /** Of the registry, and of the channels to nodes. */
    tls: readTlsSettings(reader),
    /** Undefined: the operator's interface is off. */
    operatorKey: reader.string('MATTING_OPERATOR_KEY', {
      pattern: OPERATOR_KEY,
      expected: '32 to 256 printable ASCII characters without blanks',
      default: undefined,
    }),
    ...readTimes(reader),
    readsRequireIdempotencyKey: reader.boolean('MATTING_READS_REQUIRE_IDEMPOTENCY_KEY', {
      default: true,
    }),
    ...readOutgoing(reader),
    /** Names of callers' URLs that the system's resolver resolves at once. */
    systemLookupsMax: systemLookupsMax(env),
    webhookScheduleMs: readWebhookSchedule(reader),
    ...readLimits(reader),
    onDemand: readOnDemand(reader),
    removebg: readRemovebg(reader),
    ...readAccountArea(reader, place.baseUrl),
    ...readMail(reader),
    sales: readSales(reader),
    ...readLogSettings(reader),
    /** Undefined: there are no traces. */
    traces: readTracingSettings(reader),
  };
}

/** What URLs of callers may reach. */
function readOutgoing(reader: EnvReader) {
  return {
    fetchPorts: reader.list('MATTING_FETCH_PORTS', 'ports, 1 to 65535', parsePort, {
      default: [80, 443],
    }),
    allowPrivateAddresses: reader.boolean('MATTING_ALLOW_PRIVATE_ADDRESSES', { default: false }),
    allowHttpCallbacks: reader.boolean('MATTING_ALLOW_HTTP_CALLBACKS', { default: false }),
    /** CIDR blocks that they may reach though they are not public. */
    allowedNetworks: readNetworks(reader, 'MATTING_ALLOWED_NETWORKS'),
  };
}

function readNetworks(reader: EnvReader, variable: string) {
  const expected = 'networks such as 10.1.0.0/16 or fd00:1::/32';
  return reader.list(variable, expected, parseNetwork, { default: [] as readonly string[] });
}

/** Reads some. @throws ConfigError naming every variable that is not usable. */
function load<T>(env: Environment, read: (reader: EnvReader) => T): T {
  const reader = new EnvReader(env);
  const config = read(reader);
  reader.requireValid();
  return config;
}

/** @throws ConfigError */
export function loadDatabaseConfig(env: Environment = process.env) {
  return load(env, readDatabase);
}

/** @throws ConfigError */
export function loadStorageConfig(env: Environment, storageKinds: readonly StorageKind[]) {
  return load(env, reader => {
    const { dataDir } = readDatabase(reader);
    const { resultTtlMs } = readTimes(reader);
    return { ...readStorage(reader, dataDir, storageKinds), resultTtlMs };
  });
}

/** @throws ConfigError */
export function loadLinkConfig(env: Environment = process.env) {
  return load(env, reader => {
    const { baseUrl } = readPlace(reader);
    const { accountArea } = readAccountArea(reader, baseUrl);
    return { baseUrl, accountArea, mail: readMail(reader).mail };
  });
}

/** What a command that seals something needs. @throws ConfigError */
export function loadKeyConfig(env: Environment = process.env) {
  return load(env, reader => {
    const { databaseUrl, dataDir } = readDatabase(reader);
    return { secretsKey: readSecretsKey(reader, databaseUrl), dataDir };
  });
}

/** Where REST listens. */
function readPlace(reader: EnvReader) {
  const host = reader.string('MATTING_HOST', { default: LOOPBACK });
  const port = reader.port('MATTING_PORT', { default: 8080 });
  return { host, port, baseUrl: readBaseUrl(reader, host, port) };
}

/** The URL holds a password, so it is never logged; paths are absolute. */
function readDatabase(reader: EnvReader) {
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

/** Without a trailing slash; links are made of it, never of the Host header. */
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

function requireDistinctPorts(reader: EnvReader, config: Settings): void {
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
function warnOfHosts(reader: EnvReader, config: Settings): string[] {
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

// What nodes and control planes know each other by.

/** Short tokens can be guessed over the network; metadata cannot carry blanks or controls. */
const NODE_TOKEN = /^[\x21-\x7e]{16,256}$/;
const FORM = '16 to 256 printable ASCII characters without blanks';

function readNodeTokens(reader: EnvReader) {
  return {
    nodeToken: reader.string('MATTING_NODE_TOKEN', {
      pattern: NODE_TOKEN,
      expected: `${FORM}, the same on every node`,
    }),
    /** Another that nodes may bring, while the fleet's is changed. */
    nodeTokenAccepted: reader.string('MATTING_NODE_TOKEN_ACCEPTED', {
      pattern: NODE_TOKEN,
      expected: FORM,
      default: undefined,
    }),
  };
}

// The settings of the account area, and of the proxies in front of the public port.

/** The area is undefined where it is off. */
function readAccountArea(reader: EnvReader, baseUrl: string) {
  const isOn = reader.boolean('MATTING_ACCOUNT_AREA', { default: true });
  const settings = {
    /** False: its pages say that the base URL is none to sign in at. */
    canSignIn: isSignInUrl(baseUrl),
    oidc: readOidc(reader),
    /** Pictures of an account a day; 0: the playground is off. */
    playgroundImages: reader.integer('MATTING_PLAYGROUND_IMAGES', {
      min: 0,
      max: PLAYGROUND_IMAGES_MAX,
      default: PLAYGROUND_IMAGES_DEFAULT,
    }),
  };
  return {
    accountArea: isOn ? settings : undefined,
    /** Networks whose X-Forwarded-For is believed. */
    trustedProxies: readNetworks(reader, 'MATTING_TRUSTED_PROXIES'),
  };
}

/**
 * Where people can sign in: nobody between them and the service reads or changes what is sent, and
 * cookies have the whole host.
 */
function isSignInUrl(baseUrl: string): boolean {
  if (!URL.canParse(baseUrl)) return false;
  const { protocol, hostname, pathname } = new URL(baseUrl);
  const isSafe = protocol === 'https:' || isLoopback(hostname.replace(/^\[|\]$/g, ''));
  return isSafe && pathname === '/';
}

export function warnOfAccountArea({
  accountArea,
}: Pick<Settings, 'accountArea'>): string | undefined {
  if (accountArea?.canSignIn !== false) return undefined;
  return (
    'nobody can sign in at /account: MATTING_BASE_URL must be https, or http of this machine, ' +
    'without a path'
  );
}

// The identity provider that people may sign in by, and what its groups may do here.

/** What a group of the provider is here. */
export interface GroupGrant {
  readonly group: string;
  /** Name or id of an account. */
  readonly account: string;
  readonly role: Role;
}

const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/;

/** Undefined: people sign in by passwords alone. */
function readOidc(reader: EnvReader) {
  const issuer = reader.parsed(
    'MATTING_OIDC_ISSUER',
    'an https URL, such as https://id.shop.example (http only on this machine)',
    parseIssuer,
    { default: undefined },
  );
  const clientId = reader.string('MATTING_OIDC_CLIENT_ID', { lengthMax: 255, default: undefined });
  const settings = {
    /** Undefined: a public client, by PKCE alone. */
    clientSecret: reader.string('MATTING_OIDC_CLIENT_SECRET', { default: undefined }),
    /** What the button calls it. */
    name: reader.string('MATTING_OIDC_NAME', { lengthMax: 40, default: 'SSO' }),
    scopes: reader.list(
      'MATTING_OIDC_SCOPES',
      'scopes, openid among them',
      text => (SCOPE.test(text) ? text : undefined),
      { default: ['openid', 'email', 'profile'] },
    ),
    /** The claim that lists a person's groups. */
    groupsClaim: reader.string('MATTING_OIDC_GROUPS_CLAIM', { lengthMax: 64, default: 'groups' }),
    grants: reader.list(
      'MATTING_OIDC_GROUPS',
      'group=account:role, comma-separated, such as matting-owners=shop:owner',
      parseGrant,
      { default: [] as readonly GroupGrant[] },
    ),
  };
  if (issuer === undefined) return undefined;
  if (!settings.scopes.includes('openid')) {
    reader.problem('MATTING_OIDC_SCOPES', 'scopes, openid among them');
  }
  if (clientId === undefined) {
    reader.problem('MATTING_OIDC_CLIENT_ID', 'set where MATTING_OIDC_ISSUER is');
    return undefined;
  }
  return { issuer, clientId, ...settings };
}

function parseIssuer(text: string): string | undefined {
  if (!URL.canParse(text) || text.length > 255) return undefined;
  const { protocol, hostname, search, hash } = new URL(text);
  const isSafe = protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));
  return isSafe && search === '' && hash === '' ? text : undefined;
}

/** The account may have a colon in its name, and the group whatever it likes but `=`. */
function parseGrant(text: string): GroupGrant | undefined {
  const [, group, account, role = ''] = /^([^=]{1,255})=(.{1,64}):([a-z]+)$/.exec(text) ?? [];
  if (group === undefined || account === undefined || !isRole(role)) return undefined;
  return { group, account, role };
}

// The mail server that invitations and warnings go through, and how many an account sends.

function readMail(reader: EnvReader) {
  // Of an account a day, and events to its own address: portal/alerts/message-limits.ts.
  const accountMails = reader.integer('MATTING_ACCOUNT_MAILS', {
    min: 1,
    max: ACCOUNT_MAILS_MAX,
    default: ACCOUNT_MAILS_DEFAULT,
  });
  return { mail: readServer(reader), accountMails };
}

/** Undefined: no mail is sent. The URL holds a password, so it is never logged. */
function readServer(reader: EnvReader) {
  const smtpUrl = reader.url('MATTING_SMTP_URL', {
    schemes: ['smtp', 'smtps'],
    default: undefined,
  });
  const from = reader.parsed(
    'MATTING_MAIL_FROM',
    'a mail address, such as matting@shop.example',
    parseMail,
    { default: undefined },
  );
  if (smtpUrl === undefined) return undefined;
  if (from === undefined) {
    reader.problem('MATTING_MAIL_FROM', 'set where MATTING_SMTP_URL is');
    return undefined;
  }
  return { smtpUrl, from };
}

// The settings of sales: what is sold, and how its payments are told of.

const PRICE_LIST_NAMES = ['credit', 'image', 'none'] as const satisfies readonly ListOnSale[];
/** As callback_secret: text, or `whsec_` and Base64. */
const PAYMENT_SECRET = /^[\x21-\x7e]{24,128}$/;
/** Some lines: a bank account, what to write, whom to ask. */
const INSTRUCTIONS_LENGTH_MAX = 2000;

function readSales(reader: EnvReader) {
  return {
    /** Whose packages people of accounts can order; `none`: nothing is sold. */
    priceList: reader.oneOf('MATTING_PRICE_LIST', PRICE_LIST_NAMES, { default: 'credit' as const }),
    /** Signs notifications of payments; undefined: none are taken. */
    paymentSecret: reader.string('MATTING_PAYMENT_SECRET', {
      pattern: PAYMENT_SECRET,
      expected: '24 to 128 printable ASCII characters without blanks, or whsec_ and Base64',
      default: undefined,
    }),
    /** Words of the operator on every unpaid order: plain text, `\n` breaks a line. */
    paymentInstructions: reader.parsed(
      'MATTING_PAYMENT_INSTRUCTIONS',
      `text of at most ${INSTRUCTIONS_LENGTH_MAX} characters`,
      parseInstructions,
      { default: undefined },
    ),
  };
}

/** Environment files have no line breaks of their own. */
function parseInstructions(text: string): string | undefined {
  const lines = text.replaceAll('\\n', '\n');
  const isText = !/[^\P{Cc}\n\t]/u.test(lines) && lines.isWellFormed();
  return isText && [...lines].length <= INSTRUCTIONS_LENGTH_MAX ? lines : undefined;
}

// The settings of the remove.bg interface.

/** Its clients wait 20 s, and then ask again. */
const REMOVEBG_WAIT_MS = 18_000;

/** Undefined: it is off. */
function readRemovebg(reader: EnvReader) {
  const isOn = reader.boolean('MATTING_REMOVEBG_API', { default: true });
  const settings = {
    /** Of requests that name none. */
    defaultSize: reader.oneOf('MATTING_REMOVEBG_DEFAULT_SIZE', REMOVEBG_SIZES, {
      default: 'auto' as const,
    }),
    /** How long a request waits for its job. */
    waitMs: reader.integer('MATTING_REMOVEBG_WAIT_MS', {
      min: 1000,
      max: 120_000,
      default: REMOVEBG_WAIT_MS,
    }),
    /** Origins that pages may call it from; `*` is every one. */
    origins: reader.list(
      'MATTING_REMOVEBG_CORS',
      '* or origins such as https://shop.example, comma-separated',
      parseOrigin,
      { default: [] as readonly string[] },
    ),
  };
  return isOn ? settings : undefined;
}

/** As a browser sends it: scheme and host, a port where it is not the scheme's. */
function parseOrigin(text: string): string | undefined {
  if (text === '*') return text;
  const isOrigin = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  return isOrigin && new URL(text).origin === text ? text : undefined;
}

/** A key in a page is in the hands of everyone who opens it. */
function warnOfOrigins({ removebg }: Settings): string | undefined {
  if (removebg === undefined || removebg.origins.length === 0) return undefined;
  const from = removebg.origins.includes('*') ? 'every origin' : removebg.origins.join(', ');
  return `MATTING_REMOVEBG_CORS lets pages of ${from} call /v1.0: a key in a page can be read there`;
}

// The settings of a fleet that sleeps: nodes that come when there is work, and go when not.

/** Chosen by a day in simulated time (docs/performance.md, "A fleet that sleeps"). */
const WAIT_TARGET_S_DEFAULT = 60;
/** A first admission comes within an hour, or the job ends. */
const WAIT_TARGET_S_MAX = 3600;
const NODES_MAX_DEFAULT = 100;
/** Beyond it no control plane has been measured. */
const NODES_MAX_MAX = 10_000;

/** Set without MATTING_NODES_ON_DEMAND they would be ignored. */
const ITS_OWN = ['MATTING_QUEUE_WAIT_TARGET_S', 'MATTING_NODES_MIN', 'MATTING_NODES_MAX'] as const;

/** Undefined: nodes are expected to live, and submissions are refused while none does. */
function readOnDemand(reader: EnvReader) {
  const isOn = reader.boolean('MATTING_NODES_ON_DEMAND', { default: false });
  const waitTargetS = reader.integer('MATTING_QUEUE_WAIT_TARGET_S', {
    min: 1,
    max: WAIT_TARGET_S_MAX,
    default: WAIT_TARGET_S_DEFAULT,
  });
  const bounds = { min: 0, max: NODES_MAX_MAX };
  const nodesMin = reader.integer('MATTING_NODES_MIN', { ...bounds, default: 0 });
  const nodesMax = reader.integer('MATTING_NODES_MAX', {
    ...bounds,
    min: 1,
    default: Math.max(NODES_MAX_DEFAULT, nodesMin),
  });
  if (nodesMin > nodesMax) reader.problem('MATTING_NODES_MIN', 'at most MATTING_NODES_MAX');
  if (isOn) return { waitTargetMs: waitTargetS * 1000, nodesMin, nodesMax };
  for (const variable of ITS_OWN) {
    if (reader.has(variable))
      reader.problem(variable, 'set only with MATTING_NODES_ON_DEMAND=true');
  }
  return undefined;
}
