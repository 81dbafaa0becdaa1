/** The words of both languages, and dates and numbers as each writes them. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { formatsIn } from '../../../src/http/account/words/formats.ts';
import {
  counted,
  fill,
  isLanguage,
  LANGUAGES,
  wordsIn,
} from '../../../src/http/account/words/words.ts';

const FOLDER = path.resolve(import.meta.dirname, '../../../src/http/account/words');
const [english, chinese] = LANGUAGES.map(
  language => JSON.parse(readFileSync(path.join(FOLDER, `${language}.json`), 'utf8')) as unknown,
);

/** Every text with its place: `keys.said.revoked`. */
function textsOf(words: unknown, at = ''): [place: string, text: string][] {
  if (typeof words === 'string') return [[at, words]];
  assert.ok(typeof words === 'object' && words !== null && !Array.isArray(words), at);
  return Object.entries(words).flatMap(([name, inner]) =>
    textsOf(inner, at === '' ? name : `${at}.${name}`),
  );
}

function placesOf(text: string): string[] {
  return [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '').sort();
}

test('both languages have the same words', t => {
  const keys = (words: unknown) =>
    textsOf(words)
      .map(([place]) => place)
      .sort();
  t.deepEqual(keys(chinese), keys(english));
  t.true(keys(english).length > 50);
});

test('each text has the same places for values in both languages', t => {
  const other = new Map(textsOf(chinese));
  for (const [place, text] of textsOf(english)) {
    t.deepEqual(placesOf(other.get(place) ?? ''), placesOf(text), place);
  }
});

test('no text is empty, holds markup or a place that is not closed', t => {
  for (const [place, text] of [english, chinese].flatMap(words => textsOf(words))) {
    assert.ok(text.trim() === text && text !== '', place);
    t.notRegex(text, /<\/?[a-z]|&[a-z]+;/i, place);
    t.notRegex(text.replaceAll(/\{\w+\}/g, ''), /[{}]/, place);
  }
});

test('Chinese texts are Chinese', t => {
  // Names of things that have no other: formats, units, headers.
  const latin = textsOf(chinese).filter(([, text]) => !/\p{Script=Han}/u.test(text));
  for (const [place, text] of latin) {
    t.false(/[a-z]{3,} [a-z]{3,} [a-z]{3,}/.test(text), `${place} is English: ${text}`);
  }
});

test('values are put into their places, and nothing else is', t => {
  t.is(fill('Key {name} of {owner}', { name: '{owner}', owner: 'x' }), 'Key {owner} of x');
  t.is(fill('{missing} {toString}', {}), '{missing} {toString}');
});

test('numbers choose their words', t => {
  const { credits } = wordsIn('en').common;
  t.is(counted('en', credits, 1), '1 credit');
  t.is(counted('en', credits, 1200), '1,200 credits');
  t.is(counted('zh-CN', wordsIn('zh-CN').common.credits, 1), '1 积分');
});

test('a language is one of the list', t => {
  t.truthy(isLanguage('zh-CN'));
  for (const other of ['zh', 'EN', '', 'constructor', undefined, ['en']]) {
    t.true(!isLanguage(other), String(other));
  }
});

test('times are those of UTC, and say so', t => {
  const instant = Date.UTC(2026, 10, 21, 23, 5, 9);
  t.is(formatsIn('en').date(instant), '21 Nov 2026');
  t.is(formatsIn('en').dateTime(instant), '21 Nov 2026, 23:05 UTC');
  t.is(formatsIn('en').exactTime(instant), '21 Nov 2026, 23:05:09 UTC');
  t.is(formatsIn('zh-CN').date(instant), '2026年11月21日');
  t.is(formatsIn('zh-CN').dateTime(instant), '2026年11月21日 23:05 UTC');
});

test('numbers, money and sizes are written as the language does', t => {
  const { credits, money, bytes, share, duration } = formatsIn('en');
  t.is(credits(1_300_000), '1,300,000');
  t.is(money(1200, 'CNY'), '¥1,200');
  t.is(money(0.0125, 'CNY'), '¥0.0125');
  t.is(money(0.1, 'CNY'), '¥0.10');
  t.is(bytes(0), '0 B');
  t.is(bytes(1023), '1,023 B');
  t.is(bytes(52_428_800), '50 MiB');
  t.is(share(0.251), '25.1%');
  t.is(duration(340), '340ms');
  t.is(duration(2540), '2.5s');
  t.is(duration(200_000), '3m 20s');
  t.is(duration(59_999), '60s');
  t.is(duration(3_599_900), '1h 0m');
  t.is(formatsIn('zh-CN').money(50, 'CNY'), '¥50');
});
