/** Which package declares each table, and who names another's. */
import path from 'node:path';
import { PACKAGES } from './packages.ts';
import type { SourceFile, SourceText } from './source-files.ts';

interface DeclaredTables {
  readonly owner: string;
  readonly names: readonly string[];
  readonly columns: readonly string[];
}

const DECLARES =
  /^declare module '@matting\/database\/database\.ts' \{\n {2}interface Schema \{\n/m;

/** What a file adds to the database's `Schema`; undefined: nothing. */
export function tablesDeclaredBy({
  name,
  text,
}: Pick<SourceFile, 'name' | 'text'>): DeclaredTables | undefined {
  const found = DECLARES.exec(text);
  if (found === null) return undefined;
  const [schema = ''] = /^[\s\S]*?^ {2}\}\n/m.exec(text.slice(found.index + found[0].length)) ?? [];
  return {
    owner: path.posix.dirname(name),
    names: [...schema.matchAll(/^ {4}(\w+): /gm)].map(([, table = '']) => table),
    columns: [...text.matchAll(/^ +(\w+)\??: /gm)].map(([, column = '']) => column),
  };
}

/** Methods of Kysely and functions of `database/statements.ts` that take a table's name. */
const TAKES_TABLES =
  /^(?:selectFrom|insertInto|replaceInto|updateTable|deleteFrom|mergeInto|using|from|with|(?:inner|left|right|full|cross|outer)Join(?:Lateral)?|(?:inner|left|cross|outer)(?:Lateral)?Join|(?:cross|outer)Apply|table|tables|id|ref|references|throughIndex|removeOldRows|createTable|alterTable|dropTable|createTables|addColumns|createIndex|on)$/;

/** Words before a table's name in SQL. */
const BEHIND = String.raw`\b(?:from|join|into|update|table|exists|references|on|only)\s+[\`"(]*`;
const STATEMENT =
  /^\s*(?:select|insert|replace|update|delete|with|merge|truncate|lock|create|alter|drop|explain)\s/i;
const REACHES = /^(?:control-plane\/database\/|kysely)/;
const STATES = /\b(?:kysely|query|transact|sql|Db)\b/;

/** The core adds columns to the queue's row of a job (docs/adr/0066). */
const SHARES: Readonly<Record<string, string>> = { 'control-plane/core': 'control-plane/queue' };

/** The audit reads other packages' tables and writes none. */
const COMPARES = 'control-plane/core/audit/';

/**
 * The core's old migrations created tables that other packages own now; migrations never change.
 */
const MADE_BEFORE = 'control-plane/core/migrations/';

/**
 * Lists the places where a file names a table that another package declares:
 * - an argument of a function that takes tables, with or without an alias;
 * - a table or its column in any text of a file that reaches the database, so that a constant
 *   hides no name;
 * - a statement as text, whoever takes it;
 * - a type of the rows of a table.
 */
export function foreignTablesOf(
  file: Pick<SourceFile, 'name' | 'text' | 'imports' | 'texts'>,
  declared: readonly DeclaredTables[],
): string[] {
  if (file.name.startsWith(MADE_BEFORE) || file.name.startsWith(COMPARES)) return [];
  const own = ownerOf(file.name);
  const reaches = file.imports.some(name => REACHES.test(name)) && STATES.test(file.text);
  return declared
    .filter(({ owner }) => owner !== own && owner !== SHARES[own ?? ''])
    .flatMap(({ names, columns }) => {
      const table = `(${names.join('|')})`;
      const named = new RegExp(`^["\`]?${table}["\`]?(?:\\s+as\\s.*)?$`, 'i');
      const column = new RegExp(`^${table}\\.(?:${columns.join('|')}|\\*)(?:\\s+as\\s.*)?$`, 'i');
      const inStatement = new RegExp(`${BEHIND}${table}\\b`, 'gi');
      return file.texts.flatMap(one => {
        const whole = wholeNameIn(one, reaches, [named, column]);
        const isStatement =
          one.takenBy === 'sql' || one.takenBy === 'raw' || STATEMENT.test(one.text);
        const parts = isStatement ? [...one.text.matchAll(inStatement)].map(([, of]) => of) : [];
        return [...new Set([...whole, ...parts])].map(of => `${file.name}:${one.line} ${of}`);
      });
    });
}

function wholeNameIn(
  { text, takenBy, inType }: SourceText,
  reaches: boolean,
  forms: readonly RegExp[],
): string[] {
  const isOfRows = inType === undefined ? reaches : /\bSchema\b/.test(inType);
  if (!isOfRows && !TAKES_TABLES.test(takenBy)) return [];
  return forms.flatMap(form => form.exec(text)?.[1] ?? []);
}

const ownerOf = (name: string) =>
  PACKAGES.find(({ folder }) => name.startsWith(`${folder}/`))?.folder;
