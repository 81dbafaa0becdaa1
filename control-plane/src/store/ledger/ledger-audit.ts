/**
 * The audit behind `credits check`: every balance against the ledger, every entry against its job,
 * every job against its entries. In pages of bounded statements, beside live traffic, on any number
 * of replicas at once.
 *
 * | kind        | reads                                                   | trusts                  |
 * |-------------|---------------------------------------------------------|-------------------------|
 * | incremental | entries since each account's last checkpoint, the jobs  | checkpoints, and that   |
 * |             | that ended since the last one, and all open jobs        | what is behind them is  |
 * |             |                                                         | as it was               |
 * | full        | every entry, checkpoint and job                         | nothing                 |
 *
 * An incremental one that is interrupted begins again: what it did not have to read twice is behind
 * the checkpoints that it set. A full one saves its place (ledger-audit-runs.ts). A balance that
 * contradicts its checkpoint has its account read in full in either.
 */
import type { LedgerAuditKind } from '../../domain/ledger.ts';
import { jobProblem } from '../../domain/ledger.ts';
import {
  CHECKPOINT_ENTRIES_MAX,
  type LedgerCheckpoint,
  NOTHING_CLOSED,
} from '../../domain/ledger-checkpoint.ts';
import type { Database } from '../database/connect.ts';
import {
  type AccountAuditOptions,
  type AccountVerdict,
  auditAccount,
  auditAccountInFull,
  CLOSE_MARGIN_MS,
  type LedgerProblem,
} from './ledger-account-audit.ts';
import {
  type AuditProgress,
  beginFullRun,
  finishRun,
  moveJobsMark,
  readJobsMarkMs,
  saveFullRun,
  TAKE_OVER_MS,
} from './ledger-audit-runs.ts';
import {
  LEDGER_PAGE_ROWS,
  type PagePlace,
  readAccountIds,
  readJobEntries,
  readNowMs,
  readOwnerAfter,
} from './ledger-pages.ts';

/** Problems that are listed; there may be more, which are counted. */
const PROBLEMS_MAX = 1_000;
/** A full audit that is interrupted does this much again, and one page or account. */
const SAVE_INTERVAL_MS = 1_000;

export interface AuditOptions {
  /** Undefined: 'incremental'. */
  readonly kind?: LedgerAuditKind;
  /**
   * This account alone: its balances, its entries and the jobs that they name, its open jobs. Final
   * jobs of which the ledger has nothing are found by an audit of all.
   */
  readonly accountId?: string | undefined;
  /** Checkpoints that their entries contradict are replaced, once they are among the problems. */
  readonly renewCheckpoints?: boolean;
  /** Called after each page. */
  readonly onProgress?: (progress: Pick<AuditProgress, 'accounts' | 'entries' | 'jobs'>) => void;
}

/** The bounds that tests make small. */
export interface AuditTuning {
  readonly pageRows: number;
  readonly spanEntriesMax: number;
  readonly closeMarginMs: number;
  readonly saveIntervalMs: number;
  readonly takeOverMs: number;
}

const TUNING: AuditTuning = {
  pageRows: LEDGER_PAGE_ROWS,
  spanEntriesMax: CHECKPOINT_ENTRIES_MAX,
  closeMarginMs: CLOSE_MARGIN_MS,
  saveIntervalMs: SAVE_INTERVAL_MS,
  takeOverMs: TAKE_OVER_MS,
};

export interface LedgerAudit {
  readonly kind: LedgerAuditKind;
  /** It went on with an interrupted full one. */
  readonly resumed: boolean;
  /** Accounts, entries and jobs that were read; of a full one since its beginning. */
  readonly accounts: number;
  readonly entries: number;
  readonly jobs: number;
  /** Empty: nothing is wrong. PROBLEMS_MAX at most. */
  readonly problems: readonly LedgerProblem[];
  readonly problemCount: number;
}

/** @throws ContractError SERVICE_UNAVAILABLE: no database, or another full audit is under way. */
export async function auditLedger(
  database: Database,
  options: AuditOptions = {},
  tuning: Partial<AuditTuning> = {},
): Promise<LedgerAudit> {
  const kind = options.kind ?? 'incremental';
  if (options.accountId !== undefined) return auditOf(database, options.accountId, options, tuning);
  const bounds = { ...TUNING, ...tuning };
  const start = startOf(await readNowMs(database));
  const run = kind === 'full' ? await beginFullRun(database, start, bounds.takeOverMs) : undefined;
  const progress = run?.progress ?? start;
  const audit = new Audit(database, { options, bounds, progress, runId: run?.id });
  const { accounts, entries, jobs, problems, problemCount } = await audit.run();
  const resumed = progress !== start;
  return { kind, resumed, accounts, entries, jobs, problems, problemCount };
}

/** One account's verdict, by its last checkpoint unless its balances contradict it. */
export function auditOneAccount(database: Database, accountId: string): Promise<AccountVerdict> {
  return auditAccount(database, accountId, {
    ...TUNING,
    renewCheckpoints: false,
    onEntries: () => undefined,
    onClosed: async () => undefined,
  });
}

async function auditOf(
  database: Database,
  accountId: string,
  { kind = 'incremental', renewCheckpoints = false, onProgress }: AuditOptions,
  tuning: Partial<AuditTuning>,
): Promise<LedgerAudit> {
  const read = { accounts: 1, entries: 0, jobs: 0 };
  const options: AccountAuditOptions = {
    ...TUNING,
    ...tuning,
    renewCheckpoints,
    onEntries: count => {
      read.entries += count;
      onProgress?.(read);
    },
    onClosed: async () => undefined,
  };
  const { problems } =
    kind === 'full'
      ? await auditAccountInFull(database, accountId, NOTHING_CLOSED, options)
      : await auditAccount(database, accountId, options);
  return { kind, resumed: false, ...read, problems, problemCount: problems.length };
}

