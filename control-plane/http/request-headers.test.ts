import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import {
  contentTypeOf,
  type OutputFormat,
  TRANSPARENT_FORMATS,
} from '@matting/proto/contract/formats.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import {
  acceptedAnswers,
  addressesOf,
  bodyTypeOf,
  charsetOf,
  extendsAscii,
  formatHttpDate,
  judgeConditions,
  parseContentType,
  parseHttpDate,
  parsePrefer,
  parseRange,
  rangeStillHolds,
  readParameters,
} from './request-headers.ts';

/** Formats of a request without output_format; the default first. */
const ALL: readonly OutputFormat[] = ['png', 'webp', 'avif', 'jxl'];
const CHROME =
  'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8';
const IMG_ELEMENT = 'image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8';
/** java.net.HttpURLConnection's default. */
const JAVA = 'text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2';

/** Without output_format. Properties below check the qualities. */
const UNNAMED: readonly [accept: string | undefined, answer: OutputFormat | 'json' | 'none'][] = [
  [undefined, 'json'],
  ['', 'json'],
  ['application/json; charset=utf-8', 'json'],
  ['application/json, text/plain, */*', 'json'],
  ['application/problem+json', 'json'],
  [CHROME, 'json'],
  [JAVA, 'json'],
  ['IMAGE/PNG', 'png'],
  [IMG_ELEMENT, 'avif'],
  ['image/png, application/problem+json', 'png'],
  [' image/png ;q=1 ,, ,', 'png'],
  ['application/json;charset=UTF-8, image/png;q=0.5', 'json'],
  ['image/jpeg', 'none'],
  ['image/png;level=1', 'none'],
  ['image', 'json'],
  ['image/', 'json'],
  [';;;,,,===', 'json'],
  ['image/png;q=high, application/json', 'json'],
  ['*, image/webp', 'webp'],
  [`image/png,${'a/b,'.repeat(1000)}`, 'json'],
];

test('a request that names no format is answered by what it accepts', t => {
  for (const [accept, answer] of UNNAMED) t.is(acceptedAnswers(accept).prefer(ALL), answer, accept);
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

/** RFC 9110 section 12.5.1: the most specific range decides. */
function byTheBook(ranges: readonly Range[], formats: readonly OutputFormat[]): string {
  const rank = (range: string) => range.split('*').length - 1;
  const covers = (range: string, type: string) =>
    range === '*/*' || range === type || range === `${type.split('/')[0]}/*`;
  const answers = ['json', ...formats].flatMap((answer, index) => {
    const type = answer === 'json' ? 'application/json' : contentTypeOf(answer as OutputFormat);
    const [decisive] = ranges
      .filter(range => covers(range.type, type))
      .sort((one, other) => rank(one.type) - rank(other.type));
    if (decisive === undefined || decisive.q === 0) return [];
    const exact = -rank(decisive.type);
    return [{ answer, index, exact, q: decisive.q, named: ranges.indexOf(decisive) }];
  });
  const wantsImage = ranges.some(({ type, q }) => type.startsWith('image/') && q > 0);
  const html = ranges.some(({ type, q }) => type === 'text/html' && q > 0);
  if (!wantsImage || html) return 'json';
  answers.sort(
    (one, other) =>
      other.q - one.q ||
      other.exact - one.exact ||
      one.named - other.named ||
      one.index - other.index,
  );
  return answers[0]?.answer ?? 'none';
}

test('Accept is answered as the RFC says, for any ranges, order and qualities', t => {
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
      { numRuns: 500 },
    ),
  );
  for (const answer of ['json', 'none', ...TRANSPARENT_FORMATS]) t.true(chosen.has(answer), answer);
});

test('the preferred format of all is also the preferred one if it is the only one', t => {
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
      { numRuns: 500 },
    ),
  );
});

const whole = undefined;

