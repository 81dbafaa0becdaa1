import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import { SecretBox } from '@matting/core/secrets/secret-box.ts';
import { parseSecretsKey, readSecretsKey } from '@matting/core/secrets/secrets-key.ts';
import { loadDatabaseConfig, loadStorageConfig } from '@matting/core/settings.ts';
import { createStores, type StoresWithoutEnds } from '@matting/core/stores.ts';
import { requireCurrentSchema } from '@matting/database/migrate.ts';
import {
  counted,
  type Finding,
  failure,
  jsonOf,
  ok,
  pageOf,
  warning,
} from '@matting/program/doctor/findings.ts';
import { FINAL_STATES, OPEN_STATES } from '@matting/queue/job.ts';
import { BlobNotFoundError, type BlobStore, hashOf } from '@matting/storage/blob-store.ts';
import {
  absoluteStorage,
  openStorage,
  openStorages,
  openStorageToRead,
} from '@matting/storage/open-storage.ts';
import type { Command } from 'commander';
import { prepareDirectory, readManifest, restoreBackup, takeBackup } from './backup.ts';

/** Relative to the backup's directory. Other paths in a manifest are absolute. */
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
    .description('back up the database and pictures of a running service')
    .argument('<directory>', 'directory for the backup; use a new one each time')
    .option('--no-database', 'leave out the database; see docs/backup.md')
    .option('--no-blobs', 'leave out the pictures; links stop working after a restore')
    .option('--blobs-to <storage>', 'place for the pictures: a directory or s3://bucket/prefix')
    .action((directory: string, options: BackupOptions) => backup(context, directory, options));
  program
    .command('restore')
    .description('restore a backup into the configured service and verify it')
    .argument('[directory]', 'directory of the backup')
    .option('--check', 'restore nothing; verify the ledger, links and pictures of the service')
    .option('--no-blobs', 'restore only the database')
    .option('--blobs-from <storage>', 'place of the pictures, if not in the directory')
    .option('--sizes-only', 'compare only the sizes of pictures')
    .action((directory: string | undefined, options: RestoreOptions) =>
      restore(context, directory, options),
    );
}

async function backup(context: CliContext, directory: string, options: BackupOptions) {
  if (!options.database && !options.blobs)
    throw new CommandError('--no-database and --no-blobs leave nothing to back up; remove one');
  if (!options.blobs && options.blobsTo !== undefined) {
    throw new CommandError('use either --blobs-to or --no-blobs');
  }
  const target = path.resolve(directory);
  const { databaseUrl } = loadDatabaseConfig(context.environment);
  const signal = context.interruption();
  const taken = await context.withDatabase(async database => {
    await requireCurrentSchema(database, context.packages.migrations);
    await prepareDirectory(target);
    return await takeBackup(target, {
      database,
      databaseUrl,
      withDatabase: options.database,
      blobs: options.blobs ? await openBackupBlobs(context, target, options.blobsTo) : undefined,
      searchPath: context.environment.PATH ?? '',
      onProgress: line => context.progress(`${line} ...`),
      signal,
    });
  });
  const { manifest, blobs } = taken;
  context.report({ directory: target, ...manifest, copied: blobs }, () => [
    `${target}: state of ${manifest.taken_at}`,
    ...(manifest.database === null
      ? []
      : [`database: ${manifest.database.file}, ${megabytes(manifest.database.bytes)}`]),
    ...(manifest.blobs === null
      ? []
      : [
          `pictures: ${blobs.copied} copied (${megabytes(blobs.copiedBytes)}), ` +
            `${blobs.alreadyThere} already there`,
        ]),
    ...(manifest.secrets_key_id === null ? [] : [keyLine(context, manifest.secrets_key_id)]),
  ]);
}

/** A restored service does not start without the key, which the backup does not contain. */
function keyLine(context: CliContext, keyId: string): string {
  const { dataDir } = loadDatabaseConfig(context.environment);
  const given = (context.environment.MATTING_SECRETS_KEY ?? '') !== '';
  const where = given ? 'MATTING_SECRETS_KEY' : path.join(dataDir, 'secrets.key');
  return `store ${where} (key ${keyId}) in another place; it is not in the backup`;
}

async function openBackupBlobs(context: CliContext, directory: string, blobsTo?: string) {
  const config = loadStorageConfig(context.environment, context.packages.storageKinds);
  const { storageKinds } = config;
  // An absolute path is valid from any working directory.
  const given =
    blobsTo === undefined ? undefined : absoluteStorage(blobsTo, context.packages.storageKinds);
  const storageUrl = given ?? pathToFileURL(path.join(directory, BLOBS)).href;
  // openStorage would create the directory of an unmounted disk, and miss its pictures.
  const from = await openStorages(config, {}, openStorageToRead);
  const to = await openStorage(storageUrl, { storageKinds, setting: '--blobs-to' });
  return { from, to, location: given ?? BLOBS };
}

