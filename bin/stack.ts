/**
 * The whole service on one machine: a control plane on SQLite and a node for each offered model, as
 * child processes that share only addresses and a token.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import { access, link, readFile, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { createServer } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { makeDirectory } from '@matting/program/files.ts';
import { findFreePorts } from '@matting/program/ports/free-ports.ts';
import { PORTS } from '@matting/program/shared-settings.ts';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import { endOf, killWithin, withinMs } from './child-end.ts';
import { type Ports, ROOT, type SupervisorConfig } from './config.ts';
import { mayUseGpu } from './gpu-hint.ts';
import { controlPlaneEnv, LOOPBACK, nodeName, Programs } from './stack-programs.ts';
import type { ProgramExit } from './supervised-program.ts';

const CONTROL_PLANE_CLI = path.join(ROOT, 'control-plane/cli.ts');
export const NODE_CLI = path.join(ROOT, 'inference-node/cli.ts');

/** A first start on a CPU takes seconds. */
const READY_TIMEOUT_MS = 300_000;
/** A GPU's engines open one after another, up to 5 min each. */
const READY_TIMEOUT_GPU_MS = 1_800_000;
const READY_POLL_MS = 50;
const ANSWER_TIMEOUT_MS = 5000;
/** In the data directory. */
export const NODE_TOKEN_FILE = 'node-token';
/** As in MATTING_NODE_TOKEN. */
const TOKEN = /^[\x21-\x7e]{16,256}$/;
const CLI_OUTPUT_CHARACTERS_MAX = 64 * 1024;
/** Far more than a command with a few rows needs. */
const CLI_TIMEOUT_MS = 120_000;

/** Runs while the programs start. */
export interface StackSetup {
  /** Fetches the models. The nodes start afterwards. */
  readonly models: (signal: AbortSignal) => Promise<void>;
  /** Created at the first start of a data directory. */
  readonly account: {
    readonly name: string;
    readonly credits: number;
    /** Email of the owner, for a sign-in link. */
    readonly owner?: string;
  };
  /** Called once the account exists, even if the start fails later. */
  readonly onAccount: (account: Bootstrap) => void;
  /** Shows a line to the user. */
  readonly say: (line: string) => void;
}

export interface Stack {
  /** Without a trailing slash. */
  readonly baseUrl: string;
  /** For this machine, without the proxy in front. */
  readonly localUrl: string;
  readonly logDir: string;
  /** Finishes running jobs, then ends all programs. Idempotent. */
  stop(): Promise<void>;
  /** Shortens a running `stop`. */
  hurry(): Promise<void>;
}

export interface Bootstrap {
  readonly created: boolean;
  readonly apiKey: string | undefined;
  /** Signs the owner in, once. undefined: not requested, or sign-in is off. */
  readonly signInLink: string | undefined;
}

/**
 * Resolves when a photo can be sent. Models are fetched while the control plane loads, and the
 * account is created while engines warm up. A failure leaves nothing running.
 * @throws CommandError
 */
export async function startStack(
  config: SupervisorConfig,
  setup: StackSetup,
  signal: AbortSignal,
): Promise<Stack> {
  await requireDirectory(config.dataDir, 'MATTING_DATA_DIR');
  await requireFreePorts(config);
  const logDir = path.join(config.dataDir, 'logs');
  await requireDirectory(logDir, 'MATTING_DATA_DIR');
  const programs = new Programs({ config, tokens: await tokensOf(config), logDir, say: setup.say });
  const localUrl = `http://${urlHost(config.host)}:${config.ports.http}`;
  const over = new AbortController();
  const starting = AbortSignal.any([signal, over.signal]);
  const nodesReady = async () => {
    await setup.models(starting);
    const readyMaxMs = await nodeReadyMaxMs(config);
    const exits: Promise<never>[] = [];
    // Sequential, because engines warm up with all cores.
    for (const place of config.nodes) {
      // A failure meanwhile has ended the start.
      starting.throwIfAborted();
      const exit = programs.startNode(place);
      exits.push(exit.then(ended => failedStart(nodeName(place), ended, logDir)));
      const nodeUrl = `http://${LOOPBACK}:${place.httpPort}/readyz`;
      await Promise.race([untilOk(nodeUrl, starting, readyMaxMs), ...exits]);
    }
    // With the exits, because nobody restarts a program before `keepUp`.
    await Promise.race([untilOk(`${localUrl}/readyz`, starting), ...exits]);
  };
  let bootstrap: Promise<void> | undefined;
  const accountMade = async () => {
    await untilOk(`${localUrl}/livez`, starting);
    bootstrap = bootstrapAccount(config, setup.account).then(setup.onAccount);
    await bootstrap;
  };
  try {
    const exit = programs.startControlPlane();
    await Promise.race([
      Promise.all([accountMade(), nodesReady()]),
      exit.then(ended => failedStart('control plane', ended, logDir)),
    ]);
    programs.keepUp();
    const { stop, hurry } = programs;
    return { baseUrl: config.baseUrl ?? localUrl, localUrl, logDir, stop, hurry };
  } catch (error) {
    over.abort();
    // The caller gets the start's own error.
    const accountSettled = bootstrap?.catch(() => undefined);
    await Promise.all([programs.hurry(), programs.stop(), accountSettled]);
    throw error;
  }
}

/** Creates the account at the first start only, and a link at each. */
async function bootstrapAccount(
  config: SupervisorConfig,
  { name, credits, owner }: StackSetup['account'],
): Promise<Bootstrap> {
  const args = ['bootstrap', '--account', name, '--credits', String(credits), '--json'];
  if (owner !== undefined) args.push('--owner', owner);
  const output = await runCli(CONTROL_PLANE_CLI, args, controlPlaneEnv(config));
  const made = JSON.parse(output) as { created: boolean; api_key?: string; sign_in_link?: string };
  return { created: made.created, apiKey: made.api_key, signInLink: made.sign_in_link };
}

