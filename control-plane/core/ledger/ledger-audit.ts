/**
 * The audit of the ledger, and the rows of ledger_audits: how the last audits ended, up to where
 * jobs were compared, and where a full audit stands, so that one that was interrupted goes on.
 *
 * | full audit | its row                  | left by                                             |
 * |------------|--------------------------|-----------------------------------------------------|
 * | none       | run_id null              | begin                                               |
 * | runs       | run_id, saved_at renewed | finish (none); its process ends (interrupted)       |
 * | interrupted| saved_at grows old       | begin, TAKE_OVER_MS after saved_at: it runs again   |
 *
 * A process that takes one over writes its own run_id; a slow predecessor then saves nothing more.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type Database, query, readNowMs } from '@matting/database/database.ts';
import { MEMBER_CLOCKS_MS_MAX } from '@matting/database/member-clocks.ts';
import { schemaMadeAtMs } from '@matting/database/migrate.ts';
import { isInserted, matchesOne } from '@matting/database/statements.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import {
  describeSums,
  imbalances,
  jobProblem,
  type LedgerAuditKind,
  type LedgerCheckpoint,
  NOTHING_CLOSED,
  SLOT_OF,
} from './ledger.ts';
import {
  type AuditedEntry,
  accountIdsAfter,
  LEDGER_PAGE_ROWS,
  moveCheckpoint,
  type PageCursor,
  readAccountPage,
  readCheckpoint,
  readJobEntries,
  removeCheckpoint,
} from './ledger-pages.ts';
import { awaitEarlierWriters } from './ledger-writer.ts';

/** An audit that saved nothing for this long was interrupted; ten times what a page takes. */
const TAKE_OVER_MS = 30_000;
const TAKE_OVER_POLL_MS = 500;

interface LedgerProblem {
  readonly accountId: string;
  /** null: about the account as a whole. */
  readonly jobId: string | null;
  readonly problem: string;
}

/** Where an audit stands. */
interface AuditProgress {
  readonly startedAtMs: number;
  readonly phase: 'accounts' | 'jobs';
  /** The last account, or job, that is done; empty: none. */
  readonly after: string;
  readonly accounts: number;
  readonly entries: number;
  readonly jobs: number;
  readonly problems: readonly LedgerProblem[];
  readonly problemCount: number;
}

interface LastAudit {
  /** `none`: no audit has ended; `ageMs` is then since the database was set up. */
  readonly kind: LedgerAuditKind | 'none';
  readonly ageMs: number;
  readonly problems: number;
}

/** How the audits of each kind ended that went through the whole ledger; `ageMs`: since then. */
export async function readLastAudits(database: Database): Promise<readonly LastAudit[]> {
  const rows = await query(database, db =>
    db
      .selectFrom('ledger_audits')
      .select(['kind', 'last_finished_at', 'last_problems', database.nowMs.as('now')])
      .orderBy('kind')
      .execute(),
  );
  const ended = rows.flatMap(
    ({ kind, last_finished_at: finishedAt, last_problems: problems, now }) =>
      finishedAt === null || problems === null
        ? []
        : [{ kind, ageMs: Math.max(0, now - finishedAt), problems }],
  );
  if (ended.length > 0) return ended;
  const ageMs = (await readNowMs(database)) - (await schemaMadeAtMs(database));
  return [{ kind: 'none', ageMs: Math.max(0, ageMs), problems: 0 }];
}

/**
 * Begins a full audit, or goes on with one of which nothing was saved for `takeOverMs`.
 * @throws ContractError SERVICE_UNAVAILABLE: another process is at one.
 */
export async function beginFullRun(database: Database, start: AuditProgress, takeOverMs: number) {
  await ensureRow(database, 'full');
  const id = randomUUID();
  const giveUpAt = performance.now() + 2 * takeOverMs;
  for (;;) {
    const row = await query(database, db =>
      db
        .selectFrom('ledger_audits')
        .select(['run_id', 'saved_at', 'progress', database.nowMs.as('now')])
        .where('kind', '=', 'full')
        .executeTakeFirstOrThrow(),
    );
    const { run_id: runId, saved_at: savedAt } = row;
    const progress = row.progress === null ? start : (JSON.parse(row.progress) as AuditProgress);
    // Ours already where the answer to our own update was lost.
    if (runId === id) return { id, progress };
    if (savedAt === null || savedAt + takeOverMs <= row.now) {
      if (await saveRun(database, runId, id, progress)) return { id, progress };
    } else if (performance.now() >= giveUpAt) {
      throw new ContractError(
        'SERVICE_UNAVAILABLE',
        'Another full check of the ledger is running.',
      );
    } else {
      await delay(TAKE_OVER_POLL_MS);
    }
  }
}

