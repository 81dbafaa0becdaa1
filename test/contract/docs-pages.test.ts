/** test/runbook runs the pages' commands. */
import { execFileSync } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import path from 'node:path';
import { status } from '@grpc/grpc-js';
import test from 'ava';
import { runCommand } from '../../control-plane/core/run-command.ts';
import { PACKAGES } from '../../control-plane/packages.ts';
import { LEFT_VARIABLES, MATTING_VARIABLES } from '../../program/env-names.ts';
import { ERROR_CATALOGUE } from '../../proto/contract/errors.ts';
import {
  alertRules,
  commandsOf,
  ownArgumentsOf,
  readPage,
  runbookPages,
} from '../runbook/runbook-page.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
// CHANGELOG.md names removed commands.
const PAGES = globSync('{README.md,docs/*.md}', { cwd: ROOT });
const documented = PAGES.flatMap(page => ownArgumentsOf(commandsOf(readPage(page))));

test('`matting` knows the first word of each', t => {
  const help = execFileSync(process.execPath, ['bin/matting.ts', '--help'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const known = [...help.matchAll(/^ {2}([a-z-]+) /gm)].map(([, name]) => name);
  const words = documented.map(line => line.split(' ')[0]);
  const unknown = words.filter(
    word => word !== undefined && !['--help', '…'].includes(word) && !known.includes(word),
  );
  t.deepEqual([...new Set(unknown)], []);
  t.true(documented.length > 30);
});

test('the control plane knows the others, with their options', async t => {
  let all = '';
  const takeAll = (text: string) => {
    all += text;
  };
  await runCommand(['--help'], { out: takeAll, err: takeAll }, {}, PACKAGES);
  const own = [...all.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = '']) => name);
  // The others belong to the node or to bin/matting.ts.
  const lines = documented.filter(
    line => own.includes(line.split(' ')[0] ?? '') && !line.startsWith('doctor --node'),
  );
  t.true(lines.length > 20);
  for (const line of lines) {
    const words = line.split(' ');
    const first = words.findIndex(word => !/^[a-z]+(?:-[a-z]+)*$/.test(word));
    // One or two words name a command; arguments follow.
    const names = words.slice(0, first < 0 ? 2 : Math.min(first, 2));
    let help = '';
    const take = (text: string) => {
      help += text;
    };
    const code = await runCommand([...names, '--help'], { out: take, err: take }, {}, PACKAGES);
    t.is(code, 0, `${line}: ${help}`);
    t.regex(help, new RegExp(`^Usage: matting ${names.join(' ')} `, 'm'), line);
    for (const option of line.match(/--[a-z-]+/g) ?? []) {
      t.true(help.includes(`${option} `) || help.includes(`${option}\n`), `${line}: ${help}`);
    }
  }
});

test('no command of the pages waits without a limit', t => {
  const waits = /\buntil [^;]*; do\b|\bwhile (?:true|:|!)|\bkubectl\b.* (?:wait|rollout status)\b/;
  const lines = PAGES.flatMap(page => readPage(page).split('\n')).filter(line => waits.test(line));
  t.true(lines.length > 1);
  t.deepEqual(
    lines.filter(line => !/\btimeout \d+ |--timeout=/.test(line)),
    [],
  );
});

/** An upgrade removes it. */
const UNIT_OF_LAST_RELEASE = 'matting-credits-check-full.timer';

test('settings, alerts and units that the pages name are there', t => {
  const textOf = (page: string) =>
    readPage(page).replaceAll(`systemctl disable --now ${UNIT_OF_LAST_RELEASE}`, '');
  const namesIn = (form: RegExp) => PAGES.flatMap(page => textOf(page).match(form) ?? []);
  const units = globSync('*', { cwd: path.join(ROOT, 'deploy/systemd') });
  for (const [form, known] of [
    [
      /\bMATTING_(?!TEST_)[A-Z_]*[A-Z]\b(?!_)/g,
      [...MATTING_VARIABLES, ...Object.keys(LEFT_VARIABLES)],
    ],
    [/\bMatting[A-Z]\w+/g, [...alertRules().keys()]],
    [/\bmatting[\w@-]*\.(?:service|timer)\b/g, units],
  ] as const) {
    const names = namesIn(form);
    t.true(names.length > 5, String(form));
    t.deepEqual(
      [...new Set(names)].filter(name => !known.includes(name)),
      [],
    );
  }
});

