import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import { loadStorageConfig } from '@matting/core/settings.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { JOB_MS_MAX } from '@matting/queue/lease-rules.ts';
import {
  checkStorage,
  openStorage,
  openStorageToRead,
  StorageConfigError,
  storageKindOf,
} from '@matting/storage/open-storage.ts';
import { type Command, InvalidArgumentError } from 'commander';
import { type MoveSummary, moveBlobs } from './move-blobs.ts';

/** Between two lines of progress. */
const PROGRESS_MS = 10_000;
const NAMED_MAX = 20;

interface MigrateOptions {
  readonly remove?: boolean;
}

export function addStorageCommands(program: Command, context: CliContext): void {
  const storage = program.command('storage').description('check, tidy and move the storage');
  storage
    .command('check')
    .description('test MATTING_STORAGE_URL; exit 1 if it fails')
    .action(() => check(context));
  storage
    .command('lifecycle')
    .description('print a lifecycle rule for the bucket (JSON for PutBucketLifecycleConfiguration)')
    .option('--result-days <days>', 'lifetime of result links in days', parseDays)
    .action(({ resultDays }: { resultDays?: number }) => lifecycle(context, resultDays));
  storage
    .command('migrate')
    .description('copy all blobs to another storage while the service runs')
    .argument('<from>', 'directory, file:///path or s3://bucket/prefix')
    .argument('<to>', 'directory, file:///path or s3://bucket/prefix')
    .option('--remove', 'remove each blob from <from> after its copy is verified')
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
    throw new CommandError(
      `the storage failed ${failed.length} of ${findings.length} checks; see docs/storage.md`,
    );
  }
}

function lifecycle(context: CliContext, resultDays: number | undefined): void {
  const { storageUrl, storageKinds, resultTtlMs } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const kind = storageKindOf(storageUrl, storageKinds);
  if (kind === undefined) {
    const message = 'a directory needs no lifecycle rules; the sweeper tidies it';
    throw new StorageConfigError(`MATTING_STORAGE_URL: ${message}`);
  }
  const lifeMs = resultDays === undefined ? resultTtlMs : resultDays * DAY_MS;
  const rules = kind.lifecycle(storageUrl, { resultTtlMs: lifeMs, jobMsMax: JOB_MS_MAX });
  context.print(JSON.stringify(rules, undefined, 2));
}

function parseDays(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text))
    throw new InvalidArgumentError('Use a number of days from 1 to 9999.');
  return Number(text);
}

async function migrate(
  context: CliContext,
  fromUrl: string,
  toUrl: string,
  options: MigrateOptions,
): Promise<void> {
  if (fromUrl === toUrl) throw new CommandError('<from> and <to> are the same storage; name two');
  const { storageKinds } = loadStorageConfig(context.environment, context.packages.storageKinds);
  const ofFrom = { storageKinds, setting: '<from>' };
  // openStorage would create a missing directory, and copy nothing.
  const read = await openStorageToRead(fromUrl, ofFrom);
  const from = options.remove === true ? await openStorage(fromUrl, ofFrom) : read;
  const to = await openStorage(toUrl, { storageKinds, setting: '<to>' });
  let reportedAtMs = performance.now();
  const summary = await moveBlobs(from, to, {
    ...(options.remove === true ? { remove: true } : {}),
    signal: context.interruption(),
    onProgress: progress => {
      if (performance.now() - reportedAtMs < PROGRESS_MS) return;
      reportedAtMs = performance.now();
      context.progress(lineOf(progress));
    },
  });
  const { failures, ...counts } = summary;
  const failed = failures.slice(0, NAMED_MAX).map(({ name, error }) => ({
    name,
    reason: failureReason(error),
  }));
  context.report({ ...counts, failures: failed }, () => [
    ...failed.map(({ name, reason }) => `FAIL  ${name}: ${reason}`),
    lineOf(summary),
  ]);
  if (!summary.complete) {
    throw new CommandError('some blobs were not copied; run the same command again');
  }
}

function lineOf({ copied, copiedBytes, alreadyThere, gone, removed }: MoveSummary): string {
  const megabytes = (copiedBytes / 1e6).toFixed(1);
  return (
    `${copied} copied (${megabytes} MB), ${alreadyThere} already there, ` +
    `${gone} removed by the service meanwhile, ${removed} removed from <from>`
  );
}

function failureReason(error: unknown): string {
  const { message, cause } = error as Error;
  return error instanceof ContractError && cause instanceof Error
    ? `${message}: ${cause.message}`
    : message;
}