/** @throws ContractError SERVICE_UNAVAILABLE: it was taken over; it must end. */
export async function saveFullRun(
  database: Database,
  id: string,
  progress: AuditProgress,
): Promise<void> {
  if (await saveRun(database, id, id, progress)) return;
  const detail = 'This full check stood still, and another one has taken its place.';
  throw new ContractError('SERVICE_UNAVAILABLE', detail);
}

function saveRun(
  database: Database,
  heldBy: string | null,
  id: string,
  progress: AuditProgress,
): Promise<boolean> {
  return query(database, db =>
    matchesOne(
      db
        .updateTable('ledger_audits')
        .set({ run_id: id, saved_at: database.nowMs, progress: JSON.stringify(progress) })
        .where('kind', '=', 'full')
        .where('run_id', heldBy === null ? 'is' : '=', heldBy),
    ),
  );
}

/** An audit went through everything. @param runId of a full one */
async function finishRun(
  database: Database,
  { startedAtMs, problemCount }: AuditProgress,
  runId?: string,
): Promise<void> {
  const kind: LedgerAuditKind = runId === undefined ? 'incremental' : 'full';
  await ensureRow(database, kind);
  await query(database, db =>
    db
      .updateTable('ledger_audits')
      .set({
        ...{ run_id: null, saved_at: null, progress: null, last_started_at: startedAtMs },
        last_finished_at: database.nowMs,
        last_problems: problemCount,
      })
      .where('kind', '=', kind)
      .where('run_id', runId === undefined ? 'is' : '=', runId ?? null)
      .execute(),
  );
}

/** Final jobs that ended before were compared with the ledger by an incremental audit. */
async function readJobsMarkMs(database: Database): Promise<number> {
  const row = await query(database, db =>
    db
      .selectFrom('ledger_audits')
      .select('jobs_checked_to')
      .where('kind', '=', 'incremental')
      .executeTakeFirst(),
  );
  return row?.jobs_checked_to ?? 0;
}

async function moveJobsMark(database: Database, toMs: number): Promise<void> {
  await ensureRow(database, 'incremental');
  await query(database, db =>
    db
      .updateTable('ledger_audits')
      .set({ jobs_checked_to: toMs })
      .where('kind', '=', 'incremental')
      .where('jobs_checked_to', '<', toMs)
      .execute(),
  );
}

function ensureRow(database: Database, kind: LedgerAuditKind): Promise<boolean> {
  const values = { kind, jobs_checked_to: 0 };
  return isInserted(query(database, db => db.insertInto('ledger_audits').values(values).execute()));
}

/*
 * The audit behind `credits check`: every balance against the ledger, every entry against its job,
 * every job against its entries, in bounded statements, beside live traffic.
 *
 * | kind        | reads                                                   | trusts                  |
 * |-------------|---------------------------------------------------------|-------------------------|
 * | incremental | entries since each account's checkpoint, the jobs that  | checkpoints, and that   |
 * |             | ended since the last one, and all open jobs             | what is behind them is  |
 * |             |                                                         | as it was               |
 * | full        | every entry, checkpoint and job                         | nothing                 |
 *
 * An incremental one that is interrupted begins again: what it did not have to read twice is behind
 * the checkpoints that it moved. A full one saves the last account, or job, that is done. A balance
 * that contradicts its checkpoint has its account read in full in either.
 */

