/** The words of both languages, and dates and numbers as each writes them. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
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

test('both languages have the same words', () => {
  const keys = (words: unknown) =>
    textsOf(words)
      .map(([place]) => place)
      .sort();
  assert.deepEqual(keys(chinese), keys(english));
  assert.ok(keys(english).length > 50);
});

test('each text has the same places for values in both languages', () => {
  const other = new Map(textsOf(chinese));
  for (const [place, text] of textsOf(english)) {
    assert.deepEqual(placesOf(other.get(place) ?? ''), placesOf(text), place);
  }
});

test('no text is empty, holds markup or a place that is not closed', () => {
  for (const [place, text] of [english, chinese].flatMap(words => textsOf(words))) {
    assert.ok(text.trim() === text && text !== '', place);
    assert.doesNotMatch(text, /<\/?[a-z]|&[a-z]+;/i, place);
    assert.doesNotMatch(text.replaceAll(/\{\w+\}/g, ''), /[{}]/, place);
  }
});

test('Chinese texts are Chinese', () => {
  // Names of things that have no other: formats, units, headers.
  const latin = textsOf(chinese).filter(([, text]) => !/\p{Script=Han}/u.test(text));
  for (const [place, text] of latin) {
    assert.ok(!/[a-z]{3,} [a-z]{3,} [a-z]{3,}/.test(text), `${place} is English: ${text}`);
  }
});

test('values are put into their places, and nothing else is', () => {
  assert.equal(fill('Key {name} of {owner}', { name: '{owner}', owner: 'x' }), 'Key {owner} of x');
  assert.equal(fill('{missing} {toString}', {}), '{missing} {toString}');
});

test('numbers choose their words', () => {
  const { credits } = wordsIn('en').common;
  assert.equal(counted('en', credits, 1), '1 credit');
  assert.equal(counted('en', credits, 1200), '1,200 credits');
  assert.equal(counted('zh-CN', wordsIn('zh-CN').common.credits, 1), '1 积分');
});

test('a language is one of the list', () => {
  assert.ok(isLanguage('zh-CN'));
  for (const other of ['zh', 'EN', '', 'constructor', undefined, ['en']]) {
    assert.ok(!isLanguage(other), String(other));
  }
});

test('times are those of UTC, and say so', () => {
  const instant = Date.UTC(2026, 10, 21, 23, 5, 9);
  assert.equal(formatsIn('en').date(instant), '21 Nov 2026');
  assert.equal(formatsIn('en').dateTime(instant), '21 Nov 2026, 23:05 UTC');
  assert.equal(formatsIn('en').exactTime(instant), '21 Nov 2026, 23:05:09 UTC');
  assert.equal(formatsIn('zh-CN').date(instant), '2026年11月21日');
  assert.equal(formatsIn('zh-CN').dateTime(instant), '2026年11月21日 23:05 UTC');
});

test('numbers, money and sizes are written as the language does', () => {
  const { credits, money, bytes, share, duration } = formatsIn('en');
  assert.equal(credits(1_300_000), '1,300,000');
  assert.equal(money(1200, 'CNY'), '¥1,200');
  assert.equal(money(0.0125, 'CNY'), '¥0.0125');
  assert.equal(money(0.1, 'CNY'), '¥0.10');
  assert.equal(bytes(0), '0 B');
  assert.equal(bytes(1023), '1,023 B');
  assert.equal(bytes(52_428_800), '50 MiB');
  assert.equal(share(0.251), '25.1%');
  assert.equal(duration(340), '340ms');
  assert.equal(duration(2540), '2.5s');
  assert.equal(duration(200_000), '3m 20s');
  assert.equal(duration(59_999), '60s');
  assert.equal(duration(3_599_900), '1h 0m');
  assert.equal(formatsIn('zh-CN').money(50, 'CNY'), '¥50');
});
