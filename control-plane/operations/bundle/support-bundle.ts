/**
 * `matting support-bundle`: what a maintainer would ask for, in one ZIP file. Everything in it comes
 * by a list of what may: variables, fields of log lines, counters, columns of jobs. Texts are
 * scrubbed besides, and at the end no secret of the environment is in any file (SecretsOut). A part
 * that cannot be had is a line that says why.
 */
import { open, stat, writeFile } from 'node:fs/promises';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import path from 'node:path';
import type { CliPackages, LookedAtConfig } from '@matting/core/cli/context.ts';
import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import { modeOf } from '@matting/core/jobs/job.ts';
import { seenMembers } from '@matting/core/nodes/node-state.ts';
import type { NodeMember } from '@matting/core/nodes/node-store.ts';
import { JOB_RETENTION_DAYS_DEFAULT } from '@matting/core/retention/retention.ts';
import { loadDatabaseConfig } from '@matting/core/settings.ts';
import { createStores, type StoresWithoutEnds } from '@matting/core/stores.ts';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { schemaState } from '@matting/database/migrate.ts';
import { readStatistics } from '@matting/database/probe.ts';
import { askHttp, baseOf } from '@matting/program/doctor/ask.ts';
import { type Finding, jsonOf, reasonOf } from '@matting/program/doctor/findings.ts';
import { SecretsOut } from '@matting/program/doctor/secrets.ts';
import type { Environment } from '@matting/program/env.ts';
import { MATTING_VARIABLES, unknownVariables } from '@matting/program/env-names.ts';
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { dependencyVersions, VERSION } from '@matting/program/version.ts';
import type { Command } from 'commander';
import { zipSync } from 'fflate';
import { secretsInFiles, withSupervisorsToken } from '../doctor/configuration-findings.ts';
import { missingFile } from '../doctor/database-findings.ts';
import { examineControlPlane } from '../doctor/doctor.ts';

/** Of the end of each file. */
export const LOG_BYTES_MAX = 5 * 1024 * 1024;
const FIELD = /^[A-Za-z][A-Za-z0-9_]{0,40}$/;
/** As `timings` and `limits` are; deeper than errors with their causes nothing is. */
const DEPTH_MAX = 3;

const TEXT_FIELDS: ReadonlySet<string> = new Set([
  'time',
  'msg',
  'program',
  'replicaId',
  'node',
  'version',
  'jobId',
  'nodeId',
  'reqId',
  'accountId',
  'mailId',
  'trace_id',
  'span_id',
  'route',
  'method',
  'code',
  'outcome',
  'state',
  'cause',
  'step',
  'signal',
  'meaning',
  'kind',
  'mode',
  'provider',
  'model',
  'plan',
  'selected',
  'precision',
  'engine',
  'stage',
  'command',
  'reason',
  'message',
  'type',
  'name',
  'stack',
  'syscall',
  'errno',
]);
const OBJECT_FIELDS: ReadonlySet<string> = new Set(['err', 'timings', 'cause', 'queue', 'nodes']);
/** 32 and 16 hexadecimal digits: nothing else is let through under these names. */
const TRACE = /^(?:[0-9a-f]{32}|[0-9a-f]{16})$/;

interface BundledLog {
  readonly lines: readonly string[];
  /** No JSON, as a shell's or a crash's words: they may hold anything. */
  readonly leftOut: number;
}

/**
 * A log's lines: numbers and truth values of any field, texts of TEXT_FIELDS alone, scrubbed.
 * Rejects with the system's error where the file cannot be read, and where it is no file.
 */
export async function readLog(file: string): Promise<BundledLog> {
  // Before it is opened: that waits for whoever writes into a pipe.
  if (!(await stat(file)).isFile()) {
    throw new Error('not a file; write the lines into a file first (journalctl -o cat > FILE)');
  }
  await using handle = await open(file, 'r');
  const { size } = await handle.stat();
  const start = Math.max(0, size - LOG_BYTES_MAX);
  const bytes = Buffer.alloc(Math.min(size, LOG_BYTES_MAX));
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, start);
  const lines = bytes.toString('utf8', 0, bytesRead).split('\n');
  if (start > 0) lines.shift();
  return bundled(lines.filter(line => line !== ''));
}

