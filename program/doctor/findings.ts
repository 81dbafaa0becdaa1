/**
 * What a doctor found: one line for each check of a start, for people as a page and for scripts as
 * JSON. Both programs have one; neither ever prints a secret (secrets.ts).
 */

import { type Logger, pino } from 'pino';
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

/** A check may take so long: longer than any of the waits within it but a system that hangs. */
const CHECK_MS_MAX = 60_000;

interface Check {
  readonly subject: string;
  /** What to do about its warnings and its error; a function of the error's text and cause. */
  readonly advice: string | ((found: string, cause: unknown) => string);
  readonly msMax?: number;
}

/** Warns of what a start does not log. */
export type Warn = (found: string) => void;

/**
 * Runs a check as a start does. What it answers was found to be ok; undefined: nothing was. Lines
 * that it logs as warnings are warnings. Its error is a failure, and so is an answer that does not
 * come. Never rejects.
 */
export async function look(
  { subject, advice, msMax = CHECK_MS_MAX }: Check,
  check: (log: Logger, warn: Warn) => Promise<string | undefined>,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  const adviceOn = (found: string, cause?: unknown) =>
    typeof advice === 'string' ? advice : advice(found, cause);
  const warn = (found: string) => void findings.push(warning(subject, found, adviceOn(found)));
  const write = (line: string) => warn(textOf(JSON.parse(line)));
  const log = pino({ level: 'warn', base: null, timestamp: false }, { write });
  const tooLate = () => new Error(`no answer within ${msMax / 1000} s`);
  try {
    const found = await within(check(log, warn), msMax, tooLate);
    return found === undefined ? findings : [...findings, ok(subject, found)];
  } catch (error) {
    const found = reasonOf(error);
    return [...findings, failure(subject, found, adviceOn(found, (error as Error).cause))];
  }
}

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly err?: { readonly message: string };
}

function textOf({ level: _, msg, err, ...fields }: LogLine): string {
  const named = Object.entries(fields).map(([name, value]) =>
    name === 'reason' ? value : `${name} ${value}`,
  );
  if (err !== undefined) named.push(err.message);
  return named.length === 0 ? msg : `${msg}: ${named.join(', ')}`;
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
