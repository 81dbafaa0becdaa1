/**
 * The audit behind `credits check`: every balance against the ledger, every entry against its job,
 * every job against its entries. The database does the arithmetic and hands over what may be wrong;
 * the rules in ledger.ts judge that and say why.
 *
 * It runs beside live traffic and locks nothing. Every engine answers a statement from one state of
 * the database and each comparison is one statement, so the audit sees no half of a transaction. A
 * range is bounded by its accounts and its entries. A server reads the parts of a large account at
 * one instant; SQLite adds them up in one statement (docs/adr/0048).
 */

import { imbalances } from '@matting/accounts/ledger/ledger.ts';
import {
  type AccountRange,
  ALWAYS,
  accountRanges,
  LEDGER_RANGE,
  only,
  timesOf,
} from '@matting/accounts/ledger/ledger-ranges.ts';
import { type Database, readNowMs } from '@matting/database/database.ts';
import { jobRanges } from './job-ranges.ts';
import { readLastAudits, saveEnd } from './last-audits.ts';
import {
  type LedgerAuditPart,
  type LedgerProblem,
  readSums,
  readSumsInParts,
  readWrongEntries,
  readWrongJobs,
} from './ledger-comparisons.ts';

/** Problems that are listed. The audit only counts further ones. */
const PROBLEMS_MAX = 1_000;
/** Jobs that are named for one account: the first ones say what happened. */
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
  /** Audits one account. Only an audit of all accounts finds a final job without entries. */
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
  const found = new Found();
  const progress: AuditProgress = { accounts: 0, entries: 0, jobs: 0 };
  const accounts = accountId === undefined ? accountRanges(database, bounds) : [only(accountId)];
  for await (const range of accounts) {
    await auditAccounts(database, range, { parts, bounds, found, progress });
    onProgress?.(progress);
  }
  if (accountId !== undefined) {
    found.add(await readWrongJobs(database, { openOf: accountId }));
    return { ...progress, ...found.all };
  }
  for await (const { jobs, ...range } of jobRanges(database, bounds.jobsMax)) {
    found.add(await readWrongJobs(database, range));
    progress.jobs += jobs;
    onProgress?.(progress);
  }
  await saveEnd(database, startedAtMs, found.all.problemCount);
  return { ...progress, ...found.all };
}

interface Auditing {
  readonly parts: readonly LedgerAuditPart[];
  readonly bounds: Readonly<typeof LEDGER_RANGE>;
  readonly found: Found;
  readonly progress: AuditProgress;
}

async function auditAccounts(
  database: Database,
  range: AccountRange,
  { parts, bounds, found, progress }: Auditing,
): Promise<void> {
  const accounts = await (range.only === undefined
    ? readSums(database, parts, range)
    : readSumsInParts(database, parts, range.only, bounds));
  for (const { accountId, balances, sums, entries, ...open } of accounts) {
    progress.accounts += 1;
    progress.entries += entries;
    const wrong = [
      ...imbalances(balances, sums, open.openJobs),
      ...miscounted('open corrections', open.corrections),
      ...miscounted('waiting items', open.waiting),
    ];
    found.add(wrong.map(problem => ({ accountId, jobId: null, problem })));
  }
  const times = range.only === undefined ? [ALWAYS] : timesOf(database, range.only, bounds);
  for await (const time of times) {
    found.add(await readWrongEntries(database, parts, range, time));
  }
}

function miscounted(what: string, { stored, open }: { stored: number; open: number }): string[] {
  return stored === open ? [] : [`it counts ${stored} ${what}, and has ${open}`];
}

class Found {
  readonly #problems: LedgerProblem[] = [];
  #count = 0;
  /** The list names a job of an account once, though its entries and it show the same. */
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