function bundled(lines: readonly string[]): BundledLog {
  const kept = lines.map(lineOf).filter(line => line !== undefined);
  return { lines: kept, leftOut: lines.length - kept.length };
}

function lineOf(line: string): string | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || !('level' in value)) return undefined;
  return JSON.stringify(shown(value as Record<string, unknown>, 1));
}

function shown(fields: Readonly<Record<string, unknown>>, depth: number): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (!FIELD.test(name)) continue;
    const seen = keptOf(name, value, depth);
    if (seen !== undefined) kept[name] = seen;
  }
  return kept;
}

function keptOf(name: string, value: unknown, depth: number): unknown {
  if (typeof value === 'number' || typeof value === 'boolean') return value;
  if (typeof value === 'string') {
    if (!TEXT_FIELDS.has(name)) return undefined;
    if (/^(trace|span)_id$/.test(name)) return TRACE.test(value) ? value : undefined;
    return scrubbed(value);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  if (!OBJECT_FIELDS.has(name) || depth >= DEPTH_MAX) return undefined;
  return shown(value as Record<string, unknown>, depth + 1);
}

const SET = 'set';
/** Digits, true, false: no secret looks so. */
const PLAIN = /^(?:-?\d{1,12}(?:\.\d{1,6})?|true|false)$/i;

const WORDS: Readonly<Record<string, RegExp>> = {
  MATTING_COMMERCIAL_USE: /^(weights|strict)$/,
  MATTING_ENGINE_GOAL: /^(latency|throughput)$/,
  MATTING_EXECUTION_PROVIDER: /^(auto|cuda|tensorrt|webgpu|cpu)$/,
  MATTING_LOG_LEVEL: /^(trace|debug|info|warn|error|fatal|silent)$/,
  MATTING_MODEL: /^(isnet|modnet|u2netp)$/,
  MATTING_PRECISION: /^(auto|int8|fp32|fp16)$/,
  MATTING_PRICE_LIST: /^(credit|image|none)$/,
  MATTING_QUALITY: /^(fast|standard|best|permissive)$/,
  MATTING_REMOVEBG_DEFAULT_SIZE: /^(auto|preview|medium|hd|full|50mp)$/,
  MATTING_RESULT_DOWNLOADS: /^(stream|redirect)$/,
};
/** Numbers and truth values of these are shown. */
const PLAIN_NAMES =
  /_(MS|S|PORT|MAX|MIN|DAYS|DEMAND|ENGINES|THREADS|WORKERS|IMAGES|REFINEMENT|ESTIMATION|API|AREA|STORAGE|KEY|ADDRESSES|CALLBACKS|MINUTE|SIZE)$/;
const NEVER = /(SECRETS?|OPERATOR|API)_KEY(_PREVIOUS)?$|TOKEN|SECRET|PASSWORD/;
const URLS = /_(URL|ISSUER)$/;
const HOSTS = /_HOST$/;
/** Of others that change what the programs do: names alone. */
const OTHERS = /^(AWS|OTEL|NODE|UV|CUDA|NVIDIA|MALLOC|LD)_|^(HTTPS?|NO)_PROXY$|^TZ$/i;
const SCHEME = /^([a-z][a-z0-9+]{1,15}):/i;
const PARAMETER = /^[a-z][a-z-]{0,30}$/;

/**
 * Of variables on the list the value where it has the form of one, of every other only that it is
 * set. What is new is left out until somebody lists it.
 */
export function shownConfiguration(env: Environment) {
  const shown: Record<string, string> = {};
  for (const name of MATTING_VARIABLES) {
    const value = env[name];
    if (value !== undefined && value !== '') shown[name] = shownValue(name, value);
  }
  const others = Object.keys(env).filter(name => OTHERS.test(name));
  const unknown = unknownVariables(env).map(({ variable }) => variable);
  return { variables: shown, unknown, others: others.sort() };
}

function shownValue(name: string, value: string): string {
  if (NEVER.test(name) && name !== 'MATTING_READS_REQUIRE_IDEMPOTENCY_KEY') return SET;
  const words = WORDS[name];
  if (words !== undefined) return words.test(value) ? value : SET;
  if (URLS.test(name)) return urlKind(value);
  if (HOSTS.test(name)) return hostKind(value);
  return PLAIN_NAMES.test(name) && PLAIN.test(value) ? value : SET;
}

function urlKind(value: string): string {
  const scheme = SCHEME.exec(value)?.[1];
  if (scheme === undefined) return SET;
  if (!URL.canParse(value)) return `${scheme}:`;
  const parameters = [...new URL(value).searchParams.keys()].filter(key => PARAMETER.test(key));
  return `${scheme}:${parameters.length === 0 ? '' : ` with ${parameters.join(', ')}`}`;
}

function hostKind(value: string): string {
  if (isLoopback(value)) return 'this machine';
  return value === '0.0.0.0' || value === '::' ? 'every interface' : 'one address';
}

/** Jobs that failed in DAYS; open jobs and failed notifications of any age. */
const LISTED_MAX = 200;
const DAYS = 7;
const DAY_MS = 86_400_000;
const NODES_MAX = 16;
const LOGS_MAX = 10;
/** Names as the programs give them. */
const METRIC = /^(?:# (?:HELP|TYPE) )?(?:matting|nodejs|process)_/;

interface BundleOptions {
  readonly env: Environment;
  readonly packages: CliPackages;
  readonly logs: readonly string[];
  readonly secretsOut: SecretsOut;
}

/** Names in the archive and texts. */
type BundleFiles = Map<string, string>;

/** Never rejects because of what is broken: that is what it is for. */
async function collectBundle({
  env,
  packages,
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
    json(jsonOf(shownFindings(await examineControlPlane(env, packages)))),
  );
  await add('metrics-control-plane.txt', () => controlPlaneMetrics(env, packages));
  await addDatabase(add, env, packages);
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
async function writeBundle(file: string, files: BundleFiles): Promise<number> {
  const folder = `matting-support-${new Date().toISOString().slice(0, 10)}`;
  const entries = [...files].map(
    ([name, text]) => [`${folder}/${name}`, Buffer.from(text)] as const,
  );
  const archive = zipSync(Object.fromEntries(entries), { level: 9 });
  await writeFile(file, archive, { flag: 'wx', mode: 0o600 });
  return archive.length;
}

/** What the doctor tells its operator, without the addresses of machines. */
function shownFindings(findings: readonly Finding[]): Finding[] {
  return findings.map(({ subject, status, found, advice }) => ({
    subject: scrubbed(subject),
    status,
    found: scrubbedOfPlaces(found),
    ...(advice === undefined ? {} : { advice: scrubbedOfPlaces(advice) }),
  }));
}

type Add = (name: string, make: () => Promise<string> | string) => Promise<void>;

async function addDatabase(add: Add, env: Environment, packages: CliPackages): Promise<void> {
  let database: Database | undefined;
  await add('database.json', async () => {
    const log = { info: () => undefined, warn: () => undefined };
    const { databaseUrl } = loadDatabaseConfig(env);
    if ((await missingFile(databaseUrl)) !== undefined) throw new Error('there is no file');
    database = await openDatabase(databaseUrl, { log });
    const { name } = database.engine;
    const state = await schemaState(database, packages.migrations);
    return json({ engine: name, ...state, ...(await readStatistics(database)) });
  });
  if (database === undefined) return;
  try {
    const stores = createStores(database);
    await add('jobs-failed.json', async () => json(await jobsOf(stores, ['failed'])));
    await add('jobs-open.json', async () => json(await jobsOf(stores, OPEN)));
    await add('notifications-failed.json', async () => json(await notificationsOf(stores)));
    await add('work.json', async () =>
      json(await workOf(stores, await retentionMsOf(env, packages))),
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
    last_failure: row.lastFailure,
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

async function addNodes(add: Add, { nodes, sightings }: StoresWithoutEnds): Promise<void> {
  let members: readonly NodeMember[] = [];
  await add('nodes.json', async () => {
    members = await nodes.listAll();
    return json(
      seenMembers(members, await sightings.list()).map(({ member, state, cause }) => ({
        node_id: scrubbed(member.nodeId),
        state,
        cause: cause && scrubbed(cause),
        version: member.version,
        draining: member.draining,
        registered_at: member.registeredAtMs,
        heartbeat_at: member.heartbeatAtMs,
      })),
    );
  });
  const asked = members.filter(({ live, httpAddress }) => live && httpAddress !== '');
  for (const [index, { httpAddress }] of asked.slice(0, NODES_MAX).entries()) {
    await add(`metrics-node-${index + 1}.txt`, () => metricsOf(`http://${httpAddress}/metrics`));
  }
}

async function configOf(env: Environment, { loadConfig }: CliPackages): Promise<LookedAtConfig> {
  const { dataDir } = loadDatabaseConfig(env);
  return loadConfig(await withSupervisorsToken(env, dataDir));
}

async function retentionMsOf(env: Environment, packages: CliPackages): Promise<number> {
  const config = await configOf(env, packages).catch(() => undefined);
  return config?.jobRetentionMs ?? JOB_RETENTION_DAYS_DEFAULT * DAY_MS;
}

async function controlPlaneMetrics(env: Environment, packages: CliPackages): Promise<string> {
  const { metricsHost, metricsPort } = await configOf(env, packages);
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
    matting: VERSION,
    runtime: { node, v8, openssl, uv, sqlite },
    dependencies: dependencyVersions(),
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

const README = `What matting support-bundle gathered; docs/operate.md explains it.

Left out by lists of what may be in: values of variables but numbers, truth values and fixed words;
URLs, mail and IP addresses, names of accounts and of people; pictures; every field of a log line
that is no number and not on the list. What may be left of yours: names of nodes, paths of files,
and names of machines where an error has them in its words.
Look through it before you send it: it is text.
`;

/* `support-bundle`: what a maintainer would ask for, without secrets. */

interface BundleCommand {
  readonly log?: readonly string[];
}

export function addSupportBundleCommand(program: Command, context: CliContext): void {
  program
    .command('support-bundle')
    .description('collect diagnostics into a ZIP file, without secrets')
    .argument('<file>', 'ZIP file to write; it must not exist')
    .option('--log <file...>', `log files of the programs, at most ${LOGS_MAX}`)
    .action((file: string, options: BundleCommand) => gather(context, file, options));
}

async function gather(context: CliContext, file: string, options: BundleCommand): Promise<void> {
  const { log: logs = [] } = options;
  if (logs.length > LOGS_MAX) throw new CommandError(`--log takes at most ${LOGS_MAX} files`);
  const env = context.environment;
  const secretsOut = new SecretsOut(env, await secretsInFiles(env));
  const files = await collectBundle({ env, packages: context.packages, logs, secretsOut });
  const place = path.resolve(file);
  const bytes = await writeBundle(place, files).catch((error: NodeJS.ErrnoException) => {
    throw new CommandError(`cannot write ${place} (${error.code ?? error.message})`);
  });
  const names = [...files.keys()];
  context.report({ file: place, bytes, files: names }, () => [
    `${place}: ${names.length} files, ${(bytes / 1000).toFixed(0)} KB`,
    'Review it before you send it.',
  ]);
}

const LEFT_OUT = '[left out]';
/** Long enough for a stack. */
const TEXT_LENGTH_MAX = 4000;
/** Files of the program itself, in stacks, stay. */
const URL_TEXT = /\b(?!file:\/\/\/)[a-z][a-z0-9+.-]{1,20}:\/\/[^\s"'<>)\]]+/gi;
// Bounds within, so that no text takes longer than its length allows.
const MAIL = /[^\s@<>"'(]{1,80}@[^\s@<>"')]{1,255}/g;
const API_KEY = /\b(mk|whsec)_[A-Za-z0-9_+/=-]+/g;
const SCRUB_SCHEME = /\b(Bearer|Basic)\s+\S+/gi;
/** name=value, "name": "value". */
const NAMED =
  /\b([\w-]{0,40}(?:passw|secret|token|authorization|api[-_]?key|signature|credential|cookie)[\w-]{0,40})(["']?\s{0,4}[:=]\s{0,4}["']?)[^\s"',;}]+/gi;
const LONG = /[A-Za-z0-9+/_=.~-]{24,}/g;
/** Names that people and machines give: UUIDs, hosts, files, folders; each part of one is short. */
const NAME = /^[a-z0-9]{0,24}(?:[._-]+[a-z0-9]{1,24})*$/;
/** Names in any case, without a digit, of words such as openFile or OPEN_FILE. */
const SCRUB_WORDS = /^[A-Za-z._-]+$/;
const WORD = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g;
/** On average; of letters made at random a word is three long. */
const WORD_LENGTH_MIN = 5;
/** Addresses of machines, with a port or without one; other texts between colons and dots, too. */
const IPV4 = /\b(\d{1,3}(?:\.\d{1,3}){3})(:\d{1,5})?\b/g;
const IPV6 =
  /(?<![\w:])\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,5}(?:%\w{1,15})?\]?(?::\d{1,5})?(?![\w:])/gi;
/** What a name that nobody knows was looked up as: of a caller's URL, perhaps. */
const LOOKED_UP = /\b(ENOTFOUND|EAI_[A-Z]{2,20})\s+[^\s,;]{1,255}/g;
const PLACE = /\b[a-z0-9](?:[a-z0-9._-]{0,253}[a-z0-9])?:\d{1,5}\b/gi;
const HOST = '[host]';
/** This machine, and every interface of one. */
const THIS_MACHINE = /^(?:127\.|0\.0\.0\.0|localhost:)/;
/** Hexadecimal digits of a hash, in one piece: no name of anything. */
const DIGITS = /^[0-9a-f]{16,}$/;

/**
 * Text from outside of this program's own words, such as a log's or an error's, without what could
 * be a secret, a URL or an address of a person or a machine, whether anybody knows it to be one or
 * not. Never longer than TEXT_LENGTH_MAX.
 */
export function scrubbed(text: string): string {
  const some = text.slice(0, TEXT_LENGTH_MAX).replaceAll(URL_TEXT, '[URL]');
  // Looked for only where one can be: it is the one that reads every letter many times.
  return (some.includes('@') ? some.replaceAll(MAIL, '[mail]') : some)
    .replaceAll(LOOKED_UP, (_, code: string) => `${code} ${HOST}`)
    .replaceAll(IPV4, (whole, host: string) => (THIS_MACHINE.test(host) ? whole : HOST))
    .replaceAll(IPV6, address => (isIpv6(address) ? HOST : address))
    .replaceAll(API_KEY, LEFT_OUT)
    .replaceAll(SCRUB_SCHEME, (_, scheme: string) => `${scheme} ${LEFT_OUT}`)
    .replaceAll(NAMED, (_, name: string, sign: string) => `${name}${sign}${LEFT_OUT}`)
    .replaceAll(LONG, long => (isName(long) ? long : LEFT_OUT));
}

/** The same of what a doctor found: there `name:12` is a machine, in a stack it is a line. */
export function scrubbedOfPlaces(text: string): string {
  const cut = (place: string) => (THIS_MACHINE.test(place) ? place : HOST);
  return scrubbed(text).replaceAll(PLACE, cut);
}

/** Whole or shortened, and not `::1`; a time of the day has no more than two colons. */
function isIpv6(text: string): boolean {
  const [, address = text] = /^\[(.*)\]/.exec(text) ?? [];
  if (/^::1?(?:$|:\d+$)/.test(address)) return false;
  return /[0-9a-f]/i.test(address) && (address.includes('::') || address.split(':').length > 7);
}

function isName(long: string): boolean {
  const parts = long.split('/');
  return parts.every(part => isOfWords(part) || (NAME.test(part) && !DIGITS.test(part)));
}

function isOfWords(part: string): boolean {
  const words = part.match(WORD)?.length ?? 0;
  return SCRUB_WORDS.test(part) && part.length >= words * WORD_LENGTH_MIN;
}
