/**
 * What an account used, by UTC days. Pure. A job is counted on the day of the ledger's entry that
 * ended it: a success as one image and the credit it was charged, a failure as one image and none.
 */

export const USAGE_GROUPS = ['day', 'key', 'outcome', 'format'] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

/** Days of one question, the first and the last included. */
export const USAGE_DAYS_MAX = 366;
/** Days that are shown where none are asked for. */
export const USAGE_DAYS_DEFAULT = 30;
/** How long figures are kept, in days; two whole years can be compared. */
export const USAGE_KEPT_DAYS = 800;

export const DAY_MS = 86_400_000;

/** Days since 1970-01-01 UTC. */
export function dayOf(atMs: number): number {
  return Math.floor(atMs / DAY_MS);
}

/** `2026-11-21`. */
export function isoOfDay(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

/** Undefined: no date of the calendar from 1970 to 9999, written as `2026-11-21`. */
export function dayOfIso(text: string): number | undefined {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return undefined;
  const atMs = Date.parse(`${text}T00:00:00Z`);
  if (Number.isNaN(atMs) || atMs < 0) return undefined;
  const day = dayOf(atMs);
  return isoOfDay(day) === text ? day : undefined;
}

/** The first day of a day's month. */
export function monthStartOf(day: number): number {
  const date = new Date(day * DAY_MS);
  return dayOf(Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1));
}

/** The first and the last day of a question. */
export interface UsageDays {
  readonly from: number;
  readonly to: number;
}

export interface UsageQuestion extends UsageDays {
  readonly group: UsageGroup;
}

export type UsageField = 'from' | 'to' | 'group';

/**
 * form: no date, or no group, that there is. order: `from` is after `to`. long: too many days. heavy:
 * too much would be read.
 */
export type UsageFault = 'form' | 'order' | 'long' | 'heavy';

export interface UsageFieldError {
  readonly field: UsageField;
  readonly fault: UsageFault;
  readonly detail: string;
}

/**
 * The question that these texts ask; an absent one takes its default: the last thirty days, by day.
 * @param today as `dayOf` has it
 */
export function usageQuestionOf(
  texts: Readonly<Partial<Record<UsageField, string>>>,
  today: number,
): UsageQuestion | UsageFieldError {
  const to = texts.to === undefined ? today : dayOfIso(texts.to);
  if (to === undefined) return { field: 'to', fault: 'form', detail: DATE_WANTED };
  const from = texts.from === undefined ? to - USAGE_DAYS_DEFAULT + 1 : dayOfIso(texts.from);
  if (from === undefined) return { field: 'from', fault: 'form', detail: DATE_WANTED };
  if (from > to) return { field: 'from', fault: 'order', detail: 'must not be after to' };
  if (to - from + 1 > USAGE_DAYS_MAX) {
    const detail = `must leave at most ${USAGE_DAYS_MAX} days until to`;
    return { field: 'from', fault: 'long', detail };
  }
  const { group: asked = 'day' } = texts;
  const group = USAGE_GROUPS.find(known => known === asked);
  if (group === undefined) {
    return { field: 'group', fault: 'form', detail: `must be one of ${USAGE_GROUPS.join(', ')}` };
  }
  return { from: Math.max(0, from), to, group };
}

const DATE_WANTED = 'must be a date written as 2026-11-21';

export interface UsageFigures {
  /** Jobs that ended. */
  readonly images: number;
  /** Those of them that failed: without a charge. */
  readonly failed: number;
  /** Charged. */
  readonly credits: number;
}

export const NO_USAGE: UsageFigures = { images: 0, failed: 0, credits: 0 };

export function addUsage(one: UsageFigures, other: UsageFigures): UsageFigures {
  return {
    images: one.images + other.images,
    failed: one.failed + other.failed,
    credits: one.credits + other.credits,
  };
}