export async function findStackPorts(): Promise<Ports> {
  const [http, registry, metrics, node, nodeHttp] = await findFreePorts(5);
  return { http, registry, metrics, node, nodeHttp };
}

/** The host by which this machine reaches a server bound to `host`. */
function urlHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return LOOPBACK;
  return host.includes(':') ? `[${host}]` : host;
}

/** Longest start of a node. A failed one exits by itself. */
export async function nodeReadyMaxMs(config: SupervisorConfig): Promise<number> {
  return (await mayUseGpu(config)) ? READY_TIMEOUT_GPU_MS : READY_TIMEOUT_MS;
}

/** Resolves when `url` answers 200. @throws CommandError */
async function untilOk(
  url: string,
  signal: AbortSignal,
  maxMs: number = READY_TIMEOUT_MS,
): Promise<void> {
  const deadline = Date.now() + maxMs;
  while (Date.now() < deadline) {
    signal.throwIfAborted();
    if (await answersOk(url, signal)) return;
    await delay(READY_POLL_MS, undefined, { signal });
  }
  throw new CommandError(`the service was not ready within ${maxMs / 1000} s; see its logs`);
}

/** Uses node:http: fetch would load a library while everything else needs the cores. */
function answersOk(url: string, signal: AbortSignal): Promise<boolean> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]);
  return new Promise(resolve => {
    const request = get(url, { agent: false, signal: within }, answer => {
      answer.resume();
      resolve(answer.statusCode === 200);
    });
    // Not listening yet. The programs' exits end the wait if they never will.
    request.once('error', () => resolve(false));
  });
}

function failedStart(name: string, exit: ProgramExit, logDir: string): never {
  const words = exit.lastWords.trim();
  const how = exit.signal ?? `exit code ${exit.code}`;
  throw new CommandError(
    words === '' ? `the ${name} failed to start (${how}); see ${logDir}` : words,
    exit.code === null || exit.code === 0 ? 1 : exit.code,
  );
}

/** Creates it if missing. A directory of models may be read-only. */
export async function requireDirectory(
  directory: string,
  variable: string,
  rights = constants.R_OK | constants.W_OK | constants.X_OK,
): Promise<void> {
  try {
    makeDirectory(directory, 0o700);
    await access(directory, rights);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new CommandError(
      `cannot use the directory ${directory} (${code}); make it writable or set ${variable}`,
    );
  }
}

async function requireFreePorts(config: SupervisorConfig): Promise<void> {
  const further = config.nodes.slice(1).flatMap(({ port, httpPort }) => [port, httpPort]);
  for (const [name, port] of [
    ...(Object.entries(config.ports) as [keyof Ports, number][]),
    ...further.map(port => ['nodeHttp', port] as const),
  ]) {
    const host = name === 'http' ? config.host : LOOPBACK;
    const code = await listenError(host, port);
    if (code === undefined) continue;
    const variable = PORTS[name].variable;
    const why =
      code === 'EADDRINUSE'
        ? `port ${port} is in use; stop the program on it, or set ${variable} to a free port`
        : `cannot listen on ${host}:${port} (${code}); set ${variable} or MATTING_HOST`;
    throw new CommandError(why);
  }
}

function listenError(host: string, port: number): Promise<string | undefined> {
  return new Promise(resolve => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown error'));
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
}

async function tokensOf({ nodeToken, env, dataDir }: SupervisorConfig) {
  // The programs read and follow the file.
  if (env.MATTING_NODE_TOKEN_FILE) return {};
  return { MATTING_NODE_TOKEN: nodeToken ?? (await readOrMakeToken(dataDir)) };
}

/**
 * Stores the token, so that a node started by hand can use it. The file appears atomically: two
 * simultaneous starts get the same token, and a full disk leaves none.
 * @throws CommandError
 */
async function readOrMakeToken(dataDir: string): Promise<string> {
  const file = path.join(dataDir, NODE_TOKEN_FILE);
  const temporary = `${file}.${process.pid}`;
  try {
    if (!existsSync(file)) {
      await writeFile(temporary, randomBytes(32).toString('base64url'), { mode: 0o600 });
      // A link, not a rename, so that the first writer wins.
      await link(temporary, file).catch(unlessThere);
    }
    const token = (await readFile(file, 'utf8')).trim();
    if (TOKEN.test(token)) return token;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new CommandError(
      `cannot read or create ${file} (${code}); check its permissions and the disk`,
    );
  } finally {
    await rm(temporary, { force: true });
  }
  throw new CommandError(`${file} has no token; remove it, and the next start makes a new one`);
}

function unlessThere(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}

/** Returns the CLI's standard output. @throws CommandError */
async function runCli(
  main: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    // Ctrl-C is for the supervisor. A running command finishes and reports what it created.
    detached: true,
  });
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(-CLI_OUTPUT_CHARACTERS_MAX);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-CLI_OUTPUT_CHARACTERS_MAX);
  });
  const end = endOf(child);
  if (!(await withinMs(CLI_TIMEOUT_MS, end))) {
    const gone = await killWithin(child, end);
    const left = gone ? '' : `; process ${child.pid} does not end after SIGKILL`;
    throw new CommandError(`${args[0]} did not end within ${CLI_TIMEOUT_MS / 1000} s${left}`);
  }
  const { code } = await end;
  if (code !== 0) throw new CommandError(errors.trim() || `${args[0]} failed (exit code ${code})`);
  return output;
}