test('Range › ranges of a file of 100 bytes', t => {
  const cases: [string | undefined, ReturnType<typeof parseRange>][] = [
    [undefined, whole],
    ['', whole],
    ['bytes=-', whole],
    ['bytes=a-b', whole],
    ['bytes=5-4', whole],
    ['bytes=0-1,5-6', whole],
    ['lines=0-1', whole],
    ['bytes=100-', 'unsatisfiable'],
    ['bytes=-0', 'unsatisfiable'],
    ['bytes=99999999999999999999-', 'unsatisfiable'],
    ['bytes=0-', { start: 0, end: 99 }],
    ['bytes=99-', { start: 99, end: 99 }],
    ['bytes=10-19', { start: 10, end: 19 }],
    ['bytes=90-1000', { start: 90, end: 99 }],
    ['bytes=-10', { start: 90, end: 99 }],
    ['bytes=-1000', { start: 0, end: 99 }],
    ['Bytes= 1-2', { start: 1, end: 2 }],
  ];
  for (const [header, range] of cases) t.deepEqual(parseRange(header, 100), range, header);
});

test('Range › an empty file has no range', t => {
  t.is(parseRange('bytes=0-', 0), 'unsatisfiable');
  t.is(parseRange('bytes=-1', 0), 'unsatisfiable');
});

const AT = Date.UTC(1994, 10, 6, 8, 49, 37);
const NOW = 'Sun, 06 Nov 1994 08:49:37 GMT';
const BEFORE = 'Sun, 06 Nov 1994 08:49:36 GMT';
const AFTER = 'Sun, 06 Nov 1994 08:49:38 GMT';
const file = { etag: '"a"', modifiedAtMs: AT };

test('conditions › text that is not a date of HTTP', t => {
  const wrong = [
    undefined,
    '',
    '784111777',
    '1994-11-06T08:49:37Z',
    'Sun, 06 Nov 1994 08:49:37',
    'Sun, 06 Nov 1994 08:49:37 CET',
    'sun, 06 nov 1994 08:49:37 gmt',
    'Sun, 6 Nov 1994 08:49:37 GMT',
    'Sun, 31 Feb 1994 08:49:37 GMT',
    'Sun, 06 Nov 1994 24:00:00 GMT',
    'Sun, 06 Nov 1994 08:49:61 GMT',
    `${NOW}, ${NOW}`,
    ` ${NOW}`,
  ];
  for (const text of wrong) t.is(parseHttpDate(text), undefined, text);
});

test('conditions › the three forms of a date', t => {
  t.is(parseHttpDate(NOW), AT);
  t.is(parseHttpDate('Sunday, 06-Nov-94 08:49:37 GMT'), AT);
  t.is(parseHttpDate('Sun Nov  6 08:49:37 1994'), AT);
  t.is(parseHttpDate('Sun Nov 16 08:49:37 1994'), AT + 10 * 86_400_000);
  t.is(parseHttpDate('Tue, 29 Feb 2028 23:59:60 GMT'), Date.UTC(2028, 2, 1));
  t.is(formatHttpDate(AT + 999), NOW);
});

