import assert from 'node:assert/strict';
import test from 'ava';
import { contentTypeOf, type OutputFormat, TRANSPARENT_FORMATS } from '#contract/formats.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import { acceptedAnswers } from '../../../src/http/headers/accept.ts';

/** What a request without output_format can be made in; the default first. */
const ALL: readonly OutputFormat[] = ['png', 'webp', 'avif', 'jxl'];
const CHROME =
  'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8';
const IMG_ELEMENT = 'image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8';
/** java.net.HttpURLConnection sends it of itself. */
const JAVA = 'text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2';

/** Where the request names no format; what follows from qualities alone, the properties below hold. */
const UNNAMED: readonly [accept: string | undefined, answer: OutputFormat | 'json' | 'none'][] = [
  // As it was before there was a choice.
  [undefined, 'json'],
  ['', 'json'],
  ['*/*', 'json'],
  ['application/json', 'json'],
  ['application/json; charset=utf-8', 'json'],
  ['application/json, text/plain, */*', 'json'],
  ['application/problem+json', 'json'],
  ['application/json;q=0, */*', 'json'],
  ['image/png;q=0', 'json'],
  [CHROME, 'json'],
  [JAVA, 'json'],
  ['text/html, image/png', 'json'],
  // A picture.
  ['image/png', 'png'],
  ['IMAGE/PNG', 'png'],
  ['image/*', 'png'],
  [IMG_ELEMENT, 'avif'],
  ['image/png, application/problem+json', 'png'],
  [' image/png ;q=1 ,, ,', 'png'],
  ['text/html;q=0, image/png', 'png'],
  // Both are taken, and JSON is before.
  ['application/json;charset=UTF-8, image/png;q=0.5', 'json'],
  // No answer is taken.
  ['image/jpeg', 'none'],
  ['image/png;level=1', 'none'],
  ['image/gif, application/json;q=0', 'none'],
  // What cannot be read is as if it were not there.
  ['image', 'json'],
  ['image/', 'json'],
  ['png', 'json'],
  [';;;,,,===', 'json'],
  ['image/png;q=high, application/json', 'json'],
  ['image/png;q=high', 'json'],
  ['*, image/webp', 'webp'],
  [`image/png,${'a/b,'.repeat(1000)}`, 'json'],
];

for (const [accept, answer] of UNNAMED) {
  test(`Accept: ${String(accept).slice(0, 80)} means ${answer}`, t => {
    t.is(acceptedAnswers(accept).prefer(ALL), answer);
  });
}

test('a format that the request names is taken or not', t => {
  const choice = (accept: string, named: OutputFormat) => acceptedAnswers(accept).prefer([named]);
  t.is(choice('image/webp, image/png;q=0.1', 'png'), 'png');
  t.is(choice('image/webp', 'png'), 'none');
  t.is(choice('image/webp, application/json;q=0.1', 'png'), 'json');
});

test('JPEG has two names, and is no choice where it is not made', t => {
  const choice = (accept: string) => acceptedAnswers(accept).prefer([...ALL, 'jpeg']);
  t.is(choice('image/jpeg'), 'jpeg');
  t.is(choice('image/jpg'), 'jpeg');
  t.is(choice('image/jpg;q=0.2, image/jpeg;q=0, image/webp;q=0.1'), 'jpeg');
  t.is(choice('image/*'), 'png');
  t.is(choice(JAVA), 'json');
  t.is(acceptedAnswers('image/jpeg').prefer(ALL), 'none');
});

interface Range {
  readonly type: string;
  readonly q: number;
}

/** RFC 9110 section 12.5.1 by the book: the most specific range decides the quality of a type. */
function byTheBook(ranges: readonly Range[], formats: readonly OutputFormat[]): string {
  /** The stars in it. */
  const rank = (range: string) => range.split('*').length - 1;
  const covers = (range: string, type: string) =>
    range === '*/*' || range === type || range === `${type.split('/')[0]}/*`;
  const answers = ['json', ...formats].flatMap((answer, place) => {
    const type = answer === 'json' ? 'application/json' : contentTypeOf(answer as OutputFormat);
    const [decisive] = ranges
      .filter(range => covers(range.type, type))
      .sort((one, other) => rank(one.type) - rank(other.type));
    if (decisive === undefined || decisive.q === 0) return [];
    const exact = -rank(decisive.type);
    return [{ answer, place, exact, q: decisive.q, named: ranges.indexOf(decisive) }];
  });
  const asks = ranges.some(({ type, q }) => type.startsWith('image/') && q > 0);
  const html = ranges.some(({ type, q }) => type === 'text/html' && q > 0);
  if (!asks || html) return 'json';
  answers.sort(
    (one, other) =>
      other.q - one.q ||
      other.exact - one.exact ||
      one.named - other.named ||
      one.place - other.place,
  );
  return answers[0]?.answer ?? 'none';
}

test('it chooses as the RFC says, whatever the ranges, their order and their qualities', t => {
  const types = [
    '*/*',
    'image/*',
    'application/*',
    'application/json',
    'text/html',
    'text/plain',
    'image/gif',
    ...TRANSPARENT_FORMATS.map(contentTypeOf),
  ];
  const range = fc.record({
    type: fc.constantFrom(...types),
    q: fc.constantFrom(1, 0, 0.001, 0.5, 0.999),
  });
  const ranges = fc.uniqueArray(range, { selector: ({ type }) => type, maxLength: 8 });
  const formats = fc.shuffledSubarray([...TRANSPARENT_FORMATS], { minLength: 1 });
  const chosen = new Set<string>();
  t.notThrows(() =>
    fc.assert(
      fc.property(ranges, formats, fc.boolean(), (given, made, spaced) => {
        const members = given.map(({ type, q }) => (q === 1 ? type : `${type};q=${q}`));
        const header = members.join(spaced ? ' ,\t' : ',');
        const answer = acceptedAnswers(header).prefer(made);
        chosen.add(answer);
        assert.equal(answer, byTheBook(given, made), header);
      }),
      { numRuns: 2000 },
    ),
  );
  for (const answer of ['json', 'none', ...TRANSPARENT_FORMATS]) t.true(chosen.has(answer), answer);
});

test('what was preferred of all formats is preferred of itself alone', t => {
  const anything = fc.oneof(
    fc.string({ maxLength: 200 }),
    fc.array(fc.constantFrom('image/png', 'image/*', '*/*', ';q=0.', '3', ',', ' ', 'a/b', '"'), {
      maxLength: 20,
    }),
  );
  t.notThrows(() =>
    fc.assert(
      fc.property(anything, given => {
        const accepts = acceptedAnswers([given].flat().join(''));
        const choice = accepts.prefer(ALL);
        if (choice === 'json') assert.equal(accepts.prefer(['png']), 'json');
        else if (choice !== 'none') assert.equal(accepts.prefer([choice]), choice);
      }),
      { numRuns: 2000 },
    ),
  );
});
