/** A job's columns by part, and who may name them. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT, type SourceFile } from './source-files.ts';

/** By the interface of a tables.ts that declares them. */
export function jobColumnsIn(text: string): Map<string, string[]> {
  const parts = text.matchAll(/^(?:export )?interface (JobsTable|\w+Columns) \{\n([\s\S]*?)^\}/gm);
  return new Map(
    [...parts].map(([, name = '', body = '']) => [
      name,
      [...body.matchAll(/^ +(\w+)\??:/gm)].map(([, column = '']) => column),
    ]),
  );
}

/** These handle a job as a whole. */
const WHOLE = ['jobs/', 'queue/', 'tables.ts', 'migrations/'];

const OWNERS: Readonly<Record<string, readonly string[]>> = {
  // Retention finds the files of a request, a webhook its trace.
  RequestColumns: ['retention/job-retention.ts', 'webhooks/due-messages.ts'],
  ResultColumns: ['results/', 'retention/', 'deletion/', 'corrections/'],
  CallbackColumns: [],
  FamilyColumns: ['corrections/'],
};

/** They also have other meanings, so they count as columns only within a statement. */
const WORDS = new Set([
  ...['finishing', 'background', 'hints', 'reference', 'timings'],
  ...['correctable', 'corrects', 'family', 'corrections'],
]);
const REACHES_JOBS =
  /(?:From|updateTable|deleteFrom|Join)\('jobs'|JobRow|Schema\['jobs'\]|select(?:Jobs|Viewed)/;

/** Places in the core that name another part's column. */
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
