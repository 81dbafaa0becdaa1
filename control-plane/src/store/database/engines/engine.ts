/** What the store has to know of a database engine: a row of the table in engines.ts. */
import type { DatabaseDialect } from '../clock.ts';

export type DatabaseErrorKind =
  /**
   * Another transaction was in the way; nothing was committed. Worth the whole transaction again.
   */
  | 'conflict'
  /** No answer: a commit under way may or may not have happened. Worth another try, carefully. */
  | 'connection'
  /**
   * The server is not the primary any more; nothing was committed. Its connections stay with it for
   * as long as they are used, so they are closed: the same name may lead to the new primary.
   */
  | 'read-only'
  /** The server answers, but can not do it now: a full disk. */
  | 'unavailable'
  /** A unique constraint. */
  | 'duplicate'
  | 'other';

/** By number; a function where one number has several meanings, which its message tells. */
export type ErrorCodes = Readonly<
  Record<number, DatabaseErrorKind | ((message: string) => DatabaseErrorKind)>
>;

/** A server's variables by their names in lower case, those of SERVER_VARIABLES that it has. */
export type ServerVariables = ReadonlyMap<string, string>;

/** What must be so for all that the store promises; a start warns where it is not. */
export interface Setting {
  readonly variable: string;
  readonly value: string;
  /** Unless this variable has this value. */
  readonly unless?: readonly [variable: string, value: string];
  readonly warning: string;
}

export interface Engine {
  /** As logs and errors name it. */
  readonly name: string;
  readonly dialect: DatabaseDialect;
  /** How it is known that the store works on it. */
  readonly shownBy: 'tests' | 'documentation';
  /** Whether a server is of this engine; the first row that says so has it. */
  readonly isServer: (variables: ServerVariables) => boolean;
  /** Why it is refused at the start. */
  readonly refusal?: string;
  /**
   * What keeps two transactions from changing the same at once. 'locks': the second waits at a row
   * that the first has locked, whether it changed it or not. 'certification': members lock for
   * themselves; of two that changed the same row on different members the later commit fails, and a
   * row that was only locked, or set to what it was, is no conflict.
   */
  readonly conflicts: 'locks' | 'certification';
  /** Begins each session: it then reads all that was committed before, on whichever member. */
  readonly session: readonly string[];
  /**
   * Of a server that takes no writes: 'leave', before anything is asked of it, since another one of
   * the same address takes them and it may lag behind; 'read', it goes on to answer reads.
   */
  readonly readOnlyMembers: 'leave' | 'read';
  /** A status variable and its value on a member that takes part. */
  readonly takesPart?: readonly [status: string, value: string];
  /** Where `get_lock` keeps others out. Where it is a member, migrations take turns by a row. */
  readonly advisoryLocks: 'database' | 'member';
  /**
   * 'several': one address may lead to several servers, each of which may fall silent for itself, and
   * now() is the clock of whichever a session is at.
   */
  readonly members: 'one' | 'several';
  /** Whether a transaction may be begun read only. */
  readonly readOnlyTransactions: boolean;
  readonly settings: readonly Setting[];
  /** Beside those of the MySQL family (error-codes.ts). */
  readonly errorCodes: ErrorCodes;
}
