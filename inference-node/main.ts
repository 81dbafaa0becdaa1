/**
 * Only this file handles signals and ends the process.
 *
 * | exit code | when                                                              |
 * |-----------|-------------------------------------------------------------------|
 * | 0         | drained                                                           |
 * | 78        | a setting is wrong: every bad variable, or what cannot be used, is on stderr |
 * | 1         | it cannot start, its engines keep dying, a child of it does not    |
 * |           | die, or a bug: the log says so                                     |
 */
import { CONFIG_EXIT_CODE, ConfigError, startExitCode } from '@matting/program/config-error.ts';
import { collectYoungBuffers, letHeapGrow } from '@matting/program/heap.ts';
import { createLog } from '@matting/program/log.ts';
import { SignalGate } from '@matting/program/signal-gate.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { InferenceNode, type NodeParts } from '@matting/serving/node.ts';
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
});
const node = new InferenceNode({ settings: config, log, make });

/** Aborts a start under way. */
const starting = new AbortController();
const hurry = new AbortController();
const gate = new SignalGate();
let exitCode = 0;
let ending: Promise<void> | undefined;

/** Loads model-tools only if a file is missing: a prepared folder needs none of it. */
async function make(...order: Parameters<NodeParts['make']>): ReturnType<NodeParts['make']> {
  const [source, key, to] = order;
  const { makePrepared } = await import('@matting/model-tools/preparing/prepare.ts').catch(
    cause => {
      const { name } = to.manifest;
      const what = `${name} is not prepared for this machine, and model-tools cannot be loaded`;
      const how = `a start with them does it, or "matting models fetch ${name}" for a CPU`;
      throw new ModelError('prepare', `${what}: ${how}`, cause);
    },
  );
  return await makePrepared(source, key, to);
}

/** Ends the node, even during its start. Never rejects. */
function end(): void {
  if (ending !== undefined) return;
  starting.abort(new Error('the node was told to end while it started'));
  ending = node.drain(hurry.signal).then(() => process.exit(exitCode));
}

function fail(error: unknown, code = 1): void {
  log.fatal({ err: error }, 'the node ends');
  if (exitCode === 0) {
    process.stderr.write(`inference node: ${error instanceof Error ? error.message : error}\n`);
  }
  exitCode = code;
  hurry.abort();
  end();
}

function onSignal(signal: NodeJS.Signals): void {
  const meaning = gate.read(performance.now());
  log.info({ signal, meaning }, 'signal');
  if (meaning === 'hurry') hurry.abort();
  if (meaning !== 'repeat') end();
}

// Before anything is loaded, so that a starting node can be stopped.
process.on('SIGTERM', onSignal);
process.on('SIGINT', onSignal);
process.on('disconnect', () => {
  log.info('the parent is gone');
  hurry.abort();
  end();
});
// After an unknown error the state is unknown: let the supervisor start it again.
process.on('uncaughtException', error => fail(error));
process.on('unhandledRejection', error => fail(error));

void node.failed.then(error => fail(error));
for (const warning of config.warnings) log.warn(warning);
node.start(starting.signal).catch((error: unknown) => {
  // A node that is told to end during its start has not failed.
  if (ending === undefined) fail(error, startExitCode(error));
});
