/**
 * The findings of a doctor: one line for each thing that it looked at, for people as a page and for
 * scripts as JSON. Both programs have one; neither ever prints a secret (secrets.ts).
 */

import { within } from '../waiting.ts';

type FindingStatus = 'ok' | 'warning' | 'failure';

export interface Finding {
  /** The thing that the doctor looked at, in a word or two. It is the same at every run. */
  readonly subject: string;
  readonly status: FindingStatus;
  readonly found: string;
  /** The advice in one line. It is absent if the finding is ok. */
  readonly advice?: string;
}

export function ok(subject: string, found: string): Finding {
  return { subject, status: 'ok', found };
}

/** The subject works, but somebody should look at it before long. */
export function warning(subject: string, found: string, advice: string): Finding {
  return { subject, status: 'warning', found, advice };
}

/** The service does not work, or loses something, until it is mended. */
export function failure(subject: string, found: string, advice: string): Finding {
  return { subject, status: 'failure', found, advice };
}

/** One look may take so long: longer than any of the waits within it but a system that hangs. */
const LOOK_MS_MAX = 60_000;

/**
 * Runs one look. It never rejects: an error, and an answer that does not come, is a failure with
 * this advice.
 */
export async function look(
  subject: string,
  advice: string,
  examine: () => Promise<readonly Finding[]>,
  msMax = LOOK_MS_MAX,
): Promise<readonly Finding[]> {
  const tooLate = () => new Error(`no answer within ${msMax / 1000} s`);
  try {
    return await within(examine(), msMax, tooLate);
  } catch (error) {
    return [failure(subject, reasonOf(error), advice)];
  }
}

export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as NodeJS.ErrnoException).code;
  const said = error.message === '' ? String(code ?? error.name) : error.message;
  const { cause } = error;
  const more = cause instanceof Error ? reasonOf(cause) : '';
  const whole = more === '' || said.includes(more) ? said : `${said}: ${more}`;
  return whole.replaceAll(/\s*\n\s*/g, '; ');
}

interface Summary {
  readonly ok: number;
  readonly warnings: number;
  readonly failures: number;
}

export function summaryOf(findings: readonly Finding[]): Summary {
  const count = (status: FindingStatus) => findings.filter(one => one.status === status).length;
  return { ok: count('ok'), warnings: count('warning'), failures: count('failure') };
}

/** The page: a line a finding, below it what to do, at the end how many of each. */
export function pageOf(findings: readonly Finding[]): string[] {
  const width = Math.max(0, ...findings.map(({ subject }) => subject.length));
  const lines = findings.flatMap(({ status, subject, found, advice }) => [
    oneLine(`${status.padEnd(8)} ${subject.padEnd(width)}  ${found}`),
    ...(advice === undefined ? [] : [oneLine(`${' '.repeat(width + 11)}-> ${advice}`)]),
  ]);
  const { ok: good, warnings, failures } = summaryOf(findings);
  const counts = [`${good} ok`, counted(warnings, 'warning'), counted(failures, 'failure')];
  return [...lines, counts.join(', ')];
}

/** Others wrote parts of the text: none of it can begin a line or control the terminal. */
function oneLine(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ');
}

export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

/** The doctor's output, and why its command fails; `fault` is undefined if it does not. */
export function reportOf(
  findings: readonly Finding[],
  { json, strict }: { readonly json?: boolean; readonly strict?: boolean },
): { readonly text: string; readonly fault: string | undefined } {
  const { failures, warnings } = summaryOf(findings);
  const text = json ? JSON.stringify(jsonOf(findings)) : pageOf(findings).join('\n');
  if (failures > 0) return { text, fault: counted(failures, 'failure') };
  return { text, fault: strict && warnings > 0 ? counted(warnings, 'warning') : undefined };
}

export function jsonOf(findings: readonly Finding[]) {
  const summary = summaryOf(findings);
  return { ok: summary.failures === 0, summary, findings };
}