/** Problems that are listed; there may be more, which are counted. */
const PROBLEMS_MAX = 1_000;
/** Jobs named per account: the first ones say what happened. */
const JOBS_NAMED_MAX = 20;
/** A full audit that is interrupted does this much again, and one account or page of jobs. */
const SAVE_INTERVAL_MS = 1_000;
/** No checkpoint is set nearer to the present: far more than a clock that is kept is set back. */
const CLOSE_MARGIN_MS = 600_000;
/** Entries between two moves of an account's checkpoint within one audit. */
const SPAN_ENTRIES_MAX = 5_000;
const DAY_MS = 86_400_000;
/** Each walk takes a fraction of the time that the one before took, so a few are enough. */
const ROUNDS_MAX = 20;
/** Rounds in which all that members' clocks may differ by has passed; fewer than ROUNDS_MAX. */
const SKEW_ROUNDS = 10;

export interface AuditOptions {
  readonly kind?: LedgerAuditKind;
  /** This account alone. Final jobs without entries are found by an audit of all. */
  readonly accountId?: string | undefined;
  /** Checkpoints that their entries contradict are removed, once they are among the problems. */
  readonly renewCheckpoints?: boolean;
  readonly onProgress?: (progress: Pick<AuditProgress, 'accounts' | 'entries' | 'jobs'>) => void;
}

/** The bounds that tests make small. */
const TUNING = {
  pageRows: LEDGER_PAGE_ROWS,
  spanEntriesMax: SPAN_ENTRIES_MAX,
  closeMarginMs: CLOSE_MARGIN_MS,
  saveIntervalMs: SAVE_INTERVAL_MS,
  takeOverMs: TAKE_OVER_MS,
};

type AccountTuning = Pick<typeof TUNING, 'pageRows' | 'spanEntriesMax' | 'closeMarginMs'>;

export interface LedgerAudit extends Omit<AuditProgress, 'startedAtMs' | 'phase' | 'after'> {
  readonly kind: LedgerAuditKind;
  /** It went on with an interrupted full one. */
  readonly resumed: boolean;
}

/** @throws ContractError SERVICE_UNAVAILABLE: no database, or another full audit is under way. */
export async function auditLedger(
  database: Database,
  options: AuditOptions = {},
  tuning: Partial<typeof TUNING> = {},
): Promise<LedgerAudit> {
  const { kind = 'incremental', accountId } = options;
  const bounds = { ...TUNING, ...tuning };
  const start = startOf(await readNowMs(database));
  const run =
    kind === 'full' && accountId === undefined
      ? await beginFullRun(database, start, bounds.takeOverMs)
      : undefined;
  const progress = { ...(run?.progress ?? start) };
  const audit = new Audit(database, { kind, options, bounds, progress, runId: run?.id });
  if (accountId === undefined) await audit.run();
  else await audit.auditAccount(accountId);
  const { accounts, entries, jobs, problems, problemCount } = progress;
  const resumed = run !== undefined && run.progress !== start;
  return { kind, resumed, accounts, entries, jobs, problems, problemCount };
}

export function startOf(startedAtMs: number): AuditProgress {
  const none = { accounts: 0, entries: 0, jobs: 0, problems: [], problemCount: 0 };
  return { startedAtMs, phase: 'accounts', after: '', ...none };
}

interface AuditParts {
  readonly kind: LedgerAuditKind;
  readonly options: AuditOptions;
  readonly bounds: typeof TUNING;
  readonly progress: { -readonly [K in keyof AuditProgress]: AuditProgress[K] };
  /** Only for a full audit of all accounts. */
  readonly runId: string | undefined;
}

class Audit {
  readonly #database: Database;
  readonly #parts: AuditParts;
  #savedAtMs = performance.now();

  constructor(database: Database, parts: AuditParts) {
    this.#database = database;
    this.#parts = parts;
  }

  async run(): Promise<void> {
    const { progress, runId } = this.#parts;
    if (progress.phase === 'accounts') {
      await this.#auditAccounts();
      Object.assign(progress, { phase: 'jobs', after: '' });
    }
    if (runId === undefined) await this.#auditEndedJobs();
    else await this.#auditAllJobs();
    await this.#save(true);
    await finishRun(this.#database, progress, runId);
  }

  async auditAccount(accountId: string): Promise<void> {
    const { kind, options, bounds, progress } = this.#parts;
    const { problems } = await auditAccount(this.#database, accountId, {
      ...bounds,
      full: kind === 'full',
      renewCheckpoints: options.renewCheckpoints ?? false,
      onEntries: count => {
        progress.entries += count;
        options.onProgress?.(progress);
      },
    });
    this.#add(problems);
    progress.accounts += 1;
  }

