/**
 * The audit of one account: its entries in their order, each against its job; the sums against the
 * checkpoints; and the balances against both, as they are at one instant while others write.
 *
 * How it reads a moving ledger without a snapshot. Every transaction that writes an entry takes the
 * account's row first, so entries become visible in the order of their creation, and after
 * awaitEarlierWriters nothing that was created before the call is still to come. What is older than
 * that is read in pages at leisure; the rest, a page at most, in the statement that reads the
 * balances.
 *
 * Checkpoints are set by this file alone, and only up to where it found nothing wrong: a problem is
 * found again by every later audit until it is mended. They are set behind a margin, in case the
 * database's clock is set back: what is then entered before a checkpoint is in no sum, the balance
 * differs, and the entries are read again from the first, which shows the checkpoint to be wrong.
 */

import { setTimeout as delay } from 'node:timers/promises';
import {
  addSums,
  type Balances,
  imbalances,
  jobProblem,
  LEDGER_KINDS,
  type LedgerSums,
  SLOT_OF,
} from '../../domain/ledger.ts';
import {
  describeSums,
  endOfDayMs,
  type LedgerCheckpoint,
  LedgerTally,
  NOTHING_CLOSED,
} from '../../domain/ledger-checkpoint.ts';
import type { Database } from '../database/connect.ts';
import { MEMBER_CLOCKS_MS_MAX } from '../database/member-clocks.ts';
import {
  readCheckpointsAfter,
  readLastCheckpoint,
  removeCheckpointsFrom,
  writeCheckpoint,
} from './ledger-checkpoints.ts';
import {
  type AccountState,
  type EntryRow,
  type PagePlace,
  readAccountState,
  readEntries,
  readJobEntries,
  readNowMs,
} from './ledger-pages.ts';
import { awaitEarlierWriters } from './ledger-writer.ts';

/** No checkpoint is set nearer to the present: far more than a clock that is kept is set back. */
export const CLOSE_MARGIN_MS = 600_000;
/** Jobs, and checkpoints, named per account: the first ones say what happened. */
const PROBLEMS_MAX = 20;
/**
 * Walks towards the present until a page holds the rest. Each takes a fraction of the time that the
 * one before took, so a few are enough.
 */
const ROUNDS_MAX = 20;
/** Rounds in which all that members' clocks may differ by has passed; fewer than ROUNDS_MAX. */
const SKEW_ROUNDS = 10;

export interface LedgerProblem {
  readonly accountId: string;
  /** null: about the account as a whole. */
  readonly jobId: string | null;
  readonly problem: string;
}

export interface AccountAuditOptions {
  /** Entries of one statement. */
  readonly pageRows: number;
  readonly closeMarginMs: number;
  /** Entries between two checkpoints. */
  readonly spanEntriesMax: number;
  /** Checkpoints that the entries contradict are replaced, once they are among the problems. */
  readonly renewCheckpoints: boolean;
  readonly onEntries: (count: number) => void;
  /** All before this was read, with these problems; the audit can go on from here. */
  readonly onClosed: (to: LedgerCheckpoint, problems: readonly LedgerProblem[]) => Promise<void>;
}

export interface AccountVerdict {
  readonly problems: readonly LedgerProblem[];
  /** Undefined: there is no such account. */
  readonly balances: Balances | undefined;
  /** Over all entries. */
  readonly sums: LedgerSums;
}

/** Trusts the last checkpoint, unless the balances contradict it. */
export async function auditAccount(
  database: Database,
  accountId: string,
  options: AccountAuditOptions,
): Promise<AccountVerdict> {
  const last = await readLastCheckpoint(database, accountId);
  const audit = new AccountAudit(database, accountId, options);
  const verdict = await audit.trusting(last ?? NOTHING_CLOSED);
  if (verdict.agrees || last === undefined) return verdict;
  // The entries tell which of the two is wrong.
  return auditAccountInFull(database, accountId, NOTHING_CLOSED, options);
}

/**
 * Derives every checkpoint and balance from the entries.
 * @param from what an interrupted call passed to onClosed, with the problems before it
 */
export function auditAccountInFull(
  database: Database,
  accountId: string,
  from: LedgerCheckpoint,
  options: AccountAuditOptions,
  problems: readonly LedgerProblem[] = [],
): Promise<AccountVerdict> {
  return new AccountAudit(database, accountId, options, problems).inFull(from);
}

class AccountAudit {
  readonly #database: Database;
  readonly #accountId: string;
  readonly #options: AccountAuditOptions;
  readonly #problems: LedgerProblem[];
  readonly #jobsNamed: Set<string>;
  /** Nothing was found that a checkpoint must not be set behind. */
  #clean: boolean;
  /** Checkpoints ahead of the walk, in order; more may follow them while it has one. */
  #ahead: LedgerCheckpoint[] = [];
  /** Between the last checkpoint that was passed and its entries. */
  #difference = NO_DIFFERENCE;

