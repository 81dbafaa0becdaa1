/**
 * The whole service on one machine: a control plane on SQLite and a node for each offered model, as
 * child processes that share only addresses and a token.
 */
import path from 'node:path';
import { findFreePorts } from '@matting/program/ports/free-ports.ts';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import { type Bootstrap, bootstrapAccount, type FirstAccount } from './bootstrap.ts';
import type { Ports, SupervisorConfig } from './config.ts';
import { mayUseGpu } from './gpu-hint.ts';
import { nodeTokenEnv } from './node-token.ts';
import { READY_TIMEOUT_MS, untilOk } from './readiness.ts';
import { LOOPBACK, nodeName, Programs } from './stack-programs.ts';
import { requireDirectory, requireFreePorts } from './start-checks.ts';
import type { ProgramExit } from './supervised-program.ts';

/** A GPU's engines open one after another, up to 5 min each. */
const READY_TIMEOUT_GPU_MS = 1_800_000;

/** Runs while the programs start. */
export interface StackSetup {
  /** Fetches the models. The nodes start afterwards. */
  readonly models: (signal: AbortSignal) => Promise<void>;
  readonly account: FirstAccount;
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
  const programs = new Programs({
    config,
    tokens: await nodeTokenEnv(config),
    logDir,
    say: setup.say,
  });
  const localUrl = `http://${urlHost(config.host)}:${config.ports.http}`;
  const over = new AbortController();
  const starting = AbortSignal.any([signal, over.signal]);
  const nodesReady = async () => {
    await setup.models(starting);
    const readyMaxMs = await nodeReadyMaxMs(config);
    const exits: Promise<never>[] = [];
    // Sequential, because engines warm up with all cores.
    for (const node of config.nodes) {
      // A failure meanwhile has ended the start.
      starting.throwIfAborted();
      const exit = programs.startNode(node);
      exits.push(exit.then(ended => failedStart(nodeName(node), ended, logDir)));
      const nodeUrl = `http://${LOOPBACK}:${node.httpPort}/readyz`;
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

function failedStart(name: string, exit: ProgramExit, logDir: string): never {
  const words = exit.lastWords.trim();
  const how = exit.signal ?? `exit code ${exit.code}`;
  throw new CommandError(
    words === '' ? `the ${name} failed to start (${how}); see ${logDir}` : words,
    exit.code === null || exit.code === 0 ? 1 : exit.code,
  );
}
