/**
 * The inference node's program. Only here does it handle signals and end the process.
 *
 * | exit code | when                                                              |
 * |-----------|-------------------------------------------------------------------|
 * | 0         | drained                                                           |
 * | 78        | the configuration is not valid: every bad variable is on stderr    |
 * | 1         | it cannot start, its engines keep dying, a child of it does not    |
 * |           | die, or a bug: the log says so                                     |
 */
import { CONFIG_EXIT_CODE, ConfigError } from '#program/env.ts';
import { letHeapGrow } from '#program/heap-growth.ts';
import { createLog } from '#program/log.ts';
import { SignalGate } from '#program/signal-gate.ts';
import { collectYoungBuffers } from '#program/young-buffers.ts';
import { createInferenceNode } from './compose.ts';
import { type Config, loadConfig } from './config.ts';

function requireConfig(): Config {
  try {
    return loadConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(CONFIG_EXIT_CODE);
  }
}

letHeapGrow();
collectYoungBuffers();
const config = requireConfig();
const log = createLog({
  level: config.logLevel,
  batchBytes: 0,
  base: { program: 'inference-node', nodeId: config.nodeId },
  traced: config.traces !== undefined,
  sampling: config.logSampling,
});
const node = createInferenceNode(config, log);
const hurry = new AbortController();
const gate = new SignalGate();
let exitCode = 0;
let ending: Promise<void> | undefined;

function end(): void {
  ending ??= node.drain(hurry.signal).then(() => process.exit(exitCode));
}

/** One line on stderr for the person or supervisor that started it, the whole error in the log. */
function fail(error: unknown): void {
  log.fatal({ err: error }, 'the node ends');
  if (exitCode === 0) {
    process.stderr.write(`inference node: ${error instanceof Error ? error.message : error}\n`);
  }
  exitCode = error instanceof ConfigError ? CONFIG_EXIT_CODE : 1;
  hurry.abort();
  end();
}

function onSignal(signal: NodeJS.Signals): void {
  const meaning = gate.read(performance.now());
  log.info({ signal, meaning }, 'signal');
  if (meaning === 'hurry') hurry.abort();
  if (meaning !== 'repeat') end();
}

// Before anything is loaded: it must be possible to stop a node that starts.
process.on('SIGTERM', onSignal);
process.on('SIGINT', onSignal);
process.on('disconnect', () => {
  log.info('the parent is gone');
  hurry.abort();
  end();
});
// After an unknown error the state is unknown: end, and let the supervisor start it again.
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

void node.failed.then(fail);
node.start().catch((error: unknown) => {
  // A node that is told to end while it starts has not failed.
  if (ending === undefined) fail(error);
});