  async #auditAccounts(): Promise<void> {
    const { progress } = this.#parts;
    for await (const id of accountIdsAfter(this.#database, progress.after)) {
      await this.auditAccount(id);
      progress.after = id;
      await this.#save();
    }
  }

  async #auditAllJobs(): Promise<void> {
    const { progress } = this.#parts;
    for (;;) {
      const last = await this.#auditJobs('all', { atMs: 0, id: progress.after });
      if (last === undefined) return;
      progress.after = last.id;
      await this.#save();
    }
  }

  /** The mark stays behind the first problem, which the next audit then finds again. */
  async #auditEndedJobs(): Promise<void> {
    const { bounds, progress } = this.#parts;
    const before = progress.problemCount;
    const markMaxMs = progress.startedAtMs - bounds.closeMarginMs;
    let after: PageCursor = { atMs: await readJobsMarkMs(this.#database), id: '' };
    for (;;) {
      const last = await this.#auditJobs('ended', after);
      if (last === undefined) return;
      after = last;
      if (progress.problemCount > before) continue;
      await moveJobsMark(this.#database, Math.min(last.atMs, markMaxMs));
    }
  }

  async #auditJobs(of: 'all' | 'ended', after: PageCursor): Promise<PageCursor | undefined> {
    const { options, progress } = this.#parts;
    const jobs = await readJobEntries(this.#database, of, after);
    const problems = jobs.flatMap(({ id, accountId, state, isUnpaid, ...entries }) => {
      const problem = jobProblem(state, entries, isUnpaid);
      return problem === undefined ? [] : [{ accountId, jobId: id, problem }];
    });
    this.#add(problems);
    progress.jobs += jobs.length;
    options.onProgress?.(progress);
    return jobs.at(-1);
  }

  #add(problems: readonly LedgerProblem[]): void {
    if (problems.length === 0) return;
    const { progress } = this.#parts;
    const known = new Set(progress.problems.map(({ jobId }) => jobId));
    const more = problems.filter(({ jobId }) => jobId === null || !known.has(jobId));
    progress.problemCount += more.length;
    progress.problems = [...progress.problems, ...more].slice(0, PROBLEMS_MAX);
  }

  async #save(now = false): Promise<void> {
    const { bounds, progress, runId } = this.#parts;
    if (runId === undefined) return;
    if (!now && performance.now() < this.#savedAtMs + bounds.saveIntervalMs) return;
    await saveFullRun(this.#database, runId, progress);
    this.#savedAtMs = performance.now();
  }
}

interface AccountOptions extends AccountTuning {
  readonly full: boolean;
  readonly renewCheckpoints: boolean;
  readonly onEntries: (count: number) => void;
}

/** One account's verdict and sums, by its checkpoint unless its balances contradict it. */
export function auditOneAccount(database: Database, accountId: string) {
  const options = { ...TUNING, full: false, renewCheckpoints: false, onEntries: () => undefined };
  return auditAccount(database, accountId, options);
}

async function auditAccount(database: Database, accountId: string, options: AccountOptions) {
  const checkpoint = await readCheckpoint(database, accountId);
  if (!options.full) {
    const verdict = await new AccountAudit(database, accountId, options, checkpoint).trusting();
    if (verdict.agrees || checkpoint === NOTHING_CLOSED) return verdict;
    // The entries tell which of the two is wrong.
  }
  return new AccountAudit(database, accountId, options, checkpoint).inFull();
}

/*
 * The audit of one account: its entries in their order, each against its job; the sums against the
 * checkpoint; and the balances against both.
 *
 * How it reads a moving ledger without a snapshot. Every transaction that writes an entry takes the
 * account's row first, so entries become visible in the order of their creation, and after
 * awaitEarlierWriters nothing that was created before the call is still to come. What is older than
 * that is walked in pages at leisure; the rest, a page at most, comes in the statement that reads
 * the balances.
 *
 * The checkpoint moves only up to where nothing was found wrong: a problem is found again by every
 * later audit until it is mended. It stays behind a margin, in case the database's clock is set back:
 * what is then entered before it is in no sum, the balance differs, and the entries are read again
 * from the first, which shows the checkpoint to be wrong.
 */
class AccountAudit {
  readonly #database: Database;
  readonly #accountId: string;
  readonly #options: AccountOptions;
  readonly #problems: LedgerProblem[] = [];
  readonly #jobsNamed = new Set<string>();
  readonly #checkpoint: LedgerCheckpoint;
  /** The checkpoint is yet to be compared with the entries before it. */
  #isAhead = false;
  /** Where the checkpoint stands: it moves from there, and only on. */
  #closedToMs: number;
  #clean = true;
  #sums: Record<keyof LedgerCheckpoint['sums'], number> = { ...NOTHING_CLOSED.sums };
  #entries = 0;
  /** How many of them the last checkpoint counts. */
  #closedEntries = 0;
  #last: PageCursor = { atMs: 0, id: '' };

  constructor(
    database: Database,
    accountId: string,
    options: AccountOptions,
    checkpoint: LedgerCheckpoint,
  ) {
    this.#database = database;
    this.#accountId = accountId;
    this.#options = options;
    this.#checkpoint = checkpoint;
    this.#closedToMs = checkpoint.closedToMs;
  }

  trusting() {
    const { closedToMs, entries, sums } = this.#checkpoint;
    this.#sums = { ...sums };
    this.#entries = entries;
    this.#closedEntries = entries;
    this.#last = { atMs: closedToMs, id: '' };
    return this.#read();
  }

  inFull() {
    this.#isAhead = this.#checkpoint !== NOTHING_CLOSED;
    return this.#read();
  }

  async #read() {
    const { pageRows, closeMarginMs } = this.#options;
    let page = await this.#readPage();
    const closableMs = page.nowMs - closeMarginMs;
    const [oldest] = page.entries;
    const isDayOld = oldest !== undefined && endOfDayMs(oldest.atMs) <= closableMs;
    for (let round = 0; page.entries.length === pageRows || (isDayOld && round === 0); round += 1) {
      if (round === ROUNDS_MAX) {
        throw new Error(`the ledger of account ${this.#accountId} grows faster than it is read`);
      }
      // What is nearer to the present than clocks differ can be walked only once it is older.
      if (round > 1) await delay(this.#skewMs / SKEW_ROUNDS);
      await this.#walk(page.nowMs - this.#skewMs, closableMs);
      page = await this.#readPage();
    }
    for (const entry of page.entries) {
      if (this.#isAhead) await this.#compare(entry.atMs);
      this.#count(entry);
    }
    this.#options.onEntries(page.entries.length);
    await this.#compare(page.nowMs);
    if (this.#isAhead) await this.#contradicted('and that is in the future');
    if (page.openJobs > 0) await this.#checkOpenJobs();
    return this.#conclude(page);
  }

  #conclude({ balances, openJobs, nowMs }: Awaited<ReturnType<typeof readAccountPage>>) {
    const wrong =
      balances === undefined
        ? ['the ledger names an account that does not exist']
        : imbalances(balances, this.#sums, openJobs);
    for (const problem of wrong) this.#add(null, problem);
    const agrees = wrong.length === 0 && this.#checkpoint.closedToMs <= nowMs;
    return { problems: this.#problems, balances, sums: this.#sums, agrees };
  }

  /** How far behind now() an entry may be dated that is entered after it. */
  get #skewMs(): number {
    return this.#database.engine.members === 'several' ? MEMBER_CLOCKS_MS_MAX : 0;
  }

  /** Counts and checks the entries before an instant, and moves the checkpoint on the way. */
  async #walk(beforeMs: number, closableMs: number): Promise<void> {
    const { pageRows, onEntries } = this.#options;
    await awaitEarlierWriters(this.#database, this.#accountId);
    for (let more = true; more; ) {
      const { entries } = await this.#readPage(beforeMs);
      for (const entry of entries) {
        // Most entries stand at no border: they are not waited for.
        if (entry.atMs > this.#last.atMs) {
          if (this.#isDue(entry.atMs, closableMs)) await this.#close(entry.atMs, closableMs);
          if (this.#isAhead) await this.#compare(entry.atMs);
        }
        this.#count(entry);
      }
      onEntries(entries.length);
      more = entries.length === pageRows;
    }
    await this.#compare(beforeMs);
    if (this.#isDue(beforeMs, closableMs)) await this.#close(beforeMs, closableMs);
  }

  /** After many entries, and before the first that is too young for a checkpoint behind it. */
  #isDue(nextAtMs: number, closableMs: number): boolean {
    const span = this.#entries - this.#closedEntries;
    return span > 0 && (span >= this.#options.spanEntriesMax || nextAtMs >= closableMs);
  }

  /**
   * Moves the checkpoint to the end of the day of what was counted, or to the next entry where that
   * comes before.
   */
  async #close(nextAtMs: number, closableMs: number): Promise<void> {
    const { atMs } = this.#last;
    if (!this.#clean || this.#isAhead || atMs >= closableMs) return;
    const closedToMs = Math.min(nextAtMs, closableMs, endOfDayMs(atMs));
    if (closedToMs <= this.#closedToMs) return;
    const checkpoint = { closedToMs, entries: this.#entries, sums: this.#sums };
    await moveCheckpoint(this.#database, this.#accountId, this.#closedToMs, checkpoint);
    this.#closedToMs = closedToMs;
    this.#closedEntries = this.#entries;
  }

  async #compare(nextAtMs: number): Promise<void> {
    if (!this.#isAhead || this.#checkpoint.closedToMs > nextAtMs) return;
    this.#isAhead = false;
    this.#closedEntries = this.#entries;
    const counted = describeSums({ entries: this.#entries, sums: this.#sums });
    if (describeSums(this.#checkpoint) === counted) return;
    await this.#contradicted(`there are ${counted}`);
  }

  async #contradicted(why: string): Promise<void> {
    const { closedToMs } = this.#checkpoint;
    const told = describeSums(this.#checkpoint);
    const problem = `the checkpoint to ${instant(closedToMs)} says ${told}; ${why}`;
    this.#problems.push({ accountId: this.#accountId, jobId: null, problem });
    if (!this.#options.renewCheckpoints) {
      this.#clean = false;
      return;
    }
    await removeCheckpoint(this.#database, this.#accountId, closedToMs);
    this.#closedToMs = NOTHING_CLOSED.closedToMs;
    this.#closedEntries = 0;
  }

  #count(entry: AuditedEntry): void {
    this.#check(entry);
    this.#sums[entry.kind] += entry.amount;
    this.#entries += 1;
    this.#last = entry;
  }

  #check({ kind, slot, amount, jobId, job, partner }: AuditedEntry): void {
    if (SLOT_OF[kind] !== slot) this.#add(jobId, `a ${kind} stands in the slot ${slot}`);
    if (jobId === null) return;
    if (job !== null && job.accountId !== this.#accountId) {
      this.#add(jobId, `the job is of account ${job.accountId}, a ${kind} of it is not`);
      return;
    }
    const entries =
      slot === 'reserve'
        ? { reserve: amount, settlement: partner }
        : { reserve: partner?.amount ?? null, settlement: { kind, amount } };
    const problem = jobProblem(job?.state ?? null, entries, job?.isUnpaid);
    if (problem !== undefined) this.#add(jobId, problem);
  }

  async #checkOpenJobs(): Promise<void> {
    const of = { openOf: this.#accountId };
    for (const job of await readJobEntries(this.#database, of, { atMs: 0, id: '' })) {
      const problem = jobProblem(job.state, job, job.isUnpaid);
      if (problem !== undefined) this.#add(job.id, problem);
    }
  }

  #add(jobId: string | null, problem: string): void {
    this.#clean = false;
    if (jobId !== null) {
      if (this.#jobsNamed.size === JOBS_NAMED_MAX || this.#jobsNamed.has(jobId)) return;
      this.#jobsNamed.add(jobId);
    }
    this.#problems.push({ accountId: this.#accountId, jobId, problem });
  }

  #readPage(beforeMs?: number) {
    const { pageRows } = this.#options;
    const page = { after: this.#last, pageRows, ...(beforeMs !== undefined && { beforeMs }) };
    return readAccountPage(this.#database, this.#accountId, page);
  }
}

function endOfDayMs(atMs: number): number {
  return (Math.floor(atMs / DAY_MS) + 1) * DAY_MS;
}

/** Instants that JavaScript has no date for are written as numbers. */
function instant(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}