async function restore(
  context: CliContext,
  directory: string | undefined,
  options: RestoreOptions,
): Promise<void> {
  if ((options.check === true) === (directory !== undefined)) {
    throw new CommandError('name a directory, or use --check');
  }
  if (directory !== undefined) await restoreFrom(context, path.resolve(directory), options);
  const storage = loadStorageConfig(context.environment, context.packages.storageKinds);
  // A mere check must not create a directory.
  const open = directory === undefined ? openStorageToRead : openStorage;
  await checkRestored(context, options, () => openStorages(storage, {}, open));
}

async function restoreFrom(context: CliContext, directory: string, options: RestoreOptions) {
  const manifest = await readManifest(directory);
  await requireKey(context, manifest.secrets_key_id);
  const { databaseUrl } = loadDatabaseConfig(context.environment);
  // Pictures alone need a database that names them. Checked before anything is written.
  if (manifest.database === null) await context.withDatabase(async () => undefined);
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
  const { storageUrl, storageKinds } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const sourceUrl = given === BLOBS ? pathToFileURL(path.join(directory, BLOBS)).href : given;
  const from = await openStorageToRead(sourceUrl, { storageKinds, setting: '--blobs-from' });
  return { from, to: await openStorage(storageUrl, { storageKinds }) };
}

/** Before any write: a service with another key would not start on the restored database. */
async function requireKey(context: CliContext, keyId: string | null): Promise<void> {
  if (keyId === null) return;
  const { MATTING_SECRETS_KEY: text = '' } = context.environment;
  const { dataDir } = loadDatabaseConfig(context.environment);
  const key = text === '' ? await readSecretsKey(dataDir) : parseSecretsKey(text);
  if (key !== undefined && new SecretBox(key).keyId === keyId) return;
  throw new CommandError(
    `the backup needs the secrets key ${keyId}; set MATTING_SECRETS_KEY, or put its secrets.key ` +
      `into ${dataDir} (if it is lost, see docs/backup.md)`,
  );
}

async function checkRestored(
  context: CliContext,
  options: RestoreOptions,
  openBlobs: () => Promise<BlobStore>,
): Promise<void> {
  const findings: Finding[] = [];
  await context.withDatabase(async database => {
    await requireCurrentSchema(database, context.packages.migrations);
    const stores = createStores(database);
    findings.push(await clockFinding(stores));
    const { sizesOnly = false } = options;
    const blobs = await openBlobs();
    findings.push(...(await restoredFindings({ stores, blobs, sizesOnly })));
  });
  const value = jsonOf(findings);
  context.report(value, () => pageOf(findings));
  if (!value.ok) throw new CommandError('the check failed; fix the failures above');
}

