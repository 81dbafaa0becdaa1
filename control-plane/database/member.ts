/** The server that an address leads to: its engine and its variables. */

import {
  type Engine,
  engineOf,
  MemberError,
  SERVER_VARIABLES,
  type ServerVariables,
} from './engines.ts';

/** A connection learns this of its server before its first statement. */
export interface Member {
  readonly engine: Engine;
  readonly variables: ServerVariables;
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
  await ask(BEGIN);
  const rows = (await ask(ASKED)) as readonly ServerVariable[];
  const variables: ServerVariables = new Map(
    rows.map(row => [row.Variable_name.toLowerCase(), row.Value]),
  );
  return { engine: engineOf(variables), variables };
}

/** @throws MemberError where nothing may be asked of it */
export function requireSupported({ engine: { name, refusal } }: Member): void {
  if (refusal !== undefined) throw new MemberError(`${name} is not supported: ${refusal}`);
}
