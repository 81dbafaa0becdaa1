/**
 * Migrations of one database run in one process at a time, also where `get_lock` keeps out nobody
 * at another member (engines.ts): the turn is a row. Its holder moves the row's count on while it
 * works. No clock says when a holder is dead, since members' clocks differ and a change of a table
 * may hold up every write of a cluster for minutes, the holder's own among them: whoever waits takes
 * over after it has read the same count LOOKS_MIN times, each answered at once.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type Kysely, sql } from 'kysely';
import type { Database } from './connect.ts';
import { databaseErrorKind } from './database-errors.ts';
import { ascii, createTable, INTEGER } from './migrations/ddl.ts';
import { query } from './transact.ts';
import { matchesOne } from './values.ts';

/** The holder moves its count on so often. */
const BEAT_MS = 2_000;
/** Whoever waits looks so often. */
const LOOK_MS = 1_000;
/** An answer that took longer says nothing about the holder: the database was busy. */
const LOOK_SLOW_MS = 500;
/** Looks at one count in a row before its holder is dead: it has had ten times to move it on. */
const LOOKS_MIN = 20;
/** As long as MySQL's own lock of Kysely's is waited for. */
const WAIT_MS_MAX = 3_600_000;

const TABLE = 'migration_turns';
const ID = 'migrations';

type TurnTable = Record<typeof TABLE, { id: string; holder: string; beat: number }>;

interface Seen {
  readonly holder: string;
  readonly beat: number;
}

/** Nobody's. */
const FREE = '';

export interface Turn {
  /** Rejects where another process has taken the turn over: nothing may be changed any more. */
  requireHeld(): Promise<void>;
}

/** The times above; shorter ones for tests. */
export interface TurnTiming {
  readonly beatMs: number;
  readonly lookMs: number;
}

const TIMING: TurnTiming = { beatMs: BEAT_MS, lookMs: LOOK_MS };

/** Waits for the turn, holds it while `work` runs, and gives it back however that ends. */
export async function inTurn<T>(
  database: Database,
  work: (turn: Turn) => Promise<T>,
  timing = TIMING,
): Promise<T> {
  if (database.engine.advisoryLocks === 'database')
    return work({ requireHeld: async () => undefined });
  await createTurn(database);
  const holder = randomUUID();
  await take(database, holder, timing);
  const held = new HeldTurn(database, holder, timing);
  try {
    return await work(held);
  } finally {
    await held.giveBack();
  }
}

class HeldTurn implements Turn {
  readonly #database: Database;
  readonly #holder: string;
  readonly #stop = new AbortController();
  readonly #beating: Promise<void>;
  #lost = false;

  constructor(database: Database, holder: string, { beatMs }: TurnTiming) {
    this.#database = database;
    this.#holder = holder;
    this.#beating = this.#beat(beatMs);
  }

  async requireHeld(): Promise<void> {
    // Asked, not remembered: this process may have stood still since it last knew.
    this.#lost ||= !(await move(this.#database, this.#holder, this.#holder));
    if (this.#lost) throw new Error('another process has taken over the turn to migrate');
  }

  async giveBack(): Promise<void> {
    this.#stop.abort();
    await this.#beating;
    if (this.#lost) return;
    try {
      await move(this.#database, this.#holder, FREE);
    } catch (error) {
      this.#database.log.warn({ err: error }, 'the turn to migrate is left to run out');
    }
  }

  async #beat(beatMs: number): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted && !this.#lost) {
      // Rejects when the turn is given back.
      await delay(beatMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        this.#lost ||= !(await move(this.#database, this.#holder, this.#holder));
      } catch (error) {
        // A change of a table holds up every write: it comes again, and nobody counts meanwhile.
        this.#database.log.warn({ err: error }, 'the turn to migrate was not moved on');
      }
    }
  }
}

/** Not a migration itself: it is there before the first one. */
async function createTurn(database: Database): Promise<void> {
  const { dialect } = database;
  await query(database, db =>
    createTable(db as unknown as Kysely<unknown>, dialect, {
      name: TABLE,
      columns: { id: ascii(16), holder: ascii(64), beat: INTEGER },
      primaryKey: ['id'],
    }),
  );
  if ((await read(database)) !== undefined) return;
  try {
    await query(database, db =>
      db
        .withTables<TurnTable>()
        .insertInto(TABLE)
        .values({ id: ID, holder: FREE, beat: 0 })
        .execute(),
    );
  } catch (error) {
    // Another process was faster.
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
}

async function take(database: Database, holder: string, { lookMs }: TurnTiming): Promise<void> {
  const giveUpAtMs = performance.now() + WAIT_MS_MAX;
  let seen = await requireTurn(database);
  for (let looks = 0; ; ) {
    const isDead = looks >= LOOKS_MIN;
    if (isDead) database.log.warn({ holder: seen.holder }, 'a process died while it migrated');
    if (seen.holder === FREE || isDead) {
      if (await takeFrom(database, seen, holder)) return;
    }
    if (performance.now() >= giveUpAtMs) {
      throw new Error(`another process has migrated for ${WAIT_MS_MAX / 60_000} minutes`);
    }
    await delay(lookMs);
    const askedAtMs = performance.now();
    const now = await requireTurn(database);
    const slow = performance.now() - askedAtMs > LOOK_SLOW_MS;
    const same = now.holder === seen.holder && now.beat === seen.beat;
    looks = same && !slow ? looks + 1 : 0;
    seen = now;
  }
}

async function requireTurn(database: Database): Promise<Seen> {
  const turn = await read(database);
  if (turn === undefined) throw new Error(`the row of ${TABLE} has gone`);
  return turn;
}

function read(database: Database): Promise<Seen | undefined> {
  return query(database, db =>
    db
      .withTables<TurnTable>()
      .selectFrom(TABLE)
      .select(['holder', 'beat'])
      .where('id', '=', ID)
      .executeTakeFirst(),
  );
}

/** True where the turn is this holder's from now on, also where the answer to that was lost. */
async function takeFrom(database: Database, seen: Seen, holder: string): Promise<boolean> {
  const taken = await query(database, db =>
    matchesOne(
      db
        .withTables<TurnTable>()
        .updateTable(TABLE)
        .set({ holder, beat: seen.beat + 1 })
        .where('id', '=', ID)
        .where('holder', '=', seen.holder)
        .where('beat', '=', seen.beat),
    ),
  );
  return taken || (await requireTurn(database)).holder === holder;
}

/** False where it is another's. */
function move(database: Database, from: string, to: string): Promise<boolean> {
  return query(database, db =>
    matchesOne(
      db
        .withTables<TurnTable>()
        .updateTable(TABLE)
        .set({ holder: to, beat: sql<number>`beat + 1` })
        .where('id', '=', ID)
        .where('holder', '=', from),
    ),
  );
}
