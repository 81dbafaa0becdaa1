/** Paths that Markdown names, in full or by their last parts. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from './source-files.ts';

/** Made by programs, backups and readers. */
const MADE_ELSEWHERE = [
  /^(?:inputs|backgrounds|results|tmp|logs|blobs|photos|model-cache|localhost)\/$/,
  /^(?:bench\/results|client\/build|release|deploy\/compose\/(?:\.env|compose\.override\.yaml)|test\/lanes\/last-green)(?:\/|$)/,
  /^(?:backup|card|claude_desktop_config|cutter\.manifest)\.json$/,
  // A Kubernetes Deployment; paths of the machine.
  /^deploy\/matting-|^[~/.$]/,
];
const EXTENSION = /\.(?:ts|js|css|json|md|proto|sh|wasm|yaml)$/;
const FOLDER = /^[\w-]+(?:\/[\w-]+)*\/$/;
const SKIPPED = /^(?:\.git|node_modules|data|model-cache|build)$/;

const filesOf = (pattern: string) =>
  globSync(pattern, { cwd: ROOT, exclude: name => SKIPPED.test(path.basename(name)) })
    .map(name => name.split(path.sep).join('/'))
    .filter(name => !name.startsWith('release/'));

export const readPages = () =>
  filesOf('**/*.md').map(page => ({ page, text: readFileSync(path.join(ROOT, page), 'utf8') }));

/** Words in backticks that look like paths, and others that start with a folder. */
export function pathsNamedBy(text: string, folders: readonly string[]): string[] {
  const prose = text.replaceAll(/^ *```.*$/gm, '').replaceAll(/\]\([^)\s]*\)/g, ']');
  const quoted = [...prose.matchAll(/`([^`\n]+)`/g)].flatMap(([, span = '']) => wordsOf(span));
  const bare = wordsOf(prose.replaceAll(/`[^`\n]*`/g, ' '));
  const isFull = (word: string) => folders.some(folder => word.startsWith(`${folder}/`));
  const isPath = (word: string) => EXTENSION.test(word) || FOLDER.test(word) || isFull(word);
  const named = [...quoted.filter(isPath), ...bare.filter(isFull)];
  return named.filter(word => !MADE_ELSEWHERE.some(form => form.test(word)));
}

/** A placeholder, as in `results/<job>`, makes it no path. */
const WORD = /(?<![^\s"'(,=])[\w@.~/$-]*[\w@~/$-](?!\.?[\w@~/$<{*…-]|:\S)/g;
const wordsOf = (text: string) => [...text.matchAll(WORD)].map(([word]) => word);

export function missingPaths() {
  const files = filesOf('**/*').map(file => `/${file}/`);
  // Pages may name a decision by its number.
  const endOf = (name: string) => (/^docs\/adr\/\d+$/.test(name) ? '-' : '/');
  const isThere = (name: string) =>
    files.some(file => file.includes(`/${name.replace(/\/$/, '')}${endOf(name)}`));
  const folders = [...new Set(files.map(file => file.split('/')[1] ?? ''))];
  // It names files of old versions.
  const pages = readPages().filter(({ page }) => page !== 'CHANGELOG.md');
  const named = pages.flatMap(({ page, text }) =>
    pathsNamedBy(text, folders).map(name => ({ page, name })),
  );
  return { named, missing: named.filter(({ name }) => !isThere(name)) };
}
