/** What the pages say, one file a language; a test holds the files to the same keys and places. */
import en from './en.json' with { type: 'json' };
import zhCN from './zh-CN.json' with { type: 'json' };

export const LANGUAGES = ['en', 'zh-CN'] as const;
export type Language = (typeof LANGUAGES)[number];
/** The words of one language. Sections are pages; a place for a value is written {name}. */
export type Words = typeof en;
/** Words that depend on a number; Chinese has the second alone, both files have both. */
export interface Counted {
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

const PLACE = /\{(\w+)\}/g;

/** `fill('Key {name} revoked', { name })`. Places without a value stay as they are written. */
export function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replaceAll(PLACE, (place, name: string) =>
    Object.hasOwn(values, name) ? String(values[name]) : place,
  );
}

/** The form of a number's words; `{count}` in them is the number as the language writes it. */
export function counted(language: Language, words: Counted, count: number): string {
  const form = new Intl.PluralRules(language).select(count) === 'one' ? words.one : words.other;
  return fill(form, { count: new Intl.NumberFormat(language).format(count) });
}
