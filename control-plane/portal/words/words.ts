/** The words of each language, whose files have the same keys (a test), and its formats. */
import en from './en.json' with { type: 'json' };
import zhCN from './zh-CN.json' with { type: 'json' };

export const LANGUAGES = ['en', 'zh-CN'] as const;
export type Language = (typeof LANGUAGES)[number];
/** Sections are pages. `{name}` is a value. */
export type Words = typeof en;
/** Words that depend on a number. Chinese uses only the second. */
interface Counted {
  readonly one: string;
  readonly other: string;
}

const WORDS: Readonly<Record<Language, Words>> = { en, 'zh-CN': zhCN };

export function wordsIn(language: Language): Words {
  return WORDS[language];
}

export function isLanguage(text: unknown): text is Language {
  return LANGUAGES.some(language => language === text);
}

const PLACEHOLDER = /\{(\w+)\}/g;

/** `fill('Key {name} revoked', { name })`. Names without a value stay. */
export function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replaceAll(PLACEHOLDER, (placeholder, name: string) =>
    Object.hasOwn(values, name) ? String(values[name]) : placeholder,
  );
}

/** Chooses the words for a number. `{count}` is the number in the language's form. */
export function counted(language: Language, words: Counted, count: number): string {
  const form = new Intl.PluralRules(language).select(count) === 'one' ? words.one : words.other;
  return fill(form, { count: new Intl.NumberFormat(language).format(count) });
}

export type Formats = ReturnType<typeof makeFormats>;

const made = new Map<Language, Formats>();

/** Keeps the formats, since an Intl formatter takes longer to make than a page. */
export function formatsIn(language: Language): Formats {
  let formats = made.get(language);
  if (formats === undefined) {
    formats = makeFormats(language);
    made.set(language, formats);
  }
  return formats;
}

/** en-GB: 21 Nov 2026. */
const LOCALES: Readonly<Record<Language, string>> = { en: 'en-GB', 'zh-CN': 'zh-CN' };
const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;
const DAY = { timeZone: 'UTC', year: 'numeric', month: 'short', day: 'numeric' } as const;
const DAY_OF_YEAR = { timeZone: 'UTC', month: 'short', day: 'numeric' } as const;
const MINUTE = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;

function makeFormats(language: Language) {
  const locale = LOCALES[language];
  const date = new Intl.DateTimeFormat(locale, DAY);
  const dateTime = new Intl.DateTimeFormat(locale, { ...DAY, ...MINUTE });
  const exactTime = new Intl.DateTimeFormat(locale, { ...DAY, ...MINUTE, second: '2-digit' });
  const dayOfYear = new Intl.DateTimeFormat(locale, DAY_OF_YEAR);
  const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
  const share = new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 1 });
  const unit = (value: number, name: string, digits = 0) =>
    new Intl.NumberFormat(locale, {
      style: 'unit',
      unit: name,
      unitDisplay: 'narrow',
      maximumFractionDigits: digits,
    }).format(value);
  return {
    date: (instant: number) => date.format(instant),
    dayOfYear: (instant: number) => dayOfYear.format(instant),
    days: (from: number, to: number) => date.formatRange(from, to),
    dateTime: (instant: number) => `${dateTime.format(instant)} UTC`,
    exactTime: (instant: number) => `${exactTime.format(instant)} UTC`,
    credits: (count: number) => whole.format(count),
    /**
     * Major units with the currency's code, since signs are ambiguous: `CNY 50.00`. Chinese has
     * distinct signs: `¥50.00`, `US$50.00`. Four decimals are for prices of one image.
     */
    money: (amount: number, currency: string) =>
      new Intl.NumberFormat(locale, {
        style: 'currency',
        currency,
        currencyDisplay: language === 'zh-CN' ? 'symbol' : 'code',
        minimumFractionDigits: 2,
        maximumFractionDigits: 4,
      }).format(amount),
    about: (mean: number) => (mean < 10 ? short : whole).format(mean),
    share: (fraction: number) => share.format(fraction),
    bytes: (count: number) => {
      const power = count < 1 ? 0 : Math.min(Math.floor(Math.log2(count) / 10), 4);
      return `${short.format(count / 1024 ** power)} ${BYTE_UNITS[power]}`;
    },
    /** `340ms`, `2.5s`, `3m 20s`. */
    duration: (ms: number) => {
      if (ms < 1000) return unit(Math.round(ms), 'millisecond');
      if (ms < 60_000) return unit(ms / 1000, 'second', 1);
      const seconds = Math.round(ms / 1000);
      if (seconds < 3600) {
        return `${unit(Math.floor(seconds / 60), 'minute')} ${unit(seconds % 60, 'second')}`;
      }
      const minutes = Math.round(seconds / 60);
      return `${unit(Math.floor(minutes / 60), 'hour')} ${unit(minutes % 60, 'minute')}`;
    },
  };
}
