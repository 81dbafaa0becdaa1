import { randomUUID } from 'node:crypto';
import {
  missingOfStorage,
  openStorages,
  openStorageToRead,
} from '@matting/storage/open-storage.ts';
import type { Command } from 'commander';
import { requireAccount } from '../operator/operate-accounts.ts';
import { OperateCredits } from '../operator/operate-credits.ts';
import {
  NewestMissingError,
  NoLiveResultError,
  repayLost as repay,
} from '../results/repay-lost.ts';
import { loadStorageConfig } from '../settings.ts';
import { parseCredits, parseReference } from './arguments.ts';
import { type CliContext, CommandError } from './context.ts';

const PROGRESS_INTERVAL_MS = 5_000;

interface RepayOptions {
  readonly dryRun?: boolean;
  readonly allMissing?: boolean;
  readonly evenMost?: boolean;
}

export function addCreditCommands(program: Command, context: CliContext): void {
  const credits = program.command('credits').description('grant, revoke, show and check credits');
  for (const kind of ['grant', 'revoke'] as const) {
    credits
      .command(kind)
      .description(
        kind === 'grant'
          ? 'grant credits to an account'
          : 'take back available credits, all or none',
      )
      .argument('<account>', 'name or id')
      .argument('<n>', 'number of credits', parseCredits)
      .option(
        '--reference <text>',
        'unique reference; a second use changes nothing',
        parseReference,
      )
      .action((account: string, amount: number, { reference }: { reference?: string }) =>
        enter(context, { kind, account, amount, reference }),
      );
  }
  credits
    .command('show')
    .description('show the credits of an account and the sums of its ledger')
    .argument('<account>', 'name or id')
    .action(async (account: string) => {
      const sums = await context.withStores(stores => new OperateCredits(stores).show(account));
      context.report(sums, () =>
        Object.entries(sums).map(([name, count]) => `${name.padEnd(10)}${count}`),
      );
    });
  credits
    .command('check')
    .description('check every balance against the ledger; exit 1 if one is wrong')
    .argument('[account]', 'only this account, by name or id')
    .option('--full', 'changes nothing, for older timers: every check reads the whole ledger')
    .action((account: string | undefined) => check(context, account));
  credits
    .command('repay-lost')
    .description('return the credits of results whose files the storage lost, once per job')
    .argument('[job]', 'only this job, by its id')
    .option('--all-missing', 'look for the file of every result with a valid link')
    .option('--dry-run', 'show what would happen, and change nothing')
    .option('--even-most', 'also if the newest file is missing')
    .action((job: string | undefined, options: RepayOptions) => repayLost(context, job, options));
}

interface EntryRequest {
  readonly kind: 'grant' | 'revoke';
  /** Name or id. */
  readonly account: string;
  readonly amount: number;
  readonly reference: string | undefined;
}

async function enter(
  context: CliContext,
  { kind, account, amount, reference = `cli ${randomUUID()}` }: EntryRequest,
) {
  const outcome = await context.withStores(stores =>
    new OperateCredits(stores).move({ kind, account, amount, reference }),
  );
  switch (outcome.kind) {
    case 'reference-conflict':
      throw new CommandError(
        `"${reference}" was used before with ${outcome.amount} credits; nothing was changed`,
      );
    case 'insufficient-credits':
      throw new CommandError(
        `only ${outcome.balances.available} credits are available; nothing was changed`,
      );
  }
  const entered = outcome.kind === 'entered';
  context.report({ entered, reference, credits: outcome.balances }, () => [
    entered
      ? `${amount} credits ${kind === 'grant' ? 'granted' : 'revoked'} (${reference})`
      : `"${reference}" was used before; nothing was changed`,
    `available ${outcome.balances.available}, reserved ${outcome.balances.reserved}`,
  ]);
}

async function repayLost(
  context: CliContext,
  jobId: string | undefined,
  { dryRun = false, allMissing = false, evenMost = false }: RepayOptions,
) {
  if (allMissing === (jobId !== undefined)) {
    throw new CommandError('name the job, or add --all-missing for all results');
  }
  const config = loadStorageConfig(context.environment, context.packages.storageKinds);
  const repaid = await context.withStores(async stores => {
    // An empty mount point would make every result look lost.
    const [missing] = await missingOfStorage(config.storageUrl, config.storageKinds);
    if (missing !== undefined)
      throw new CommandError(`${missing} is missing; check that it is mounted`);
    const blobs = await openStorages(config, {}, openStorageToRead);
    const hasFile = async (blob: string) => (await blobs.stat(blob)) !== undefined;
    return await repay({ ...stores, hasFile }, { jobId, dryRun, evenMost }).catch(error => {
      if (error instanceof NewestMissingError) throw newestMissing();
      if (!(error instanceof NoLiveResultError)) throw error;
      throw new CommandError(
        `job ${jobId} has no result with a valid link; use "credits grant" if you owe its credit`,
      );
    });
  });
  context.report({ dry_run: dryRun, ...repaid }, () => [
    `${repaid.looked} results checked, ${repaid.found} missing`,
    `${repaid.repaid} credits ${dryRun ? 'would be returned' : 'returned'}`,
    `${repaid.unpaid} cost nothing, or a correction has them`,
    ...(repaid.correcting > 0 ? [`${repaid.correcting} wait for an open correction`] : []),
  ]);
}

function newestMissing(): CommandError {
  return new CommandError(
    'The newest result is missing, so this may be another storage than that of the ' +
      'service; nothing was changed. Check that the disk is mounted, and that MATTING_STORAGE_URL ' +
      'names the same directory, or the same bucket and prefix, as for the control planes. If the ' +
      'files are gone for good, add --even-most.',
  );
}

async function check(context: CliContext, nameOrId: string | undefined) {
  const audit = await context.withStores(async stores => {
    const only = nameOrId === undefined ? undefined : await requireAccount(stores, nameOrId);
    return stores.ledger.audit({
      accountId: only?.id,
      onProgress: progressLines(context),
    });
  });
  const { accounts, entries, jobs, problemCount } = audit;
  const value = {
    ok: problemCount === 0,
    read: { accounts, entries, jobs },
    problem_count: problemCount,
    problems: audit.problems.map(({ accountId, jobId, problem }) => ({
      account_id: accountId,
      job_id: jobId,
      problem,
    })),
  };
  context.report(value, () =>
    problemCount === 0
      ? ['every balance agrees with the ledger']
      : audit.problems.map(({ accountId, jobId, problem }) =>
          jobId === null
            ? `account ${accountId}: ${problem}`
            : `account ${accountId}, job ${jobId}: ${problem}`,
        ),
  );
  if (problemCount > 0)
    throw new CommandError(
      `the ledger has ${problemCount} problems; see docs/runbook.md, "MattingLedgerProblems"`,
    );
}

function progressLines(context: CliContext) {
  let nextAtMs = performance.now() + PROGRESS_INTERVAL_MS;
  return ({ accounts, entries, jobs }: { accounts: number; entries: number; jobs: number }) => {
    if (performance.now() < nextAtMs) return;
    nextAtMs = performance.now() + PROGRESS_INTERVAL_MS;
    context.warn(`checked ${accounts} accounts, ${entries} entries and ${jobs} jobs so far`);
  };
}
