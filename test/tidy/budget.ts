/**
 * How large the house may be. A commit that raises a figure says what leaves in exchange; one that
 * takes away lowers it, so that nothing uses the room unseen.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { jobColumnsIn } from './job-columns.ts';
import { readPages } from './named-paths.ts';
import { PACKAGES } from './packages.ts';
import { ROOT } from './source-files.ts';

const TREES = ['control-plane', 'inference-node', 'program', 'proto'] as const;
const IS_TEST = /(?:^|\/)test\/|\.(?:test|storm|storage)\.ts$/;

/** Smaller figures need not be lowered. */
export const LINES_MIN = 1000;

export const BUDGET = {
  'lines of control-plane, inference-node, program and proto': 106_240,
  'lines of control-plane/core': 16_980,
  'lines of tests': 114_460,
  'lines of bench': 7_735,
  'words of comments in source': 85_000,
  'words of comments in tests': 25_000,
  'lines of Unreleased in CHANGELOG.md': 48,
  'columns of jobs that the queue has': 25,
  'columns of jobs that the core adds': 44,
  'names of core that other packages import': 98,
  'names that serving exports': 204,
  'words of Markdown': 85_000,
} as const;
export type Figure = keyof typeof BUDGET;

export function measure(): Readonly<Record<Figure, number>> {
  const files = globSync(
    '{control-plane,inference-node,program,proto,bin,client,bench,test}/**/*.{ts,js,css}',
    {
      cwd: ROOT,
      exclude: ['**/node_modules/**', '**/gen/**', 'client/build/**'],
    },
  );
  const programs = files.filter(
    name => !IS_TEST.test(name) && TREES.some(tree => name.startsWith(`${tree}/`)),
  );
  const tests = files.filter(name => IS_TEST.test(name));
  return {
    'lines of control-plane, inference-node, program and proto': linesOf(programs),
    'lines of control-plane/core': linesOf(programs.filter(isOfCore)),
    'lines of tests': linesOf(tests),
    'lines of bench': linesOf(
      files.filter(name => /^bench\/.*\.ts$/.test(name) && !IS_TEST.test(name)),
    ),
    'words of comments in source': commentWords(programs),
    'words of comments in tests': commentWords(tests),
    'lines of Unreleased in CHANGELOG.md': unreleasedLines(),
    'columns of jobs that the queue has': jobsColumns('queue'),
    'columns of jobs that the core adds': jobsColumns('core'),
    'names of core that other packages import': importedNamesOf('@matting/core', files),
    'names that serving exports': namesOf('@matting/serving'),
    'words of Markdown': markdownWords(),
  };
}

const isOfCore = (name: string) => name.startsWith('control-plane/core/');
const read = (name: string) => readFileSync(path.join(ROOT, name), 'utf8');

function linesOf(names: readonly string[]): number {
  return names.reduce((sum, name) => sum + read(name).split('\n').length - 1, 0);
}

function unreleasedLines(): number {
  const [, section = ''] = /^## Unreleased\n([\s\S]*?)^## /m.exec(read('CHANGELOG.md')) ?? [];
  return section.split('\n').filter(line => line.trim() !== '').length;
}

const COMMENT_LINE = /^\s*(?:\/\*\*?|\*\/?|\/\/)(.*)$/gm;

function commentWords(names: readonly string[]): number {
  return wordsOf(
    names.flatMap(name => [...read(name).matchAll(COMMENT_LINE)].map(([, text = '']) => text)),
  );
}

function markdownWords(): number {
  return wordsOf(readPages().map(({ text }) => text));
}

/** Rounded up to a thousand, so that one more sentence fits. */
function wordsOf(texts: readonly string[]): number {
  const words = texts.reduce((sum, text) => sum + (text.match(/\w\S*/g)?.length ?? 0), 0);
  return Math.ceil(words / 1000) * 1000;
}

function jobsColumns(by: 'core' | 'queue'): number {
  const parts = jobColumnsIn(read(`control-plane/${by}/tables.ts`));
  return [...parts.values()].reduce((sum, names) => sum + names.length, 0);
}

function namesOf(name: string): number {
  const found = PACKAGES.find(one => one.name === name);
  const files = Object.entries(found?.exports ?? {}).filter(([as]) => !as.startsWith('./test/'));
  return files.reduce(
    (sum, [, file]) => sum + namesIn(read(path.join(found!.folder, file))).length,
    0,
  );
}

/**
 * Names that other packages' files and tests import, without those from the package's tests. A file
 * imported whole counts with all its names.
 */
function importedNamesOf(name: string, files: readonly string[]): number {
  const { folder } = PACKAGES.find(one => one.name === name)!;
  const others = files.filter(file => !file.startsWith(`${folder}/`));
  const taken = others.map(file => importsIn(read(file), name));
  const whole = taken.flatMap(one => one.whole).flatMap(file => namesIn(read(`${folder}/${file}`)));
  return new Set([...taken.flatMap(one => one.names), ...whole]).size;
}

/** Names imported by lists, and files imported whole. */
export function importsIn(text: string, name: string) {
  const place = `'${name}/((?!test/)[^']+)'`;
  const lists = new RegExp(`\\{([^{}]*)\\} from ${place}`, 'g');
  const names = [...text.matchAll(lists)].flatMap(([, list = '']) =>
    list.split(',').flatMap(one => /(\w+)(?: as \w+)?\s*$/.exec(one)?.[1] ?? []),
  );
  const rest = text.replaceAll(lists, '').matchAll(new RegExp(place, 'g'));
  return { names, whole: [...rest].map(([, file = '']) => file) };
}

const DECLARED =
  /^export (?:abstract |async )*(?:const|function\*?|class|interface|type|enum) (\w+)/gm;

function namesIn(text: string): string[] {
  const lists = [...text.matchAll(/^export (?:type )?\{([^}]*)\}/gm)];
  const listed = lists.flatMap(([, names = '']) =>
    names.split(',').filter(one => one.trim() !== ''),
  );
  return [...new Set([...text.matchAll(DECLARED)].map(([, one = '']) => one)), ...listed];
}
