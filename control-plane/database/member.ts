import {
  type Engine,
  engineOf,
  MemberError,
  SERVER_VARIABLES,
  type ServerVariables,
} from './engines.ts';

/** What each connection reads about its server before its first statement. */
export interface Member {
  readonly engine: Engine;
  readonly variables: ServerVariables;
}

type RunStatement = (statement: string) => Promise<unknown>;

interface ServerVariable {
  readonly Variable_name: string;
  readonly Value: string;
}

const NAMES = SERVER_VARIABLES.map(name => `'${name}'`).join();
const SHOW_VARIABLES = `show variables where variable_name in (${NAMES})`;

/**
 * Some hosts limit sessions or change their character set, which would cut or refuse the next
 * query.
 */
const BEGIN = `set names utf8mb4 collate utf8mb4_bin, sql_big_selects = 1,
  sql_select_limit = 18446744073709551615`;

export async function readMember(run: RunStatement): Promise<Member> {
  await run(BEGIN);
  const rows = (await run(SHOW_VARIABLES)) as readonly ServerVariable[];
  const variables: ServerVariables = new Map(
    rows.map(row => [row.Variable_name.toLowerCase(), row.Value]),
  );
  return { engine: engineOf(variables), variables };
}

/** @throws MemberError */
export function requireSupported({ engine: { name, refusal } }: Member): void {
  if (refusal !== undefined) throw new MemberError(`${name} is not supported: ${refusal}`);
}
