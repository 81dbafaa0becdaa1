/**
 * The audit of `credits check` runs with live traffic and takes no lock. The database returns what
 * may be wrong; the rules in ledger.ts decide. Each comparison is one statement, and an engine
 * answers a statement from one state of the database, so the audit sees no part of a transaction. A
 * server reads a large account by several statements of one snapshot; SQLite reads it in one
 * (docs/adr/0048).
 */

import { imbalances } from '@matting/accounts/ledger/ledger.ts';
import {
  type AccountRange,
  ALL_TIME,
  accountRanges,
  LEDGER_RANGE,
  rangeOfAccount,
  timeRangesOf,
} from '@matting/accounts/ledger/ledger-ranges.ts';
import { type Database, readNowMs } from '@matting/database/database.ts';
import { jobRanges } from './job-ranges.ts';
import { readLastAudits, saveAudit } from './last-audits.ts';
import {
  type LedgerAuditPart,
  type LedgerProblem,
  readSums,
  readSumsInParts,
  readWrongEntries,
  readWrongJobs,
} from './ledger-comparisons.ts';

/** The audit lists these problems and only counts further ones. */
const PROBLEMS_MAX = 1_000;
/** Listed jobs of one account. */
const JOBS_NAMED_MAX = 20;

interface AuditProgress {
  accounts: number;
  entries: number;
  jobs: number;
}

interface LedgerAudit extends Readonly<AuditProgress> {
  readonly problems: readonly LedgerProblem[];
  readonly problemCount: number;
}

export interface AuditOptions {
  /** Absent: all accounts. Only that audit finds final jobs without entries. */
  readonly accountId?: string | undefined;
  readonly onProgress?: (progress: Readonly<AuditProgress>) => void;
  readonly parts?: readonly LedgerAuditPart[];
}

/** @throws ContractError SERVICE_UNAVAILABLE: the database is away, or takes too long. */
export async function auditLedger(
  database: Database,
  options: AuditOptions = {},
  bounds: Readonly<typeof LEDGER_RANGE> = LEDGER_RANGE,
): Promise<LedgerAudit> {
  const { accountId, onProgress, parts = [] } = options;
  const startedAtMs = await readNowMs(database);
  const problems = new ProblemList();
  const progress: AuditProgress = { accounts: 0, entries: 0, jobs: 0 };
  const accounts =
    accountId === undefined ? accountRanges(database, bounds) : [rangeOfAccount(accountId)];
  for await (const range of accounts) {
    await auditAccounts(database, range, { parts, bounds, problems, progress });
    onProgress?.(progress);
  }
  if (accountId !== undefined) {
    problems.add(await readWrongJobs(database, { openOf: accountId }));
    return { ...progress, ...problems.all };
  }
  for await (const { jobs, ...range } of jobRanges(database, bounds.jobsMax)) {
    problems.add(await readWrongJobs(database, range));
    progress.jobs += jobs;
    onProgress?.(progress);
  }
  await saveAudit(database, startedAtMs, problems.all.problemCount);
  return { ...progress, ...problems.all };
}

interface Auditing {
  readonly parts: readonly LedgerAuditPart[];
  readonly bounds: Readonly<typeof LEDGER_RANGE>;
  readonly problems: ProblemList;
  readonly progress: AuditProgress;
}

async function auditAccounts(
  database: Database,
  range: AccountRange,
  { parts, bounds, problems, progress }: Auditing,
): Promise<void> {
  const accounts = await (range.soleAccountId === undefined
    ? readSums(database, parts, range)
    : readSumsInParts(database, parts, range.soleAccountId, bounds));
  for (const { accountId, balances, sums, entries, ...open } of accounts) {
    progress.accounts += 1;
    progress.entries += entries;
    const wrong = [
      ...imbalances(balances, sums, open.openJobs),
      ...miscounted('open corrections', open.corrections),
      ...miscounted('waiting items', open.waiting),
    ];
    problems.add(wrong.map(problem => ({ accountId, jobId: null, problem })));
  }
  const times =
    range.soleAccountId === undefined
      ? [ALL_TIME]
      : timeRangesOf(database, range.soleAccountId, bounds);
  for await (const time of times) {
    problems.add(await readWrongEntries(database, parts, range, time));
  }
}

function miscounted(what: string, { stored, open }: { stored: number; open: number }): string[] {
  return stored === open ? [] : [`it counts ${stored} ${what}, and has ${open}`];
}

class ProblemList {
  readonly #problems: LedgerProblem[] = [];
  #count = 0;
  /** Listed jobs by account. A job and its entries can show one problem, which is listed once. */
  readonly #listed = new Map<string, Set<string>>();

  get all() {
    return { problems: this.#problems, problemCount: this.#count };
  }

  add(problems: readonly LedgerProblem[]): void {
    for (const problem of problems) {
      const { accountId, jobId } = problem;
      const listed = this.#listed.get(accountId) ?? new Set();
      const subject = jobId ?? problem.problem;
      if (listed.has(subject) || (jobId !== null && listed.size >= JOBS_NAMED_MAX)) continue;
      this.#count += 1;
      if (this.#problems.length === PROBLEMS_MAX) continue;
      this.#problems.push(problem);
      this.#listed.set(accountId, listed.add(subject));
    }
  }
}

export function ledgerAudits(database: Database, parts: readonly LedgerAuditPart[]) {
  return {
    audit: (options?: AuditOptions) => auditLedger(database, { ...options, parts }),
    check: async (accountId?: string) =>
      (await auditLedger(database, { accountId, parts })).problems,
    lastAudits: () => readLastAudits(database),
  };
}