test('conditions › conditions, in their order', t => {
  const cases: [Record<string, string>, ReturnType<typeof judgeConditions>][] = [
    [{ 'if-match': '"b"' }, 'failed'],
    [{ 'if-match': 'a' }, 'failed'],
    [{ 'if-match': '' }, 'failed'],
    [{ 'if-match': 'W/"a"' }, 'failed'],
    [{ 'if-match': '"b"', 'if-none-match': '"a"' }, 'failed'],
    [{ 'if-unmodified-since': BEFORE }, 'failed'],
    [{ 'if-unmodified-since': BEFORE, 'if-none-match': '"a"' }, 'failed'],
    [{}, 'send'],
    [{ 'if-match': '"b", "a"' }, 'send'],
    [{ 'if-match': '*' }, 'send'],
    [{ 'if-match': '"a"', 'if-unmodified-since': BEFORE }, 'send'],
    [{ 'if-unmodified-since': NOW }, 'send'],
    [{ 'if-unmodified-since': 'yesterday' }, 'send'],
    [{ 'if-none-match': '"b"' }, 'send'],
    [{ 'if-none-match': '"b"', 'if-modified-since': AFTER }, 'send'],
    [{ 'if-modified-since': BEFORE }, 'send'],
    [{ 'if-modified-since': 'tomorrow' }, 'send'],
    [{ 'if-none-match': '"b", "a"' }, 'not-modified'],
    [{ 'if-none-match': 'W/"a"' }, 'not-modified'],
    [{ 'if-none-match': '*' }, 'not-modified'],
    [{ 'if-none-match': '"a"', 'if-modified-since': BEFORE }, 'not-modified'],
    [{ 'if-match': '"a"', 'if-none-match': '"a"' }, 'not-modified'],
    [{ 'if-modified-since': NOW }, 'not-modified'],
    [{ 'if-modified-since': AFTER }, 'not-modified'],
  ];
  for (const [headers, verdict] of cases) {
    t.is(judgeConditions(headers, file), verdict, JSON.stringify(headers));
  }
});

test('conditions › a range is sent of this very file alone', t => {
  for (const other of ['"b"', 'W/"a"', 'a', '*', '', BEFORE, AFTER, 'yesterday']) {
    t.is(rangeStillHolds(other, file), false, other);
  }
  for (const same of [undefined, '"a"', NOW]) t.true(rangeStillHolds(same, file));
});

function typeOf(contentTypes: readonly string[], headers = { 'content-length': '1' }) {
  const rawHeaders = contentTypes.flatMap(value => ['Content-Type', value]);
  return bodyTypeOf({ rawHeaders, headers } as unknown as IncomingMessage);
}

const kindOf = (...contentTypes: string[]) => {
  const type = typeOf(contentTypes);
  return typeof type === 'object' ? type.type : type;
};

test('Content-Type › a type in any case, with blanks and parameters', t => {
  for (const text of ['a/B', 'A/b ;', 'a/b; C=d', 'a/b;c="d"', 'a/b \t; c = d ;']) {
    t.is(parseContentType(text)?.type, 'a/b', text);
  }
  t.deepEqual(
    [...parseContentType('a/b;C="d\\"e"; f=g')!.parameters!],
    [
      ['c', 'd"e'],
      ['f', 'g'],
    ],
  );
  for (const text of ['', 'a', 'a/', '/b', 'a/b c', 'a/b,c/d', 'ä/b']) {
    t.is(parseContentType(text), undefined, text);
  }
  for (const text of ['a/b; c', 'a/b; c=', 'a/b; c=d c=e', 'a/b; c=d; C=e', 'a/b; c="d']) {
    t.is(parseContentType(text)!.parameters, undefined, text);
  }
});

test('Content-Type › a charset counts for JSON alone, where it makes others of the bytes of ASCII', t => {
  for (const charset of ['UTF8', 'ISO-8859-1', '"windows-1252"', 'GBK', 'Shift_JIS']) {
    t.is(kindOf(`application/json; charset=${charset}`), 'application/json', charset);
  }
  for (const charset of ['UTF-16LE', 'utf-32', 'iso-2022-jp', 'utf-7', 'nobody-knows', '""']) {
    const json = `application/json; charset=${charset}`;
    t.is(kindOf(json), undefined, charset);
    t.is(kindOf('application/json', json), undefined, charset);
    for (const form of ['multipart/form-data', 'application/x-www-form-urlencoded']) {
      t.is(kindOf(`${form}; charset=${charset}`), form, charset);
    }
  }
  const named = parseContentType('text/plain; CHARSET="ISO-8859-15"')!;
  t.deepEqual([charsetOf(named), extendsAscii(named)], ['iso-8859-15', true]);
});

test('Content-Type › several types are one where all of them are JSON', t => {
  t.is(kindOf('application/json', 'Application/JSON; charset=utf-8'), 'application/json');
  t.is(kindOf('application/json', 'image/png'), undefined);
  t.is(kindOf('image/png', 'application/json'), undefined);
  t.is(kindOf('image/png', 'image/png'), undefined);
});