  constructor(
    database: Database,
    accountId: string,
    options: AccountAuditOptions,
    problems: readonly LedgerProblem[] = [],
  ) {
    this.#database = database;
    this.#accountId = accountId;
    this.#options = options;
    this.#problems = [...problems];
    this.#jobsNamed = new Set(problems.flatMap(({ jobId }) => jobId ?? []));
    this.#clean = problems.length === 0;
  }

  /** From a checkpoint that is trusted. `agrees`: the balances agree with it. */
  async trusting(from: LedgerCheckpoint): Promise<AccountVerdict & { agrees: boolean }> {
    const state = await this.#readState(from);
    const { entries, firstEntryAtMs, nowMs } = state;
    const closableMs = nowMs - this.#options.closeMarginMs;
    const dayEnded = firstEntryAtMs !== null && endOfDayMs(firstEntryAtMs) <= closableMs;
    const walks = dayEnded || entries > this.#options.pageRows;
    const verdict = walks
      ? await this.#conclude(await this.#walk(from, closableMs, true))
      : await this.#conclude(from, state);
    return { ...verdict, agrees: verdict.agrees && from.closedToMs <= nowMs };
  }

  async inFull(from: LedgerCheckpoint): Promise<AccountVerdict> {
    const { nowMs } = await this.#readState(from);
    const base = await this.#walk(from, nowMs - this.#options.closeMarginMs, true);
    const verdict = await this.#conclude(base);
    // Other audits may have set some since: what is in the future of those, and of now, is wrong.
    const later = await readCheckpointsAfter(this.#database, this.#accountId, nowMs);
    const presentMs = later.length === 0 ? nowMs : await readNowMs(this.#database);
    const ahead = later.find(({ closedToMs }) => closedToMs > presentMs);
    if (ahead !== undefined) await this.#contradicted(ahead, 'and that is in the future');
    return verdict;
  }

  /** From a point to the present: the rest of the entries fits the page that goes with balances. */
  async #conclude(
    from: LedgerCheckpoint,
    read?: AccountState,
  ): Promise<AccountVerdict & { agrees: boolean }> {
    let base = from;
    let state = read ?? (await this.#readState(base));
    for (let round = 0; state.entries > this.#options.pageRows; round += 1) {
      if (round === ROUNDS_MAX) {
        throw new Error(`the ledger of account ${this.#accountId} grows faster than it is read`);
      }
      base = await this.#walk(base, state.nowMs - this.#skewMs(), false);
      // What is nearer to the present than clocks differ can be walked only once it is older.
      if (round > 0) await delay(this.#skewMs() / SKEW_ROUNDS);
      state = await this.#readState(base);
    }
    if (state.entries > 0) {
      const after = { atMs: base.closedToMs, id: '' };
      for (const entry of await this.#readEntries(after, Number.MAX_SAFE_INTEGER)) {
        this.#checkEntry(entry);
      }
    }
    if (state.openJobs > 0) await this.#checkOpenJobs();
    const sums = addSums(base.sums, state.sums);
    const { balances } = state;
    const wrong =
      balances === undefined
        ? ['the ledger names an account that does not exist']
        : imbalances(balances, sums, state.openJobs);
    for (const problem of wrong) this.#add(null, problem);
    return { problems: this.#problems, balances, sums, agrees: wrong.length === 0 };
  }

  /** How far behind now() an entry may be dated that is entered after it. */
  #skewMs(): number {
    return this.#database.engine.members === 'several' ? MEMBER_CLOCKS_MS_MAX : 0;
  }

  /** Counts and checks the entries before an instant. `closes`: sets checkpoints on the way. */
  async #walk(
    from: LedgerCheckpoint,
    beforeMs: number,
    closes: boolean,
  ): Promise<LedgerCheckpoint> {
    if (beforeMs <= from.closedToMs) return from;
    await awaitEarlierWriters(this.#database, this.#accountId);
    const tally = new LedgerTally(from, this.#options.spanEntriesMax);
    this.#ahead = await readCheckpointsAfter(this.#database, this.#accountId, from.closedToMs);
    let after: PagePlace = { atMs: from.closedToMs, id: '' };
    for (let more = true; more; ) {
      const page = await this.#readEntries(after, beforeMs);
      for (const entry of page) {
        // Most entries stand at no border: they are not waited for.
        if (this.#atBorder(tally, entry.atMs)) await this.#close(tally, entry.atMs, closes);
        this.#checkEntry(entry);
        tally.add({ kind: entry.kind, amount: entry.amount, createdAtMs: entry.atMs });
        after = entry;
      }
      more = page.length >= this.#options.pageRows;
    }
    await this.#close(tally, beforeMs, closes);
    return tally.at(beforeMs);
  }

  #atBorder(tally: LedgerTally, nextAtMs: number): boolean {
    const [checkpoint] = this.#ahead;
    if (checkpoint !== undefined) return checkpoint.closedToMs <= nextAtMs;
    return tally.due(nextAtMs) !== undefined;
  }

  /** Compares the checkpoints before an instant with what was counted, or sets the one due. */
  async #close(tally: LedgerTally, nextAtMs: number, closes: boolean): Promise<void> {
    let [checkpoint] = this.#ahead;
    while (checkpoint !== undefined && checkpoint.closedToMs <= nextAtMs) {
      this.#ahead.shift();
      const counted = tally.at(checkpoint.closedToMs);
      tally.closed();
      if (this.#differsAnew(checkpoint, counted)) {
        await this.#contradicted(checkpoint, `there are ${describeSums(counted)}`);
      }
      if (this.#ahead.length === 0) {
        const { closedToMs } = checkpoint;
        this.#ahead = await readCheckpointsAfter(this.#database, this.#accountId, closedToMs);
      }
      await this.#options.onClosed(counted, this.#problems);
      [checkpoint] = this.#ahead;
    }
    if (this.#ahead.length > 0 || !closes || !this.#clean) return;
    const due = tally.due(nextAtMs);
    if (due === undefined) return;
    tally.closed();
    const standing = await writeCheckpoint(this.#database, this.#accountId, due);
    if (standing !== undefined) {
      await this.#contradicted(standing, `there are ${describeSums(due)}`);
    }
    await this.#options.onClosed(due, this.#problems);
  }

  /** Not where it lacks, or has too much of, just what one before it does. */
  #differsAnew(checkpoint: LedgerCheckpoint, counted: LedgerCheckpoint): boolean {
    const difference = differenceOf(checkpoint, counted);
    const anew = difference !== NO_DIFFERENCE && difference !== this.#difference;
    this.#difference = difference;
    return anew;
  }

  async #contradicted(checkpoint: LedgerCheckpoint, why: string): Promise<void> {
    const { closedToMs } = checkpoint;
    const problem = `the checkpoint to ${instant(closedToMs)} says ${describeSums(checkpoint)}; ${why}`;
    if (this.#problems.length < PROBLEMS_MAX) {
      this.#problems.push({ accountId: this.#accountId, jobId: null, problem });
    }
    if (!this.#options.renewCheckpoints) {
      this.#clean = false;
      return;
    }
    await removeCheckpointsFrom(this.#database, this.#accountId, closedToMs);
    this.#ahead = [];
    this.#difference = NO_DIFFERENCE;
  }

  #checkEntry(entry: EntryRow): void {
    const { kind, slot, jobId, job, partner } = entry;
    if (SLOT_OF[kind] !== slot) this.#add(jobId, `a ${kind} stands in the slot ${slot}`);
    if (jobId === null) return;
    if (job !== null && job.accountId !== this.#accountId) {
      this.#add(jobId, `the job is of account ${job.accountId}, a ${kind} of it is not`);
      return;
    }
    const own = { kind, amount: entry.amount };
    const entries =
      slot === 'reserve'
        ? { reserve: own.amount, settlement: partner }
        : { reserve: partner?.amount ?? null, settlement: own };
    const problem = jobProblem(job?.state ?? null, entries, job?.isPlayground);
    if (problem !== undefined) this.#add(jobId, problem);
  }

  async #checkOpenJobs(): Promise<void> {
    const jobs = await readJobEntries(this.#database, { openOf: this.#accountId }, FIRST);
    for (const job of jobs) {
      const problem = jobProblem(job.state, job, job.isPlayground);
      if (problem !== undefined) this.#add(job.id, problem);
    }
  }

  #add(jobId: string | null, problem: string): void {
    this.#clean = false;
    if (jobId !== null) {
      if (this.#jobsNamed.size === PROBLEMS_MAX || this.#jobsNamed.has(jobId)) return;
      this.#jobsNamed.add(jobId);
    }
    this.#problems.push({ accountId: this.#accountId, jobId, problem });
  }

  #readState(from: LedgerCheckpoint): Promise<AccountState> {
    const { pageRows } = this.#options;
    return readAccountState(this.#database, this.#accountId, from.closedToMs, pageRows);
  }

  /** Each entry once; one with two partners is a problem of its job. */
  async #readEntries(after: PagePlace, beforeMs: number): Promise<EntryRow[]> {
    const { pageRows, onEntries } = this.#options;
    const page = { after, beforeMs, pageRows };
    const rows = await readEntries(this.#database, this.#accountId, page);
    onEntries(rows.length);
    return rows.filter((row, index) => {
      if (row.id !== rows[index - 1]?.id) return true;
      this.#add(row.jobId, 'the job has two entries where one may be');
      return false;
    });
  }
}

function differenceOf(one: LedgerCheckpoint, other: LedgerCheckpoint): string {
  const kinds = LEDGER_KINDS.map(kind => one.sums[kind] - other.sums[kind]);
  return [one.entries - other.entries, ...kinds].join();
}

const NO_DIFFERENCE = differenceOf(NOTHING_CLOSED, NOTHING_CLOSED);

/** Before the first. */
const FIRST: PagePlace = { atMs: 0, id: '' };

/** Instants that JavaScript has no date for are written as numbers. */
function instant(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}
