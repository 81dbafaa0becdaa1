import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { fill, formatsIn, isLanguage, LANGUAGES } from './words.ts';

const test = ava;

const [english, chinese] = LANGUAGES.map(
  language =>
    JSON.parse(readFileSync(path.join(import.meta.dirname, `${language}.json`), 'utf8')) as unknown,
);

/** Every text with its path: `keys.notices.revoked`. */
function textsOf(words: unknown, at = ''): [place: string, text: string][] {
  if (typeof words === 'string') return [[at, words]];
  assert.ok(typeof words === 'object' && words !== null && !Array.isArray(words), at);
  return Object.entries(words).flatMap(([name, inner]) =>
    textsOf(inner, at === '' ? name : `${at}.${name}`),
  );
}

function placeholdersOf(text: string): string[] {
  return [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '').sort();
}

test('words › both languages have the same words, with the same places for values, and no markup', t => {
  const other = new Map(textsOf(chinese));
  t.deepEqual(
    [...other.keys()].sort(),
    textsOf(english)
      .map(([key]) => key)
      .sort(),
  );
  for (const [key, text] of textsOf(english)) {
    t.deepEqual(placeholdersOf(other.get(key) ?? ''), placeholdersOf(text), key);
  }
  for (const [key, text] of [english, chinese].flatMap(words => textsOf(words))) {
    assert.ok(text.trim() === text && text !== '', key);
    t.notRegex(text, /<\/?[a-z]|&[a-z]+;/i, key);
    t.notRegex(text.replaceAll(/\{\w+\}/g, ''), /[{}]/, key);
  }
});

const SOURCES = globSync('**/*.ts', {
  cwd: path.resolve(import.meta.dirname, '..'),
  exclude: name => name === 'node_modules' || name === 'test' || name.endsWith('.test.ts'),
}).map(file => {
  const source = readFileSync(path.resolve(import.meta.dirname, '..', file), 'utf8');
  return source.replaceAll(/^\s*(?:\/\/|\*|\/\*\*).*$/gm, '');
});

/** The names under which components and the operator's pages get a section. */
const HANDED: Readonly<Record<string, string>> = { common: 'words', operator: 'own' };

function namesOf(section: string, source: string): string[] {
  const assigned = source.matchAll(new RegExp(`(\\w+) = [^;=]*\\b${section};`, 'g'));
  const renamed = source.matchAll(new RegExp(`[{,]\\s*${section}: (\\w+)\\b`, 'g'));
  const found = [...assigned, ...renamed].map(([, name]) => name ?? '');
  const handed = HANDED[section];
  return [section, ...(handed === undefined ? [] : [handed]), ...found];
}

function isRead(section: string, word: string, source: string): boolean {
  const name = word.replaceAll('.', '\\.');
  return namesOf(section, source).some(
    own =>
      new RegExp(`\\b${own}\\??\\.${name}\\b`).test(source) ||
      new RegExp(`\\{[^{}=]*\\b${name}\\b[^{}=]*\\} = [^;]*\\b${own}\\b`).test(source) ||
      (source.includes(`${own}[`) && new RegExp(`'${name}'`).test(source)),
  );
}

/** Whether a source passes a whole section on, or chooses in it by a code. */
function isTaken(section: string, source: string): boolean {
  const name = section.replaceAll('.', '\\.');
  const handed = new RegExp(`\\.${name}\\b(?!\\??\\.|\\w|\\()`);
  return handed.test(source) || new RegExp(`\\b${name}\\[|'${name}'`).test(source);
}

const BY_CODE = ['nav', 'roles', 'failures'];

function unusedIn(words: object, at: readonly string[] = []): string[] {
  const section = at.at(-1) ?? '';
  return Object.entries(words).flatMap(([name, inner]) => {
    const keys = [...at, name];
    if (typeof inner === 'string') {
      return SOURCES.some(source => isRead(section, name, source)) ? [] : [keys.join('.')];
    }
    const isWhole = at.length > 0 ? isTaken : isChosen;
    return SOURCES.some(source => isWhole(name, source)) ? [] : unusedIn(inner, keys);
  });
}

/** Whether sources choose by a code in a section that every page has. */
function isChosen(section: string, source: string): boolean {
  return BY_CODE.includes(section) && source.includes(`${section}[`);
}

test('words › each is used by a page', t => {
  assert.ok(typeof english === 'object' && english !== null);
  t.deepEqual(unusedIn(english), []);
  const more = { common: { utc: '' }, jobs: { states: { byCode: '' }, stage: '' } };
  t.deepEqual(unusedIn(more), ['common.utc', 'jobs.stage']);
});

test('words › values are put into their places, and nothing else is', t => {
  t.is(fill('Key {name} of {owner}', { name: '{owner}', owner: 'x' }), 'Key {owner} of x');
  t.is(fill('{missing} {toString}', {}), '{missing} {toString}');
});

test('words › a language is one of the list', t => {
  t.truthy(isLanguage('zh-CN'));
  for (const other of ['zh', 'EN', '', 'constructor', undefined, ['en']]) {
    t.true(!isLanguage(other), String(other));
  }
});

test('words › times are those of UTC, and say so', t => {
  const instant = Date.UTC(2026, 10, 21, 23, 5, 9);
  t.is(formatsIn('en').dateTime(instant), '21 Nov 2026, 23:05 UTC');
  t.is(formatsIn('zh-CN').dateTime(instant), '2026年11月21日 23:05 UTC');
});

test('words › numbers, money and sizes are written as the language does', t => {
  const { credits, money, bytes, share, duration } = formatsIn('en');
  t.is(credits(1_300_000), '1,300,000');
  t.deepEqual(
    [1200, 0.0125].map(sum => money(sum, 'CNY').replace('\u00a0', ' ')),
    ['CNY 1,200.00', 'CNY 0.0125'],
  );
  t.is(bytes(52_428_800), '50 MiB');
  t.is(share(0.251), '25.1%');
  t.is(duration(2540), '2.5s');
  t.is(duration(200_000), '3m 20s');
  t.is(duration(3_599_900), '1h 0m');
});
