import { openCurrentDatabase, openDatabase } from '@matting/database/connect.ts';
import type { Database, StoreLog } from '@matting/database/database.ts';
import type { MigrationSeries } from '@matting/database/migrate.ts';
import type { Environment } from '@matting/program/env.ts';
import type { StorageKind } from '@matting/storage/storage-kind.ts';
import type { Command } from 'commander';
import { CallbackSecrets, mailBody, SecretBox } from '../secrets/secret-box.ts';
import {
  loadOrCreateSecretsKey,
  readSecretsKey,
  requireSameSecretsKey,
} from '../secrets/secrets-key.ts';
import { type CoreSettings, loadDatabaseConfig, loadKeyConfig } from '../settings.ts';
import { createStores, type PackageSteps, type StoresWithoutEnds } from '../stores.ts';

export class CommandError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'CommandError';
  }
}

export interface CliOutput {
  out(text: string): void;
  err(text: string): void;
  interrupted?(): Promise<void>;
}

export interface CommandConfig extends CoreSettings {
  readonly warnings: readonly string[];
}

export type AddCommands = (program: Command, context: CliContext) => void;

interface CliPackages {
  /** Kinds of storage URL in addition to directories. */
  readonly storageKinds: readonly StorageKind[];
  readonly migrations: readonly MigrationSeries[];
  readonly steps: PackageSteps;
  /** Reads every variable, as a start does. @throws ConfigError */
  readonly loadConfig: (env: Environment) => CommandConfig;
}

export class CliContext {
  readonly #output: CliOutput;
  readonly environment: Environment;
  readonly packages: CliPackages;
  json = false;
  /** The command may create the database. Set before the command runs. */
  setsUp = false;

  constructor(output: CliOutput, environment: Environment, packages: CliPackages) {
    this.#output = output;
    this.environment = environment;
    this.packages = packages;
  }

  print(text: string): void {
    this.#output.out(`${text}\n`);
  }

  progress(text: string): void {
    if (!this.json) this.print(text);
  }

  warn(text: string): void {
    this.#output.err(`matting: ${text}\n`);
  }

  async untilInterrupted(): Promise<void> {
    await this.#output.interrupted?.();
  }

  interruption(): AbortSignal {
    const ending = new AbortController();
    void this.#output.interrupted?.().then(() => ending.abort());
    return ending.signal;
  }

  report(value: unknown, lines: () => string[]): void {
    if (this.json) this.print(JSON.stringify(value));
    else for (const line of lines()) this.print(line);
  }

  /** The database must exist and be current, unless the command may create it. */
  async withStores<T>(
    work: (stores: StoresWithoutEnds, database: Database) => Promise<T>,
  ): Promise<T> {
    const { databaseUrl } = loadDatabaseConfig(this.environment);
    const database = await openCurrentDatabase(databaseUrl, {
      log: this.log,
      migrations: this.setsUp ? 'run' : 'require',
      packages: this.packages.migrations,
    });
    return closing(database, () =>
      work(createStores(database, undefined, this.packages.steps), database),
    );
  }

  /** Does not check the tables. */
  async withDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
    const { databaseUrl } = loadDatabaseConfig(this.environment);
    const database = await openDatabase(databaseUrl, { log: this.log, create: this.setsUp });
    return closing(database, () => work(database));
  }

  /** Seals with the control planes' key. @throws ConfigError, CommandError, SecretsKeyError */
  async mailSealer({ secretsCanary }: StoresWithoutEnds) {
    const { secretsKey, dataDir } = loadKeyConfig(this.environment);
    const isFirst = (await secretsCanary.find()) === undefined;
    const kept = () => (isFirst ? loadOrCreateSecretsKey(dataDir) : readSecretsKey(dataDir));
    const key = secretsKey ?? (await kept());
    if (key === undefined) {
      throw new CommandError(`${dataDir} has no secrets key; set MATTING_SECRETS_KEY`);
    }
    await requireSameSecretsKey(secretsCanary, key);
    const secrets = new CallbackSecrets(new SecretBox(key));
    return (text: string, id: string) => secrets.sealText(text, mailBody(id));
  }

  get log(): StoreLog {
    const warn = (_: unknown, message?: string) => {
      if (message !== undefined) this.warn(message);
    };
    return { info: () => undefined, warn: warn as StoreLog['warn'] };
  }
}

async function closing<T>(database: Database, work: () => Promise<T>): Promise<T> {
  await using closed = new AsyncDisposableStack();
  closed.defer(() => database.close());
  return await work();
}

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const lengthOf = (cell = '') => cell.length;
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map(row => lengthOf(row[column]))),
  );
  return [head, ...rows].map(row =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
