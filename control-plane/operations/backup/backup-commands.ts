/** `backup`, `restore`. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Command } from 'commander';
import { type Finding, failure, ok, pageOf, summaryOf } from '#program/doctor/findings.ts';
import { type CliContext, CommandError } from '../../core/cli/context.ts';
import { SecretBox } from '../../core/secrets/secret-box.ts';
import { parseSecretsKey, readSecretsKey } from '../../core/secrets/secrets-key.ts';
import { type DatabaseConfig, loadDatabaseConfig, loadStorageConfig } from '../../core/settings.ts';
import type { BlobStore } from '../../core/storage/blob-store.ts';
import {
  absoluteStorage,
  openStorage,
  openStorages,
  openStorageToRead,
} from '../../core/storage/open-storage.ts';
import { createStores } from '../../core/stores.ts';
import { requireCurrentSchema } from '../../database/migrate.ts';
import { readManifest } from './backup-manifest.ts';
import { restoreBackup } from './restore-backup.ts';
import { restoredFindings } from './restored-findings.ts';
import { prepareDirectory, takeBackup } from './take-backup.ts';

/** In a backup's directory; every other place of a manifest is absolute. */
const BLOBS = 'blobs';

interface BackupOptions {
  readonly database: boolean;
  readonly blobs: boolean;
  readonly blobsTo?: string;
}

interface RestoreOptions {
  readonly check?: boolean;
  readonly blobs: boolean;
  readonly blobsFrom?: string;
  readonly sizesOnly?: boolean;
}

export function addBackupCommands(program: Command, context: CliContext): void {
  program
    .command('backup')
    .description('copy database and pictures into a directory, while the service works')
    .argument('<directory>', 'a new one for each backup')
    .option('--no-database', 'leave the database to the engine’s own means: docs/backup.md')
    .option('--no-blobs', 'leave the pictures out: links do not survive a restore')
    .option('--blobs-to <storage>', 'where pictures go: a directory, or s3://bucket/prefix')
    .action((directory: string, options: BackupOptions) => backup(context, directory, options));
  program
    .command('restore')
    .description('make a backup the service of this configuration, and prove it; or prove alone')
    .argument('[directory]', 'what "backup" made')
    .option('--check', 'restore nothing: prove ledger, links and pictures of what is there')
    .option('--no-blobs', 'restore the database alone')
    .option('--blobs-from <storage>', 'where the pictures are, if not in the directory')
    .option('--sizes-only', 'compare the sizes of pictures, and read none')
    .action((directory: string | undefined, options: RestoreOptions) =>
      restore(context, directory, options),
    );
}

async function backup(
  context: CliContext,
  directory: string,
  options: BackupOptions,
): Promise<void> {
  if (!options.database && !options.blobs) throw new CommandError('nothing is left to back up');
  if (!options.blobs && options.blobsTo !== undefined) {
    throw new CommandError('--blobs-to and --no-blobs exclude each other');
  }
  const place = path.resolve(directory);
  const { databaseUrl } = requireDatabase(context);
  await prepareDirectory(place);
  const signal = context.interruption();
  const taken = await context.withDatabase(async database => {
    await requireCurrentSchema(database, context.packages.migrations);
    return await takeBackup(place, {
      database,
      databaseUrl,
      withDatabase: options.database,
      blobs: options.blobs ? await openBackupBlobs(context, place, options.blobsTo) : undefined,
      searchPath: context.environment.PATH ?? '',
      onProgress: line => context.progress(`${line} ...`),
      signal,
    });
  });
  const { manifest, blobs } = taken;
  context.report({ directory: place, ...manifest, copied: blobs }, () => [
    `${place}: state of ${manifest.taken_at}`,
    ...(manifest.database === null
      ? []
      : [`database: ${manifest.database.file}, ${megabytes(manifest.database.bytes)}`]),
    ...(manifest.blobs === null
      ? []
      : [
          `pictures: ${blobs.copied} copied (${megabytes(blobs.copiedBytes)}), ` +
            `${blobs.alreadyThere} there already`,
        ]),
    ...(manifest.secrets_key_id === null ? [] : [keyLine(context, manifest.secrets_key_id)]),
  ]);
}

/** Opening a SQLite file that is not there would make it. */
function requireDatabase(context: CliContext): DatabaseConfig {
  const config = loadDatabaseConfig(context.environment);
  const file = /^sqlite:(.+)$/.exec(config.databaseUrl)?.[1];
  if (file === undefined || existsSync(file)) return config;
  throw new CommandError(`there is no database ${file}: MATTING_DATA_DIR, MATTING_DATABASE_URL`);
}

/** A restored service does not start without it, and it is not in the backup. */
function keyLine(context: CliContext, keyId: string): string {
  const { dataDir } = loadDatabaseConfig(context.environment);
  const given = (context.environment.MATTING_SECRETS_KEY ?? '') !== '';
  const where = given ? 'MATTING_SECRETS_KEY' : path.join(dataDir, 'secrets.key');
  return `keep ${where} (key ${keyId}) in another place: it is not in the backup`;
}

