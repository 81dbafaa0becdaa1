/** docs/security.md answers every requirement of the chapters that it takes, each once. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { at } from '../support/at.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const PAGE = path.join(ROOT, 'docs/security.md');
const VERDICTS = ['met', 'not applicable', 'open'];

/** Requirements of each section of OWASP ASVS 5.0.0 that the page is about. */
const SECTIONS: Readonly<Record<string, number>> = {
  ...{ 3.1: 1, 3.2: 3, 3.3: 5, 3.4: 8, 3.5: 8, 3.6: 1, 3.7: 5 },
  ...{ 6.1: 3, 6.2: 12, 6.3: 8, 6.4: 6, 6.5: 8, 6.6: 4, 6.7: 2, 6.8: 4 },
  ...{ 7.1: 3, 7.2: 4, 7.3: 2, 7.4: 5, 7.5: 3, 7.6: 2 },
  ...{ 8.1: 4, 8.2: 4, 8.3: 3, 8.4: 2 },
  ...{ 9.1: 3, 9.2: 4 },
  ...{ '10.1': 2, 10.2: 3, 10.3: 5, 10.4: 16, 10.5: 5, 10.6: 2, 10.7: 3 },
  ...{ 13.3: 4 },
};

interface Row {
  readonly numbers: readonly string[];
  readonly verdict: string;
  readonly where: string;
}

/** `10.4.1 to 10.4.16` stands for all of them. */
function numbersOf(cell: string): string[] {
  const [first, last] = cell.split(' to ');
  const from = at((first ?? '').split('.'), 2);
  const section = (first ?? '').replace(/\.\d+$/, '');
  const to = Number((last ?? first ?? '').split('.')[2]);
  return Array.from({ length: to - Number(from) + 1 }, (_, i) => `${section}.${Number(from) + i}`);
}

function rowsOf(text: string): Row[] {
  const rows = [...text.matchAll(/^\| (\d+\.\d+\.\d+[^|]*) \| ([^|]+) \| ([^|]+) \| (.*) \|$/gm)];
  return rows.map(([, numbers = '', , verdict = '', where = '']) => ({
    numbers: numbersOf(numbers),
    verdict,
    where,
  }));
}

const rows = rowsOf(readFileSync(PAGE, 'utf8'));

test('every requirement has one row', () => {
  const expected = Object.entries(SECTIONS).flatMap(([section, count]) =>
    Array.from({ length: count }, (_, index) => `${section}.${index + 1}`),
  );
  assert.equal(expected.length, 157);
  assert.deepEqual(rows.flatMap(({ numbers }) => numbers).sort(), expected.sort());
});

test('the sources that it names are there', () => {
  const text = readFileSync(PAGE, 'utf8');
  const named = [...text.matchAll(/`([\w./-]+\.(?:ts|js|css|json))`/g)].map(([, name]) => name);
  const files = globSync(
    '{control-plane,inference-node,program,proto,test}/**/*.{ts,js,css,json}',
    { cwd: ROOT },
  );
  assert.ok(named.length > 60);
  assert.deepEqual(
    [...new Set(named)].filter(name => !files.some(file => file.endsWith(`/${name}`))),
    [],
  );
});

test('its sentence counts its rows', () => {
  const [met, absent, open] = VERDICTS.map(
    asked => rows.flatMap(({ numbers, verdict }) => (verdict === asked ? numbers : [])).length,
  );
  const text = readFileSync(PAGE, 'utf8').replace(/\s+/g, ' ');
  assert.match(text, new RegExp(`: ${met} are met, ${absent} do not apply, ${open} are open\\.`));
});

/** As GitHub makes them of headings. */
function anchorsOf(page: string): string[] {
  const headings = readFileSync(page, 'utf8').matchAll(/^#+ (.*)$/gm);
  return [...headings].map(([, text = '']) =>
    text
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}

test('the pages that it links to are there, with the sections', () => {
  const links = [...readFileSync(PAGE, 'utf8').matchAll(/\]\(([\w./-]*)(?:#([\w-]+))?\)/g)];
  assert.ok(links.length > 20);
  for (const [link, name = '', anchor] of links) {
    const page = name === '' ? PAGE : path.join(ROOT, 'docs', name);
    if (anchor === undefined) readFileSync(page);
    else assert.ok(anchorsOf(page).includes(anchor), link);
  }
});

test('every row has a verdict, and says where it is met or why it is not', () => {
  for (const { numbers, verdict, where } of rows) {
    assert.ok(VERDICTS.includes(verdict), `${numbers}: ${verdict}`);
    assert.ok(where.length > 3, `${numbers} says nothing: ${where}`);
    if (verdict === 'met') assert.match(where, /`|\[/, `${numbers} names no place: ${where}`);
  }
});
