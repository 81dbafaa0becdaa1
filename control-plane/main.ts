/**
 * | exit code | when                                                              |
 * |-----------|-------------------------------------------------------------------|
 * | 0         | drained                                                           |
 * | 78        | a setting is wrong or unusable; stderr names every bad variable   |
 * | 1         | it cannot start, or a bug; a line on stderr, the rest in the log  |
 */
import { readFile } from 'node:fs/promises';
import { loadConfig } from '@matting/core/config.ts';
import { createReplicaId, openCore } from '@matting/core/open-core.ts';
import { CONFIG_EXIT_CODE, ConfigError, startExitCode } from '@matting/program/config-error.ts';
import { collectYoungBuffers, letHeapGrow } from '@matting/program/heap.ts';
import { createLog } from '@matting/program/log.ts';
import { SignalGate } from '@matting/program/signal-gate.ts';
import { VERSION } from '@matting/program/version.ts';
import { growThreadPool, wholeEnvironment } from './config.ts';
import { PACKAGES } from './packages.ts';

/** Longest wait for the log before the process ends. */
const LOG_FLUSH_MAX_MS = 1000;
/** A write for each line costs 7 % of the time of reading a job. */
const LOG_BATCH_BYTES = 4096;

function requireConfig(): ReturnType<typeof loadConfig> {
  try {
    return loadConfig(wholeEnvironment(), PACKAGES);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(CONFIG_EXIT_CODE);
  }
}

letHeapGrow();
collectYoungBuffers();
growThreadPool();
const config = requireConfig();
const replicaId = createReplicaId();
const log = createLog({
  level: config.logLevel,
  batchBytes: LOG_BATCH_BYTES,
  base: { program: 'control-plane', replicaId },
  traced: config.traces !== undefined,
});
const hurry = new AbortController();
const gate = new SignalGate();
let opening: ReturnType<typeof openCore> | undefined;
let ending: Promise<void> | undefined;

function exit(code: number): void {
  // A blocked pipe must not keep the process alive.
  setTimeout(() => process.exit(code), LOG_FLUSH_MAX_MS).unref();
  log.flush(() => process.exit(code));
}

async function drain(): Promise<void> {
  // A process that is still starting finishes the start first.
  const opened = await opening?.catch(() => undefined);
  await opened?.drain(hurry.signal);
}

function end(code: number): void {
  ending ??= drain().then(
    () => exit(code),
    error => {
      log.fatal({ err: error }, 'the drain failed');
      exit(1);
    },
  );
}

function fail(error: unknown, code = 1): void {
  log.fatal({ err: error }, 'the control plane ends');
  process.stderr.write(`control plane: ${error instanceof Error ? error.message : error}\n`);
  hurry.abort();
  end(code);
}

function onSignal(signal: NodeJS.Signals): void {
  const meaning = gate.read(performance.now());
  log.info({ signal, meaning }, 'signal');
  if (meaning === 'hurry') hurry.abort();
  if (meaning !== 'repeat') end(0);
}

process.on('SIGTERM', onSignal);
process.on('SIGINT', onSignal);
process.on('disconnect', () => {
  hurry.abort();
  end(0);
});
// The state is unknown, so the process ends and its supervisor restarts it. No job is lost, since
// leases expire.
process.on('uncaughtException', error => fail(error));
process.on('unhandledRejection', error => fail(error));

async function openControlPlane() {
  const errorsPage = await readFile(new URL('../docs/errors.md', import.meta.url), 'utf8');
  const about = { version: VERSION, errorsPage };
  return await openCore(config, { log, replicaId, about });
}

opening = openControlPlane();
opening.catch((error: unknown) => {
  // A process that was stopped while it started has not failed.
  if (ending === undefined) fail(error, startExitCode(error));
});