async function openBackupBlobs(context: CliContext, directory: string, blobsTo?: string) {
  const config = loadStorageConfig(context.environment, context.packages.storageKinds);
  const { spoolDir, storageKinds } = config;
  // Restored from another working directory it has to be the same place.
  const given =
    blobsTo === undefined ? undefined : absoluteStorage(blobsTo, context.packages.storageKinds);
  const place = given ?? pathToFileURL(path.join(directory, BLOBS)).href;
  // A disk that is not mounted would be made anew, and its pictures left out.
  const from = await openStorages(config, { spoolDir }, openStorageToRead);
  const to = await openStorage(place, { spoolDir, storageKinds, setting: '--blobs-to' });
  return { from, to, place: given ?? BLOBS };
}

async function restore(
  context: CliContext,
  directory: string | undefined,
  options: RestoreOptions,
): Promise<void> {
  if ((options.check === true) === (directory !== undefined)) {
    throw new CommandError('restore needs either a directory or --check');
  }
  if (directory === undefined) requireDatabase(context);
  else await restoreFrom(context, path.resolve(directory), options);
  const { spoolDir, ...storage } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  // A proof alone makes no directory that is missing.
  const open = directory === undefined ? openStorageToRead : openStorage;
  await checkRestored(context, options, await openStorages(storage, { spoolDir }, open));
}

async function restoreFrom(
  context: CliContext,
  directory: string,
  options: RestoreOptions,
): Promise<void> {
  const manifest = await readManifest(directory);
  await requireKey(context, manifest.secrets_key_id);
  // Restored before, by the engine's own means.
  const { databaseUrl } =
    manifest.database === null ? requireDatabase(context) : loadDatabaseConfig(context.environment);
  const { blobsFrom } = options;
  const given =
    blobsFrom === undefined
      ? manifest.blobs?.place
      : absoluteStorage(blobsFrom, context.packages.storageKinds);
  const wanted = options.blobs && given !== undefined;
  const summary = await restoreBackup(directory, {
    manifest,
    databaseUrl,
    searchPath: context.environment.PATH ?? '',
    log: context.log,
    packages: context.packages.migrations,
    blobs: wanted ? await openRestoreBlobs(context, directory, given) : undefined,
    onProgress: line => context.progress(`${line} ...`),
  });
  const { blobs, migrations } = summary;
  context.progress(`state of ${manifest.taken_at}`);
  if (migrations.length > 0) context.progress(`migrations run: ${migrations.join(', ')}`);
  if (blobs !== undefined) context.progress(`pictures: ${blobs.copied} copied`);
}

async function openRestoreBlobs(context: CliContext, directory: string, given: string) {
  const { storageUrl, spoolDir, storageKinds } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const place = given === BLOBS ? pathToFileURL(path.join(directory, BLOBS)).href : given;
  // Before anything is written: a disk that is not mounted is found now.
  const from = await openStorageToRead(place, { spoolDir, storageKinds, setting: '--blobs-from' });
  return { from, to: await openStorage(storageUrl, { spoolDir, storageKinds }) };
}

/** Before anything is written: a service with another key would not start on what was restored. */
async function requireKey(context: CliContext, keyId: string | null): Promise<void> {
  if (keyId === null) return;
  const { MATTING_SECRETS_KEY: text = '' } = context.environment;
  const { dataDir } = loadDatabaseConfig(context.environment);
  const key = text === '' ? await readSecretsKey(dataDir) : parseSecretsKey(text);
  if (key !== undefined && new SecretBox(key).keyId === keyId) return;
  throw new CommandError(
    `the backup needs the secrets key ${keyId}: set MATTING_SECRETS_KEY, or put its secrets.key ` +
      `into ${dataDir}; docs/backup.md says what to do where it is lost`,
  );
}

async function checkRestored(
  context: CliContext,
  options: RestoreOptions,
  blobs: BlobStore,
): Promise<void> {
  const findings: Finding[] = [];
  await context.withDatabase(async database => {
    await requireCurrentSchema(database, context.packages.migrations);
    const stores = createStores(database);
    findings.push(await clockFinding(stores));
    const { sizesOnly = false } = options;
    findings.push(...(await restoredFindings({ stores, blobs, sizesOnly })));
  });
  const summary = summaryOf(findings);
  const value = { ok: summary.failures === 0, summary, findings };
  context.report(value, () => pageOf(findings));
  if (summary.failures > 0) throw new CommandError('what is there is not whole');
}

/** Leases and links go by the clock of the database, which may be another server's now. */
async function clockFinding({ rateQuotas }: { rateQuotas: { nowMs(): Promise<number> } }) {
  const offMs = (await rateQuotas.nowMs()) - Date.now();
  const found = `the database's clock is ${Math.round(offMs / 1000)} s from this machine's`;
  if (Math.abs(offMs) <= 30_000) return ok('clocks', found);
  return failure('clocks', found, 'synchronise both: leases and links go by the database’s');
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
