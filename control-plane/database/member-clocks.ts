/**
 * Whether the clocks of a database's members agree. Leases and expiry are judged by now() of
 * whichever member a session is at (engines.ts), with margins far above MEMBER_CLOCKS_MS_MAX. Each
 * look opens a connection of its own, since those of the pool stay where they are, and so sees the
 * members that the address leads to.
 */

import type { Logger } from 'pino';
import type { Database } from './database.ts';
import type { Member } from './member.ts';

/** Clocks further apart are an error at the start, and while it runs a line of the log. */
export const MEMBER_CLOCKS_MS_MAX = 2_000;
/**
 * The time for which a look at a clock is comparable: a process's own clock, by which members are
 * compared, drifts by less than a millisecond meanwhile.
 */
const SEEN_MS = 60_000;
/** Members that are remembered: far more than a cluster has. */
const MEMBERS_MAX = 64;
/** Looks at the start: all members of a cluster of so many behind an address that takes turns. */
const LOOKS_AT_START = 5;

interface ClockComparison {
  /** At least so much between two members, however long the answers took. 0: fewer than two. */
  readonly differenceMs: number;
  /** `host:port` of the one that is furthest behind, and of the one furthest ahead. */
  readonly behind: string;
  readonly ahead: string;
}

interface Seen {
  readonly name: string;
  readonly aheadMs: number;
  /** The clock was ahead by so much more or less at most. */
  readonly errorMs: number;
  readonly atMs: number;
}

/**
 * Makes the look at the clock of one more member, which compares those seen within SEEN_MS.
 * Undefined: the database has one clock. The look rejects if no member answers.
 */
export function memberClocks(database: Database): () => Promise<ClockComparison | undefined> {
  const seen = new Map<string, Seen>();
  return async () => {
    const { engine, newMember } = database;
    if (engine.members === 'one' || newMember === undefined) return undefined;
    note(seen, await newMember());
    return furthestApart([...seen.values()]);
  };
}

function note(seen: Map<string, Seen>, { name, clock }: Member): void {
  const nowMs = performance.now();
  for (const [known, { atMs }] of seen) {
    if (nowMs - atMs > SEEN_MS) seen.delete(known);
  }
  if (clock === undefined || seen.size >= MEMBERS_MAX) return;
  const { aheadMs, roundMs } = clock;
  seen.set(name, { name, aheadMs, errorMs: roundMs / 2, atMs: nowMs });
}

function furthestApart(seen: readonly Seen[]): ClockComparison {
  let most: ClockComparison = { differenceMs: 0, behind: '', ahead: '' };
  for (const ahead of seen) {
    for (const behind of seen) {
      const error = ahead.errorMs + behind.errorMs;
      const differenceMs = ahead.aheadMs - behind.aheadMs - error;
      if (differenceMs <= most.differenceMs) continue;
      most = { differenceMs, behind: behind.name, ahead: ahead.name };
    }
  }
  return most;
}

/** Describes the clocks for the operator, in one line. */
function describeClocks({ differenceMs, behind, ahead }: ClockComparison): string {
  const seconds = (differenceMs / 1000).toFixed(1);
  return (
    `the clock of ${ahead} is ${seconds} s ahead of ${behind}'s, and leases and expiry go by both: ` +
    `synchronise the clocks of the database's members, to ${MEMBER_CLOCKS_MS_MAX / 1000} s at least`
  );
}

/** Rejects with an Error for the operator where they are too far apart. */
export async function requireAgreeingClocks(database: Database): Promise<void> {
  const look = memberClocks(database);
  for (let looks = 0; looks < LOOKS_AT_START; looks += 1) {
    const compared = await look().catch(err => {
      // One that does not answer says nothing: the others may start without it.
      database.log.warn({ err }, 'the clock of a member of the database was not read');
      return furthestApart([]);
    });
    if (compared === undefined) return;
    if (compared.differenceMs > MEMBER_CLOCKS_MS_MAX) throw new Error(describeClocks(compared));
  }
}

/** A look is a connection of its own: at this pace each of three members is seen twice a minute. */
export const CLOCK_LOOK_MS = 10_000;

/**
 * Says when clocks begin to differ, and when they agree again. They are not mended, and the service
 * goes on.
 */
export function watchClocks(
  compare: () => Promise<ClockComparison | undefined>,
  log: Pick<Logger, 'info' | 'error'>,
) {
  let last: ClockComparison | undefined;
  let apart = false;
  return {
    /** The difference at the last look. undefined: there is one clock, or there was no look yet. */
    get differenceMs() {
      return last?.differenceMs;
    },
    /** The caller calls it every CLOCK_LOOK_MS. */
    async look(): Promise<void> {
      last = await compare();
      if (last === undefined) return;
      const isApart = last.differenceMs > MEMBER_CLOCKS_MS_MAX;
      if (isApart === apart) return;
      apart = isApart;
      if (apart) log.error({ ...last }, describeClocks(last));
      else log.info({ ...last }, 'the clocks of the database’s members agree again');
    },
  };
}
