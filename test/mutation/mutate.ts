/**
 * Preloaded: applies the bug of MATTING_TEST_MUTANT to its module, in this process and its
 * children. If a process runs several mutants (run-mutants.ts), modules that reach the bug are
 * evaluated again for each; others are shared.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type Change, changed } from './change.ts';

/** A process that loaded the module with its bug writes to `loadedBy`. */
interface Bug extends Change {
  readonly url: string;
  readonly loadedBy: string;
}

const ROOT = pathToFileURL(path.resolve(import.meta.dirname, '../..')).href;
/** Replaces the package by the current run's test. */
const AVA = 'mutants:ava';
/** With the modules that import each. */
const importers = new Map<string, Set<string>>();
const stripped = new Map<string, string>();
let current: { readonly run: number; isAnew(url: string): boolean } | undefined;

const isOurs = (url: string) => url.startsWith(ROOT) && !url.includes('/node_modules/');
const withoutRun = (url: string) => url.replace(/\?run=\d+$/, '');

/** Gives a run its own copies of `urls`, of ava's `test`, and of all their importers. */
export function loadAnew(next: { run: number; test: unknown }, urls: readonly string[]): void {
  const anew = new Set<string>();
  const add = (url: string) => {
    if (anew.has(url)) return;
    anew.add(url);
    for (const importer of importers.get(url) ?? []) add(importer);
  };
  for (const url of [AVA, ...urls]) add(url);
  // A module without known importers may still be imported by any.
  const isUnseen = urls.some(url => !importers.has(url));
  current = { run: next.run, isAnew: url => isUnseen || anew.has(url) };
  Object.assign(globalThis, { [AVA]: next.test });
}

const sourceOf = (url: string) => readFileSync(fileURLToPath(url), 'utf8');

/** Undefined: not the module with the bug. */
function mutated(url: string): string | undefined {
  const { MATTING_TEST_MUTANT: text = '' } = process.env;
  const bug: Bug | undefined = text === '' ? undefined : JSON.parse(text);
  if (bug?.url !== url) return undefined;
  appendFileSync(bug.loadedBy, `${process.pid}\n`);
  return stripTypeScriptTypes(changed(sourceOf(url), bug));
}

function strippedOf(url: string): string {
  const source = stripped.get(url) ?? stripTypeScriptTypes(sourceOf(url));
  stripped.set(url, source);
  return source;
}

registerHooks({
  resolve(specifier, context, nextResolve) {
    if (current === undefined) return nextResolve(specifier, context);
    const isAva = specifier === 'ava';
    const resolved = isAva ? { url: AVA, shortCircuit: true } : nextResolve(specifier, context);
    const url = withoutRun(resolved.url);
    if (!isAva && !isOurs(url)) return resolved;
    importers.set(url, (importers.get(url) ?? new Set()).add(withoutRun(context.parentURL ?? '')));
    return current.isAnew(url) ? { ...resolved, url: `${url}?run=${current.run}` } : resolved;
  },
  load(url, context, nextLoad) {
    const own = withoutRun(url);
    const isOfRun = own !== url && own.endsWith('.ts');
    const source =
      own === AVA
        ? `export default globalThis['${AVA}']`
        : (mutated(own) ?? (isOfRun ? strippedOf(own) : undefined));
    if (source === undefined) return nextLoad(url, context);
    return { format: 'module', source, shortCircuit: true };
  },
});