/** Leases and links follow the clock of the database, which may be another server now. */
async function clockFinding({ rateQuotas }: { rateQuotas: { nowMs(): Promise<number> } }) {
  const offMs = (await rateQuotas.nowMs()) - Date.now();
  const found = `the database's clock is ${Math.round(offMs / 1000)} s from this machine's`;
  if (Math.abs(offMs) <= 30_000) return ok('clocks', found);
  return failure('clocks', found, 'synchronise both clocks; leases and links use the database’s');
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

const PAGE = 100;
const BLOBS_AT_ONCE_MAX = 8;
const NAMED_MAX = 20;
/** The longest MATTING_RESULT_TTL_MS. */
const LINK_LIFE_MS_MAX = 31 * 86_400_000;

interface RestoredParts {
  readonly stores: Pick<StoresWithoutEnds, 'jobs' | 'ledger'>;
  readonly blobs: Pick<BlobStore, 'stat' | 'openRead'>;
  readonly sizesOnly: boolean;
}

/**
 * `matting restore --check`: database and storage belong together and nothing is missing. It
 * derives the ledger again and looks for the picture of every link, correction and open job. It
 * changes nothing and may run while the service works.
 */
async function restoredFindings(parts: RestoredParts): Promise<readonly Finding[]> {
  return [
    await ledgerFinding(parts),
    ...(await linksFindings(parts)),
    await openJobsFinding(parts),
  ];
}

async function ledgerFinding({ stores }: RestoredParts): Promise<Finding> {
  const { problemCount, problems, entries, accounts } = await stores.ledger.audit();
  if (problemCount === 0) {
    const read = `${counted(accounts, 'account')}, ${entries} entries`;
    return ok('ledger', `every balance agrees with the ledger (${read})`);
  }
  const [first] = problems;
  const found = `${counted(problemCount, 'problem')}, first: ${first?.problem ?? 'unknown'}`;
  return failure('ledger', found, 'to list them, run matting credits check');
}

interface Expected {
  readonly jobId: string;
  readonly blob: string;
  readonly bytes: number;
  /** Hexadecimal. undefined: unknown. */
  readonly sha256: string | undefined;
  readonly isKept?: boolean;
}

/**
 * Finds missing results, and missing files kept for corrections, in one pass over the final jobs.
 */
async function linksFindings(parts: RestoredParts): Promise<readonly Finding[]> {
  let keptCount = 0;
  const { count, missing } = await findMissing(parts, FINAL_STATES, job => {
    const { id: jobId, result, kept, expiresAtMs, readAtMs } = job;
    const files = kept !== null && kept.untilMs > readAtMs ? keptOf(kept) : [];
    keptCount += files.length;
    const link = result === null || (expiresAtMs ?? 0) <= readAtMs ? [] : [{ jobId, ...result }];
    return [...link, ...files.map(file => ({ jobId, ...file, sha256: undefined, isKept: true }))];
  });
  const gone = missing.filter(({ isKept }) => !isKept);
  const lost = missing.filter(({ isKept }) => isKept);
  return [links(count - keptCount, gone), corrections(keptCount, lost)];
}

function links(count: number, missing: readonly Expected[]): Finding {
  if (missing.length === 0) return ok('links', `${counted(count, 'link')}, each with its picture`);
  const found = `${missing.length} of ${counted(count, 'link')} answer 500 RESULT_LOST: ${named(missing)}`;
  return failure('links', found, 'copy the missing blobs again, and repeat the check');
}

function corrections(count: number, missing: readonly Expected[]): Finding {
  const files = counted(count, 'file');
  if (missing.length === 0) return ok('corrections', `${files} kept for them, none missing`);
  const found = `${missing.length} of ${files} kept for them are missing: ${named(missing)}`;
  const advice =
    'copy the missing blobs again; until then corrections of these jobs fail, uncharged';
  return warning('corrections', found, advice);
}

function keptOf({ input, matte }: NonNullable<Job['kept']>) {
  return input === null ? [matte] : [input, matte];
}

async function openJobsFinding(parts: RestoredParts): Promise<Finding> {
  const { count, missing } = await findMissing(parts, OPEN_STATES, job => {
    const { input, background, hintsFile, correction } = job;
    return [input, background?.input, hintsFile, correction?.matte].flatMap(file =>
      file == null ? [] : [{ jobId: job.id, ...file, sha256: undefined }],
    );
  });
  const pictures = counted(count, 'picture');
  if (missing.length === 0) return ok('open jobs', `${pictures} of open jobs, none missing`);
  const found = `${missing.length} of ${pictures} are missing: ${named(missing)}`;
  const advice = 'do nothing: these jobs fail (retryable), and their credits are returned';
  return warning('open jobs', found, advice);
}

function named(missing: readonly Expected[]): string {
  const names = missing.slice(0, NAMED_MAX).map(({ jobId }) => `job ${jobId}`);
  const more = missing.length - names.length;
  return more > 0 ? `${names.join(', ')} and ${more} more` : names.join(', ');
}

async function findMissing(
  parts: RestoredParts,
  states: typeof FINAL_STATES | typeof OPEN_STATES,
  expectedOf: (job: Job) => readonly Expected[],
) {
  const missing: Expected[] = [];
  let count = 0;
  let after: string | undefined;
  for (;;) {
    const filter = { states, endedWithinMs: LINK_LIFE_MS_MAX, limit: PAGE };
    const jobs = await parts.stores.jobs.list({ ...filter, after });
    const expected = jobs.flatMap(expectedOf);
    count += expected.length;
    missing.push(...(await missingOf(parts, expected)));
    after = jobs.at(-1)?.cursor;
    if (jobs.length < PAGE || after === undefined) return { count, missing };
  }
}

async function missingOf(parts: RestoredParts, expected: readonly Expected[]): Promise<Expected[]> {
  const missing: Expected[] = [];
  const queue = expected.values();
  const work = async () => {
    for (const one of queue) {
      if (!(await isThere(parts, one)) && (await isStillNamed(parts, one))) missing.push(one);
    }
  };
  await Promise.all(Array.from({ length: BLOBS_AT_ONCE_MAX }, work));
  return missing;
}

/** Compares the store's own checksum if there is one; otherwise it reads the blob. */
async function isThere({ blobs, sizesOnly }: RestoredParts, { blob, bytes, sha256 }: Expected) {
  const stored = await blobs.stat(blob);
  if (sizesOnly || sha256 === undefined) return stored?.bytes === bytes;
  if (stored?.sha256 !== undefined) return stored.bytes === bytes && stored.sha256 === sha256;
  try {
    const read = await hashOf(blobs, blob);
    return read.bytes === bytes && read.sha256 === sha256;
  } catch (error) {
    if (error instanceof BlobNotFoundError) return false;
    throw error;
  }
}

/** In a working service a job or a link may have ended since. */
async function isStillNamed({ stores }: RestoredParts, { blob }: Expected): Promise<boolean> {
  return (await stores.jobs.referencedBlobs([blob])).has(blob);
}
