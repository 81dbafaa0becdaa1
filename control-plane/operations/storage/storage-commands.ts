/** `storage check|lifecycle|migrate`. */
import { type Command, InvalidArgumentError } from 'commander';
import { ContractError } from '#contract/errors.ts';
import { type CliContext, CommandError } from '../../core/cli/context.ts';
import { JOB_MS_MAX } from '../../core/jobs/job.ts';
import { loadStorageConfig } from '../../core/settings.ts';
import {
  checkStorage,
  openStorage,
  StorageConfigError,
  storageKindOf,
} from '../../core/storage/open-storage.ts';
import { type MoveSummary, moveBlobs } from './move-blobs.ts';

/** Between two lines about how far it is. */
const PROGRESS_MS = 10_000;
/** Failures that are named one by one. */
const NAMED_MAX = 20;
const DAY_MS = 86_400_000;

interface MigrateOptions {
  readonly remove?: boolean;
}

export function addStorageCommands(program: Command, context: CliContext): void {
  const storage = program.command('storage').description('check, tidy and move where blobs are');
  storage
    .command('check')
    .description('try everything the service asks of MATTING_STORAGE_URL; exits 1 where one fails')
    .action(() => check(context));
  storage
    .command('lifecycle')
    .description(
      'print a lifecycle rule for the bucket, as JSON for PutBucketLifecycleConfiguration',
    )
    .option('--result-days <days>', 'days that result links live', parseDays)
    .action(({ resultDays }: { resultDays?: number }) => lifecycle(context, resultDays));
  storage
    .command('migrate')
    .description('copy all blobs from one storage to another while the service runs')
    .argument('<from>', 'a directory, file:///path or s3://bucket/prefix')
    .argument('<to>', 'the same')
    .option('--remove', 'remove each blob from the first once its copy is proven')
    .action((from: string, to: string, options: MigrateOptions) =>
      migrate(context, from, to, options),
    );
}

async function check(context: CliContext): Promise<void> {
  const { storageUrl, storageKinds } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const findings = await checkStorage(storageUrl, storageKinds);
  const failed = findings.filter(({ problem }) => problem !== undefined);
  context.report({ ok: failed.length === 0, findings }, () =>
    findings.map(({ ability, problem }) =>
      problem === undefined ? `ok    ${ability}` : `FAIL  ${ability}: ${problem}`,
    ),
  );
  if (failed.length > 0) {
    throw new CommandError(`the storage fails at ${failed.length} of ${findings.length}`);
  }
}

function lifecycle(context: CliContext, resultDays: number | undefined): void {
  const { storageUrl, storageKinds, resultTtlMs } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const kind = storageKindOf(storageUrl, storageKinds);
  if (kind === undefined) {
    const message = 'a directory has no lifecycle rules; the sweeper tidies it';
    throw new StorageConfigError(`MATTING_STORAGE_URL: ${message}`);
  }
  const lifeMs = resultDays === undefined ? resultTtlMs : resultDays * DAY_MS;
  const rules = kind.lifecycle(storageUrl, { resultTtlMs: lifeMs, jobMsMax: JOB_MS_MAX });
  context.print(JSON.stringify(rules, undefined, 2));
}

function parseDays(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('a number of days from 1 on');
  return Number(text);
}

async function migrate(
  context: CliContext,
  fromUrl: string,
  toUrl: string,
  options: MigrateOptions,
): Promise<void> {
  if (fromUrl === toUrl) throw new CommandError('<from> and <to> are the same storage');
  const { spoolDir, storageKinds } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const from = await openStorage(fromUrl, { spoolDir, storageKinds, setting: '<from>' });
  const to = await openStorage(toUrl, { spoolDir, storageKinds, setting: '<to>' });
  let toldAtMs = performance.now();
  const summary = await moveBlobs(from, to, {
    ...(options.remove === true ? { remove: true } : {}),
    signal: context.interruption(),
    onProgress: progress => {
      if (performance.now() - toldAtMs < PROGRESS_MS) return;
      toldAtMs = performance.now();
      context.progress(lineOf(progress));
    },
  });
  const { failures, ...counts } = summary;
  const failed = failures.slice(0, NAMED_MAX).map(({ name, error }) => ({
    name,
    reason: reasonOf(error),
  }));
  context.report({ ...counts, failures: failed }, () => [
    ...failed.map(({ name, reason }) => `FAIL  ${name}: ${reason}`),
    lineOf(summary),
  ]);
  if (!summary.complete) {
    throw new CommandError('not everything was copied: run the same command again');
  }
}

function lineOf({ copied, copiedBytes, alreadyThere, gone, removed }: MoveSummary): string {
  const megabytes = (copiedBytes / 1e6).toFixed(1);
  return (
    `${copied} copied (${megabytes} MB), ${alreadyThere} there already, ` +
    `${gone} removed by the service meanwhile, ${removed} removed from the first`
  );
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return error instanceof ContractError && cause instanceof Error
    ? `${message}: ${cause.message}`
    : message;
}
