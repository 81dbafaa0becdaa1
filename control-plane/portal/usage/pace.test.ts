import { DAY_MS } from '@matting/program/durations.ts';
import test from 'ava';
import { formatsIn, type Language, wordsIn } from '../words/words.ts';
import { forecastText, lastingText, paceOf } from './pace.ts';
import type { UsageEntry } from './read-usage.ts';
import { isoOfDay } from './usage-store.ts';

const TODAY = 20_000;
const on = (day: number, credits: number): UsageEntry => ({
  day: isoOfDay(day),
  images: credits + 1,
  failed: 1,
  corrected: 0,
  credits,
});
const paceSince = (...usage: UsageEntry[]) => paceOf({ to: isoOfDay(TODAY), usage });
const readerIn = (language: Language) => ({
  language,
  words: wordsIn(language),
  formats: formatsIn(language),
});

test('a pace › is the mean of the days since the first charge, those without any too', t => {
  t.is(paceSince(on(TODAY - 9, 30), on(TODAY - 1, 10)), 4);
  t.is(paceSince(on(TODAY - 9, 0), on(TODAY - 3, 8)), 2);
});

test('a pace › is none of no charge, and none of a first try', t => {
  t.is(paceSince(), undefined);
  t.is(paceSince(on(TODAY - 9, 0)), undefined);
  t.is(paceSince(on(TODAY - 1, 500), on(TODAY, 500)), undefined);
  t.is(paceSince(on(TODAY - 2, 3)), 1);
});

test('the time that credits last › is shown in days, in months or not at all', t => {
  const english = (credits: number) => lastingText(readerIn('en'), credits, 2);
  t.deepEqual([0, 2, 119, 120, 1460, 1462].map(english), [
    'less than a day',
    'about 1 day',
    'about 59 days',
    'about 2 months',
    'about 24 months',
    'more than 2 years',
  ]);
  t.is(lastingText(readerIn('zh-CN'), 120, 2), '约 2 个月');
});

test('the time that credits last › ends on the day that the pace gives', t => {
  const textOf = (available: number, pace: number) =>
    forecastText(readerIn('en'), { available, pace, nowMs: TODAY * DAY_MS });
  t.regex(
    textOf(1000, 48.4),
    /about 48 credits a day.*1,000 credits last about 20 days.*24 Oct 2024/,
  );
  t.regex(textOf(1000, 0.5), /about 0\.5 credits a day.*more than 2 years\.$/);
});
