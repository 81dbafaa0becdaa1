import { DAY_MS } from '@matting/program/durations.ts';
import { counted, type Formats, fill, type Language, type Words } from '../words/words.ts';
import type { UsageView } from './read-usage.ts';
import { dayOfIso } from './usage-store.ts';

/** Fewer days of use are only a first try, so they have no pace. */
const DAYS_MIN = 3;
const DAYS_A_MONTH = 30;
/** Credits that last longer get no date, which would be meaningless. */
const DAYS_SHOWN_MAX = 730;
const MONTHS_FROM_DAYS = 60;

/**
 * The mean of credits a day since the first charge. Undefined: too few days.
 * @param view by day
 */
export function paceOf({ to, usage }: Pick<UsageView, 'to' | 'usage'>): number | undefined {
  const charged = usage.flatMap(entry => ('day' in entry && entry.credits > 0 ? [entry] : []));
  const last = dayOfIso(to);
  const first = dayOfIso(charged[0]?.day ?? '');
  if (last === undefined || first === undefined) return undefined;
  const days = last - first + 1;
  if (days < DAYS_MIN) return undefined;
  return charged.reduce((sum, { credits }) => sum + credits, 0) / days;
}

interface Reader {
  readonly language: Language;
  readonly words: Words;
  readonly formats: Formats;
}

/** `about 12 days`, `about 5 months`, `more than 2 years`. */
export function lastingText({ language, words }: Reader, credits: number, pace: number): string {
  const { pace: text } = words.usage;
  const days = Math.floor(credits / pace);
  if (days > DAYS_SHOWN_MAX) return text.years;
  if (days < 1) return text.hours;
  if (days < MONTHS_FROM_DAYS) return counted(language, text.days, days);
  return counted(language, text.months, Math.round(days / DAYS_A_MONTH));
}

/** The pace, and the day on which the credits end. @param nowMs any time of the view's last day */
export function forecastText(
  reader: Reader,
  { available, pace, nowMs }: { available: number; pace: number; nowMs: number },
): string {
  const { formats, words } = reader;
  const { pace: text } = words.usage;
  const days = Math.floor(available / pace);
  const values = {
    pace: formats.about(pace),
    credits: formats.credits(available),
    time: lastingText(reader, available, pace),
    date: formats.date(nowMs + days * DAY_MS),
  };
  return fill(days > DAYS_SHOWN_MAX ? text.forecastLong : text.forecast, values);
}
