/** A server that an address leads to: its engine, its name, its clock, and whether it may be used. */

import { type ConnectionOptions, createConnection } from 'mysql2';
import {
  type Engine,
  engineOf,
  isOn,
  MemberError,
  SERVER_VARIABLES,
  type ServerVariables,
} from './engines.ts';

/** Time for TCP, TLS and the handshake. */
export const CONNECT_MS_MAX = 5_000;

/** A connection learns this of its server before its first statement. */
export interface Member {
  readonly engine: Engine;
  /** `host:port`, by its own word. */
  readonly name: string;
  readonly variables: ServerVariables;
  /**
   * The server's clock less that of this process, which performance.now() advances. At most as old
   * as the round trip, and as wrong as half of it. Undefined: the server does not say.
   */
  readonly clock: { readonly aheadMs: number; readonly roundMs: number } | undefined;
}

/** One statement's rows. */
type Ask = (statement: string) => Promise<unknown>;

interface ServerVariable {
  readonly Variable_name: string;
  readonly Value: string;
}

const NAMES = SERVER_VARIABLES.map(name => `'${name}'`).join();
const ASKED = `show variables where variable_name in (${NAMES})`;

/**
 * Begins each session: hosts set limits and another character set for all, by `init_connect` or the
 * server's options, and what is asked next would be cut or refused.
 */
const BEGIN = `set names utf8mb4 collate utf8mb4_bin, sql_big_selects = 1,
  sql_select_limit = 18446744073709551615`;

export async function readMember(ask: Ask): Promise<Member> {
  // Opens the connection too, whose time would otherwise count as a difference of clocks.
  await ask(BEGIN);
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

/** Asks by a connection of its own, which ends with the answer. */
export async function readMemberAt(place: ConnectionOptions): Promise<Member> {
  const connection = createConnection({ ...place, connectTimeout: CONNECT_MS_MAX });
  const ask: Ask = sql =>
    new Promise((resolve, reject) => {
      connection.query({ sql, timeout: CONNECT_MS_MAX }, (error: Error | null, rows) =>
        error ? reject(error) : resolve(rows),
      );
    });
  // Told to whoever asks, too; without a listener it would end the process.
  connection.on('error', () => undefined);
  try {
    return await readMember(ask);
  } finally {
    connection.destroy();
  }
}

/** Rejects with MemberError where nothing may be asked of it. */
export async function requireUsable(member: Member, ask: Ask): Promise<void> {
  const { engine, name, variables } = member;
  const readOnly = isOn(variables, 'read_only') || isOn(variables, 'super_read_only');
  if (engine.refusal !== undefined) {
    throw new MemberError('unavailable', `${engine.name} is not supported: ${engine.refusal}`);
  }
  if (engine.readOnlyMembers === 'leave' && readOnly) {
    throw new MemberError('read-only', `${name} of ${engine.name} takes no writes`);
  }
  if (engine.takesPart === undefined) return;
  const [status, value] = engine.takesPart;
  const [row] = (await ask(`show status like '${status}'`)) as readonly ServerVariable[];
  if (row?.Value === value) return;
  throw new MemberError('read-only', `${name} of ${engine.name} does not take part (${status})`);
}

function readClock(
  variables: ServerVariables,
  askedAtMs: number,
  answeredAtMs: number,
): Member['clock'] {
  const seconds = Number(variables.get('timestamp') || Number.NaN);
  if (!Number.isFinite(seconds) || seconds <= 0) return undefined;
  const middleMs = performance.timeOrigin + (askedAtMs + answeredAtMs) / 2;
  return { aheadMs: seconds * 1000 - middleMs, roundMs: answeredAtMs - askedAtMs };
}
