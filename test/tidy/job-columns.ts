/** The columns of a job's row by their part, and who may name those of each. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT, type SourceFile } from './source-files.ts';

/** The columns that a tables.ts declares, by the interface that has them. */
export function jobColumnsIn(text: string): Map<string, string[]> {
  const parts = text.matchAll(/^(?:export )?interface (JobsTable|\w+Columns) \{\n([\s\S]*?)^\}/gm);
  return new Map(
    [...parts].map(([, name = '', body = '']) => [
      name,
      [...body.matchAll(/^ +(\w+)\??:/gm)].map(([, column = '']) => column),
    ]),
  );
}

/** These read and write every part: a job as one object, and what it plugs into the queue. */
const WHOLE = ['jobs/', 'queue/', 'tables.ts', 'migrations/'];

const OWNERS: Readonly<Record<string, readonly string[]>> = {
  // The retention finds the files that a request names, a webhook the trace that it belongs to.
  RequestColumns: ['retention/job-retention.ts', 'webhooks/due-messages.ts'],
  ResultColumns: ['results/', 'retention/', 'deletion/', 'corrections/'],
  CallbackColumns: [],
  FamilyColumns: ['corrections/'],
};

/** These words also name other things. They count as columns where a statement has them. */
const WORDS = new Set(
  ['finishing', 'background', 'hints', 'reference', 'timings', 'correctable', 'corrects'].concat(
    ...['family', 'corrections'],
  ),
);
const REACHES_JOBS =
  /(?:From|updateTable|deleteFrom|Join)\('jobs'|JobRow|Schema\['jobs'\]|select(?:Jobs|Viewed)/;

/** Lists the places of the core that name a column of a part that is another room's. */
export function foreignColumnsOf({ name, text }: Pick<SourceFile, 'name' | 'text'>): string[] {
  const core = 'control-plane/core/';
  const place = name.slice(core.length);
  if (!name.startsWith(core) || WHOLE.some(room => place.startsWith(room))) return [];
  if (!REACHES_JOBS.test(text)) return [];
  return [...partsOfJobs()].flatMap(([part, columns]) => {
    if (OWNERS[part]?.some(room => place.startsWith(room))) return [];
    return columns.filter(column => names(text, column)).map(column => `${name} ${column}`);
  });
}

function names(text: string, column: string): boolean {
  const quoted = new RegExp(`'(?:jobs\\.)?${column}(?: as \\w+)?'`);
  return quoted.test(text) || (!WORDS.has(column) && new RegExp(`\\b${column}\\b`).test(text));
}

export function partsOfJobs(): Map<string, string[]> {
  return jobColumnsIn(readFileSync(path.join(ROOT, 'control-plane/core/tables.ts'), 'utf8'));
}