/** Where an audit begins. */
export function startOf(startedAtMs: number): AuditProgress {
  const none = { within: null, accounts: 0, entries: 0, jobs: 0, problems: [], problemCount: 0 };
  return { startedAtMs, phase: 'accounts', after: '', ...none };
}

interface AuditParts {
  readonly options: AuditOptions;
  readonly bounds: AuditTuning;
  readonly progress: AuditProgress;
  /** Only for a full audit. */
  readonly runId: string | undefined;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

class Audit {
  readonly #database: Database;
  readonly #options: AuditOptions;
  readonly #bounds: AuditTuning;
  readonly #runId: string | undefined;
  readonly #progress: Mutable<AuditProgress>;
  #savedAtMs = performance.now();

  constructor(database: Database, { options, bounds, progress, runId }: AuditParts) {
    this.#database = database;
    this.#options = options;
    this.#bounds = bounds;
    this.#progress = { ...progress };
    this.#runId = runId;
  }

  async run(): Promise<AuditProgress> {
    if (this.#progress.phase === 'accounts') {
      await this.#auditAccounts();
      Object.assign(this.#progress, { phase: 'jobs', after: '' });
    }
    if (this.#runId === undefined) await this.#auditEndedJobs();
    else await this.#auditAllJobs();
    await this.#save(true);
    await finishRun(this.#database, this.#progress, this.#runId);
    return this.#progress;
  }

  async #auditAccounts(): Promise<void> {
    for await (const accountId of this.#accountIds()) {
      const { problems } = await this.#auditAccount(accountId);
      this.#add(problems);
      this.#progress.accounts += 1;
      Object.assign(this.#progress, { after: accountId, within: null });
      await this.#save();
    }
  }

  /** In order: those that exist, and those that only the ledger names. */
  async *#accountIds(): AsyncGenerator<string> {
    let after = this.#progress.after;
    let owner = await readOwnerAfter(this.#database, after);
    for (;;) {
      const ids = await readAccountIds(this.#database, after);
      for (const id of ids) {
        for (; owner !== undefined && owner <= id; ) {
          if (owner < id) yield owner;
          owner = await readOwnerAfter(this.#database, owner);
        }
        yield id;
        after = id;
      }
      if (ids.length === 0) break;
    }
    for (; owner !== undefined; ) {
      yield owner;
      owner = await readOwnerAfter(this.#database, owner);
    }
  }

  #auditAccount(accountId: string): Promise<AccountVerdict> {
    const options: AccountAuditOptions = {
      ...this.#bounds,
      renewCheckpoints: this.#options.renewCheckpoints ?? false,
      onEntries: count => {
        this.#progress.entries += count;
        this.#report();
      },
      onClosed: async (closedTo, problems) => {
        this.#progress.within = { accountId, closedTo, problems };
        await this.#save();
      },
    };
    if (this.#runId === undefined) return auditAccount(this.#database, accountId, options);
    const { within } = this.#progress;
    const from: LedgerCheckpoint =
      within?.accountId === accountId ? within.closedTo : NOTHING_CLOSED;
    const problems = within?.accountId === accountId ? within.problems : [];
    return auditAccountInFull(this.#database, accountId, from, options, problems);
  }

  async #auditAllJobs(): Promise<void> {
    let after: PagePlace = { atMs: 0, id: this.#progress.after };
    for (;;) {
      const last = await this.#auditJobs('all', after);
      if (last === undefined) return;
      after = last;
      this.#progress.after = last.id;
      await this.#save();
    }
  }

  /** The mark stays behind the first problem, which the next audit then finds again. */
  async #auditEndedJobs(): Promise<void> {
    const before = this.#progress.problemCount;
    const markMaxMs = this.#progress.startedAtMs - this.#bounds.closeMarginMs;
    let after: PagePlace = { atMs: await readJobsMarkMs(this.#database), id: '' };
    for (;;) {
      const last = await this.#auditJobs('ended', after);
      if (last === undefined) return;
      after = last;
      if (this.#progress.problemCount > before) continue;
      await moveJobsMark(this.#database, Math.min(last.atMs, markMaxMs));
    }
  }

  /** The last of the page. Undefined: there was none. */
  async #auditJobs(of: 'all' | 'ended', after: PagePlace): Promise<PagePlace | undefined> {
    const jobs = await readJobEntries(this.#database, of, after);
    const problems = jobs.flatMap(({ id, accountId, state, isPlayground, ...entries }) => {
      const problem = jobProblem(state, entries, isPlayground);
      return problem === undefined ? [] : [{ accountId, jobId: id, problem }];
    });
    this.#add(problems);
    this.#progress.jobs += jobs.length;
    this.#report();
    return jobs.at(-1);
  }

  #add(problems: readonly LedgerProblem[]): void {
    if (problems.length === 0) return;
    const known = new Set(this.#progress.problems.map(({ jobId }) => jobId));
    const more = problems.filter(({ jobId }) => jobId === null || !known.has(jobId));
    this.#progress.problemCount += more.length;
    this.#progress.problems = [...this.#progress.problems, ...more].slice(0, PROBLEMS_MAX);
  }

  #report(): void {
    this.#options.onProgress?.(this.#progress);
  }

  async #save(now = false): Promise<void> {
    if (this.#runId === undefined) return;
    const dueAtMs = this.#savedAtMs + this.#bounds.saveIntervalMs;
    if (!now && performance.now() < dueAtMs) return;
    await saveFullRun(this.#database, this.#runId, this.#progress);
    this.#savedAtMs = performance.now();
  }
}
