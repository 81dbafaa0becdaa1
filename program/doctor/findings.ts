import { type Logger, pino } from 'pino';
import { within } from '../waiting.ts';

type FindingStatus = 'ok' | 'warning' | 'failure';

export interface Finding {
  /** One or two words, the same in every run. */
  readonly subject: string;
  readonly status: FindingStatus;
  readonly found: string;
  /** One line. Absent if the status is ok. */
  readonly advice?: string;
}

export function ok(subject: string, found: string): Finding {
  return { subject, status: 'ok', found };
}

export function warning(subject: string, found: string, advice: string): Finding {
  return { subject, status: 'warning', found, advice };
}

/** The service does not work, or loses something, until this is fixed. */
export function failure(subject: string, found: string, advice: string): Finding {
  return { subject, status: 'failure', found, advice };
}

/** Longer than every wait within a check. */
const CHECK_MS_MAX = 60_000;

interface Check {
  readonly subject: string;
  /** What to do about a warning or the failure. It may depend on the error's text and cause. */
  readonly advice: string | ((found: string, cause: unknown) => string);
  readonly msMax?: number;
}

export type Warn = (found: string) => void;

/**
 * Runs a check as a start does. A returned text becomes an ok finding, a logged warning a warning,
 * an error or a timeout a failure. Never rejects.
 */
export async function runCheck(
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
    const found = messageWithCauses(error);
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

export function messageWithCauses(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as NodeJS.ErrnoException).code;
  const own = error.message === '' ? String(code ?? error.name) : error.message;
  const { cause } = error;
  const more = cause instanceof Error ? messageWithCauses(cause) : '';
  const whole = more === '' || own.includes(more) ? own : `${own}: ${more}`;
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

/**
 * Somebody else may have written a part of the text: it must not begin a line or control the
 * terminal.
 */
function oneLine(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ');
}

export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

/** @returns `fault`: why the command fails; undefined: it succeeds */
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