const FOLDER = 'test/runbook';
const files = globSync('*.runbook.ts', { cwd: path.join(ROOT, FOLDER) });
const tried = files.flatMap(file =>
  [...readPage(`${FOLDER}/${file}`).matchAll(/\bprocedure\('(\w+)'/g)].map(([, name]) => name),
);
const [preface = ''] = readPage('docs/runbook.md').split('\n## ');
const [, untriedText = ''] = preface.split('Not tried');
const untried = [...untriedText.matchAll(/\bMatting\w+/g)].map(([name]) => name);

test('tried and untried pages together are all pages of the runbook', t => {
  t.true(tried.length > 15);
  t.deepEqual([...tried, ...untried].toSorted(), [...runbookPages().keys()].toSorted());
});

test('docs/errors.md has a heading for each code of the catalogue, and no other', t => {
  const headings = [...readPage('docs/errors.md').matchAll(/^### (.*)$/gm)].map(([, code]) => code);
  t.deepEqual(headings.toSorted(), Object.keys(ERROR_CATALOGUE).sort());
});

test('docs/errors.md says of each code its status, what it is about and its retry rule', t => {
  const text = readPage('docs/errors.md');
  for (const [code, spec] of Object.entries(ERROR_CATALOGUE)) {
    const [, line = ''] = new RegExp(`^### ${code}\n\n(.*)$`, 'm').exec(text) ?? [];
    t.is(line.includes(`HTTP ${spec.http},`), spec.scope !== 'node', `${code}: ${line}`);
    t.true(line.includes(`gRPC ${status[spec.grpc]},`), `${code}: ${line}`);
    const rules = {
      never: /, (?:not retryable|retryable by its cause)\.$/,
      later: /, retryable\.$/,
      'other-node': /, retryable on another node\.$/,
    };
    t.regex(line, rules[spec.retry], code);
    const [, about] = /, about the (\w+),/.exec(line) ?? [];
    const words = { picture: 'image', job: 'job', options: 'options', all: undefined };
    t.is(about, words[spec.about], `${code}: ${line}`);
  }
});

/** As GitHub does. */
function anchorsOf(page: string): string[] {
  return [...readPage(page).matchAll(/^#+ (.*)$/gm)].map(([, text = '']) =>
    text
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}

test('the sources that the verification of security names are there', t => {
  const text = readPage('docs/appendix/security-verification.md');
  const files = globSync(
    '{control-plane,inference-node,program,proto,test}/**/*.{ts,js,css,json}',
    {
      cwd: ROOT,
      exclude: name => name === 'node_modules',
    },
  );
  const named = [...text.matchAll(/`([\w./-]+\.(?:ts|js|css|json))`/g)].map(([, name]) => name);
  t.true(named.length > 20);
  t.deepEqual(
    [...new Set(named)].filter(name => !files.some(file => file.endsWith(`/${name}`))),
    [],
  );
});

test('every link of the pages leads to a file, and to a heading of it', t => {
  const pages = globSync(
    '{*.md,{bench,docs,deploy,models,client,proto}/**/*.md,*/README.md,*/*/README.md}',
    {
      cwd: ROOT,
      exclude: ['**/node_modules/**'],
    },
  );
  const links = pages.flatMap(page =>
    [...readPage(page).matchAll(/\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)/g)].map(
      ([link, name = '', anchor]) => {
        const file = name === '' ? page : path.join(path.dirname(page), name);
        const isThere =
          existsSync(path.join(ROOT, file)) &&
          (anchor === undefined || anchorsOf(file).includes(anchor));
        return { page, link, isThere };
      },
    ),
  );
  t.true(links.length > 150);
  t.deepEqual(
    links.filter(({ isThere }) => !isThere),
    [],
  );
});

test('a page shows every picture of docs/images', t => {
  const text = PAGES.map(readPage).join('\n');
  const pictures = globSync('*.{jpg,png,webp}', { cwd: path.join(ROOT, 'docs/images') });
  t.deepEqual(
    pictures.filter(name => !text.includes(`images/${name})`)),
    ['demo.jpg'],
  );
});

test('the units that docs/install.md names are in deploy/systemd', t => {
  const named = readPage('docs/install.md').match(/\bmatting-[a-z-]+\.timer\b/g) ?? [];
  const timers = globSync('*.timer', { cwd: path.join(ROOT, 'deploy/systemd') });
  t.deepEqual([...named].sort(), timers.sort());
});

test('the tables of docs/scaling.md follow from its first section', t => {
  const text = readPage('docs/scaling.md');
  const rows = [...text.matchAll(/^\| (.*) \|$/gm)].map(([, row = '']) => row.split(' | '));
  const cells = (name: string) => rows.find(([first]) => first === name) ?? [];
  const sizes = cells('Result');
  const models = ['`standard`', '`fast`', '`MATTING_MODEL=u2netp`'].map(name =>
    Number.parseFloat(cells(name)[1] ?? ''),
  );
  const nodes = rows.flatMap(([photo = '', ...cores]) => {
    const [, size = '', format = ''] = /^(\S+ MP), (\w+)$/.exec(photo) ?? [];
    if (size === '') return [];
    const picture = Number(cells(format)[sizes.indexOf(size)]);
    const each = (model: number) =>
      [1, 10, 100].map(rate => Math.ceil((rate * (model + picture)) / 0.7 - 1e-9)).join(', ');
    return [{ photo, cores, expected: models.map(each) }];
  });
  t.true(nodes.length > 4);
  for (const { photo, cores, expected } of nodes) t.deepEqual(cores, expected, photo);
  const rates = [1, 10, 100, 5000];
  const replicas = rates.map(rate => Math.max(2, Math.ceil((rate * 0.023) / 2 / 0.5) + 1));
  const shown = (name: string) =>
    cells(name)
      .slice(1)
      .map(cell => Number(cell.replace(',', '')));
  t.deepEqual(shown('control planes of 2 cores and 1 GB'), replicas);
  t.deepEqual(
    shown('connections, 16 a control plane'),
    replicas.map(count => 16 * count),
  );
  t.deepEqual(
    shown('commits a second'),
    rates.map(rate => 4 * rate),
  );
});