test('Content-Type › without a type there is a body that is none, or no body', t => {
  t.is(typeOf([]), undefined);
  t.is(typeOf([], { 'transfer-encoding': 'chunked' } as never), undefined);
  t.is(typeOf([], { 'content-length': '0' }), 'none');
  t.is(typeOf([], {} as never), 'none');
});

test('Content-Type › a quote behind a backslash ends a value where no other one does', t => {
  const read = (text: string) => readParameters(text, 0)?.get('a');
  for (const [text, value] of [
    [String.raw`;a="b\"`, 'b\\'],
    [String.raw`;a="\"`, '\\'],
    [String.raw`;a="b\" ; c=d`, 'b\\'],
    [String.raw`;a="b\"c"`, 'b"c'],
    [String.raw`;a="b\"; c="`, 'b"; c='],
    [String.raw`;a="b\\"`, 'b\\'],
  ] as const) {
    t.is(read(text), value, text);
  }
  for (const text of [String.raw`;a="b\"c`, String.raw`;a="b\" c`, String.raw`;a="b\"c"d`]) {
    t.is(readParameters(text, 0), undefined, text);
  }
});

test('X-Forwarded-For › a port is cut off, other text is no address', t => {
  const read: Readonly<Record<string, string>> = {
    '203.0.113.9': '203.0.113.9',
    '203.0.113.9:4711': '203.0.113.9',
    '[2001:db8::1]:4711': '2001:db8::1',
    '[2001:db8::1]': '2001:db8::1',
    '2001:db8::1': '2001:db8::1',
    '2001:db8::1:4711': '2001:db8::1:4711',
    '::ffff:203.0.113.9': '::ffff:203.0.113.9',
    '203.0.113.9:4711, 10.1.0.5:80,10.1.0.6': '203.0.113.9, 10.1.0.5, 10.1.0.6',
    ' , 203.0.113.9 ,,': '203.0.113.9',
    '': '',
    unknown: 'unknown',
    _hidden: 'unknown',
    '203.0.113.9:port': 'unknown',
    '203.0.113.9:4711:4712': 'unknown',
    '[203.0.113.9]x, 192.0.2.1': 'unknown, 192.0.2.1',
    '999.0.0.1:1': 'unknown',
    '<script>é\u0001': 'unknown',
  };
  for (const [given, expected] of Object.entries(read)) t.is(addressesOf(given), expected);
});

const CASES: readonly [header: string | undefined, respondAsync: boolean, waitS?: number][] = [
  [undefined, false],
  ['', false],
  [',,;', false],
  ['wait=', false],
  ['wait=-1', false],
  ['wait=1.5', false],
  ['wait=soon', false],
  ['wait=99999999999', false],
  ['wait = 5 6', false],
  ['respond-async=yes', false],
  ['"respond-async"', false],
  ['foo="a, wait=5, b"', false],
  ['wait=oops, wait=5', false],
  ['wait=0', false, 0],
  ['wait=10', false, 10],
  ['wait="10"', false, 10],
  ['wait = 10', false, 10],
  ['wait=10; foo=bar', false, 10],
  ['wait=10, wait=20', false, 10],
  ['foo="unclosed, wait=7', false, 7],
  ['respond-async', true],
  ['Respond-Async', true],
  ['respond-async=""', true],
  ['respond-async, wait=10', true, 10],
  ['wait=10,respond-async', true, 10],
];

test('Prefer › is read where it is well-formed, and is not there otherwise', t => {
  for (const [header, respondAsync, waitS] of CASES) {
    t.deepEqual(parsePrefer(header), { respondAsync, waitS }, header);
  }
  const hostile = `wait=5, "${'\\"'.repeat(5000)}`;
  t.deepEqual(parsePrefer(hostile), { respondAsync: false, waitS: undefined });
});
