/**
 * `matting doctor`: the checks of a control plane's start. Each has its own bound and runs even if
 * others fail. It changes nothing, except that the storage check writes and removes blobs.
 */

import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import { SECRETS_KEY_FILE } from '@matting/core/secrets/secrets-key.ts';
import { loadDatabaseConfig, loadStorageConfig } from '@matting/core/settings.ts';
import { DatabaseOpenError } from '@matting/database/connect.ts';
import { ConfigError } from '@matting/program/config-error.ts';
import { type Finding, reportOf, runCheck } from '@matting/program/doctor/findings.ts';
import {
  programFindings,
  requireReady,
  tlsFindings,
} from '@matting/program/doctor/program-findings.ts';
import { SecretsOut, secretsOfFiles } from '@matting/program/doctor/secrets.ts';
import type { Environment } from '@matting/program/env.ts';
import type { Command } from 'commander';
import { databaseFindings } from './database-findings.ts';
import { storageFindings } from './storage-findings.ts';

/** With fewer, the public port takes less than 4096 connections. */
const OPEN_FILES_MIN = 8192;
/** Made by the first start on SQLite, or by `make start`. */
const NODE_TOKEN_FILE = 'node-token';

async function examineControlPlane(given: Environment, packages: CliContext['packages']) {
  const database = orUndefined(() => loadDatabaseConfig(given));
  const env = database === undefined ? given : await withSupervisorsToken(given, database.dataDir);
  const program = programFindings(env, packages.loadConfig, OPEN_FILES_MIN);
  const findings: Finding[] = [...program.findings];
  const { config } = program;
  if (config !== undefined) findings.push(...(await tlsFindings(config.tls)));
  if (database !== undefined) {
    const url = database.databaseUrl;
    findings.push(...(await databaseFindings(url, packages.migrations, config)));
  }
  const storage = orUndefined(() => loadStorageConfig(env, packages.storageKinds));
  if (storage !== undefined) findings.push(...(await storageFindings(storage)));
  if (config !== undefined) {
    const advice = 'start it; its last line on standard error, and "not ready" in its log, say why';
    const ready = await runCheck({ subject: 'control plane', advice }, (_, warn) =>
      requireReady(config.host, config.port, warn),
    );
    findings.push(...ready);
  }
  return findings;
}

/** Another finding reports errors of the variables. */
function orUndefined<T>(load: () => T): T | undefined {
  try {
    return load();
  } catch (error) {
    if (error instanceof ConfigError || error instanceof DatabaseOpenError) return undefined;
    throw error;
  }
}

/** Adds the token from the data directory, as the supervisor of `make start` does. */
async function withSupervisorsToken(env: Environment, dataDir: string): Promise<Environment> {
  if (env.MATTING_NODE_TOKEN || env.MATTING_NODE_TOKEN_FILE) return env;
  const token = await textOf(path.join(dataDir, NODE_TOKEN_FILE));
  return token === undefined ? env : { ...env, MATTING_NODE_TOKEN: token };
}

/** So that the output can leave them out. */
async function secretsInFiles(env: Environment): Promise<string[]> {
  const dataDir = env.MATTING_DATA_DIR || 'data';
  const files = [SECRETS_KEY_FILE, NODE_TOKEN_FILE].map(name => textOf(path.join(dataDir, name)));
  const own = (await Promise.all(files)).filter(text => text !== undefined);
  return [...own, ...(await secretsOfFiles(env))];
}

async function textOf(file: string): Promise<string | undefined> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(error.code ?? '')) return undefined;
    throw error;
  });
  return text?.trim() || undefined;
}

type DoctorOptions = { readonly strict?: boolean };

export function addDoctorCommand(program: Command, context: CliContext): void {
  program
    .command('doctor')
    .description(
      'make the checks of this control plane’s start; exit 1 on a failure (--node: of a node)',
    )
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 on warnings too')
    .action((options: DoctorOptions) => examine(context, options));
}

async function examine(context: CliContext, options: DoctorOptions): Promise<void> {
  const { environment } = context;
  const findings = await examineControlPlane(environment, context.packages);
  const secretsOut = new SecretsOut(environment, await secretsInFiles(environment));
  const { text, fault } = reportOf(findings, { ...options, json: context.json });
  context.print(secretsOut.of(text));
  if (fault !== undefined) throw new CommandError(fault);
}
