/** What a connection learns of the server that it has come to, before its first statement. */
import { type ConnectionOptions, createConnection } from 'mysql2';
import { MemberError } from '../database-errors.ts';
import { type Engine, engineOf, SERVER_VARIABLES, type ServerVariables } from '../engines.ts';

export interface Member {
  readonly engine: Engine;
  /** `host:port`, by its own word. */
  readonly name: string;
  readonly variables: ServerVariables;
  /** Its clock less this process's, and how long the answer took; undefined: it does not say. */
  readonly clock: ClockReading | undefined;
}

export interface ClockReading {
  /** Its clock less that of this process, which performance.now() moves on. */
  readonly aheadMs: number;
  /** The reading is as old as this at most, and as wrong as half of it. */
  readonly roundMs: number;
}

/** One statement's rows. */
export type Ask = (statement: string) => Promise<unknown>;

interface ServerVariable {
  readonly Variable_name: string;
  readonly Value: string;
}

const NAMES = SERVER_VARIABLES.map(name => `'${name}'`).join();
const ASKED = `show variables where variable_name in (${NAMES})`;

export async function readMember(ask: Ask): Promise<Member> {
  const askedAtMs = performance.now();
  const rows = (await ask(ASKED)) as readonly ServerVariable[];
  const answeredAtMs = performance.now();
  const variables: ServerVariables = new Map(
    rows.map(row => [row.Variable_name.toLowerCase(), row.Value]),
  );
  const name = `${variables.get('hostname') ?? 'unknown'}:${variables.get('port') ?? 'unknown'}`;
  const clock = readClock(variables, askedAtMs, answeredAtMs);
  return { engine: engineOf(variables), name, variables, clock };
}

/** By a connection of its own, which ends with the answer. */
export async function readMemberAt(place: ConnectionOptions, msMax: number): Promise<Member> {
  const connection = createConnection({ ...place, connectTimeout: msMax });
  const ask: Ask = sql =>
    new Promise((resolve, reject) => {
      connection.query({ sql, timeout: msMax }, (error: Error | null, rows) =>
        error ? reject(error) : resolve(rows),
      );
    });
  // Told to whoever asks, too; without a listener it would end the process.
  connection.on('error', () => undefined);
  try {
    // Else the time that a connection takes would be one for which the clock is not known.
    await ask('select 1');
    return await readMember(ask);
  } finally {
    connection.destroy();
  }
}

/** Rejects with MemberError where nothing may be asked of it. */
export async function requireUsable(member: Member, ask: Ask): Promise<void> {
  const { engine, name } = member;
  if (engine.refusal !== undefined) {
    throw new MemberError('unavailable', `${engine.name} is not supported: ${engine.refusal}`);
  }
  if (engine.readOnlyMembers === 'leave' && isReadOnly(member)) {
    throw new MemberError('read-only', `${name} of ${engine.name} takes no writes`);
  }
  if (engine.takesPart === undefined) return;
  const [status, value] = engine.takesPart;
  const [row] = (await ask(`show status like '${status}'`)) as readonly ServerVariable[];
  if (row?.Value === value) return;
  throw new MemberError('read-only', `${name} of ${engine.name} does not take part (${status})`);
}

function isReadOnly({ variables }: Member): boolean {
  return ['read_only', 'super_read_only'].some(name =>
    ['ON', '1'].includes(variables.get(name) ?? ''),
  );
}

function readClock(
  variables: ServerVariables,
  askedAtMs: number,
  answeredAtMs: number,
): ClockReading | undefined {
  const seconds = Number(variables.get('timestamp') || Number.NaN);
  if (!Number.isFinite(seconds) || seconds <= 0) return undefined;
  const middleMs = performance.timeOrigin + (askedAtMs + answeredAtMs) / 2;
  return { aheadMs: seconds * 1000 - middleMs, roundMs: answeredAtMs - askedAtMs };
}
