/** What docs/security.md names is there: sources, pages and their sections. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';

const ROOT = path.resolve(import.meta.dirname, '../..');
const PAGE = path.join(ROOT, 'docs/security.md');

test('the sources that it names are there', t => {
  const text = readFileSync(PAGE, 'utf8');
  const named = [...text.matchAll(/`([\w./-]+\.(?:ts|js|css|json))`/g)].map(([, name]) => name);
  const files = globSync(
    '{control-plane,inference-node,program,proto,test}/**/*.{ts,js,css,json}',
    { cwd: ROOT },
  );
  t.true(named.length > 60);
  t.deepEqual(
    [...new Set(named)].filter(name => !files.some(file => file.endsWith(`/${name}`))),
    [],
  );
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

test('the pages that it links to are there, with the sections', t => {
  const links = [...readFileSync(PAGE, 'utf8').matchAll(/\]\(([\w./-]*)(?:#([\w-]+))?\)/g)];
  t.true(links.length > 20);
  for (const [link, name = '', anchor] of links) {
    const page = name === '' ? PAGE : path.join(ROOT, 'docs', name);
    if (anchor === undefined) readFileSync(page);
    else t.true(anchorsOf(page).includes(anchor), link);
  }
});
