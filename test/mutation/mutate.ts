/**
 * Preloaded: puts the bug of MATTING_TEST_MUTANT into the module that has it, in this process and
 * in those that it starts. In a process that runs several mutants (run-mutants.ts), modules that
 * can reach the bug are evaluated anew for each; all others are shared.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type Change, changed } from './change.ts';

/** A process that has loaded the module with its bug notes so in the file `loadedBy`. */
interface Bug extends Change {
  readonly url: string;
  readonly loadedBy: string;
}

const ROOT = pathToFileURL(path.resolve(import.meta.dirname, '../..')).href;
/** In place of the package: its module is the test of the current run. */
const AVA = 'mutants:ava';
/** Modules by URL, each with those that import it. */
const importers = new Map<string, Set<string>>();
const stripped = new Map<string, string>();
let current: { readonly run: number; isAnew(url: string): boolean } | undefined;

const isOurs = (url: string) => url.startsWith(ROOT) && !url.includes('/node_modules/');
const withoutRun = (url: string) => url.replace(/\?run=\d+$/, '');

/** Lets a run have modules of its own: what the URLs name, ava's `test`, and who imports those. */
export function loadAnew(next: { run: number; test: unknown }, urls: readonly string[]): void {
  const anew = new Set<string>();
  const add = (url: string) => {
    if (anew.has(url)) return;
    anew.add(url);
    for (const importer of importers.get(url) ?? []) add(importer);
  };
  for (const url of [AVA, ...urls]) add(url);
  // Anything may yet import a module that nothing has imported so far.
  const isUnseen = urls.some(url => !importers.has(url));
  current = { run: next.run, isAnew: url => isUnseen || anew.has(url) };
  Object.assign(globalThis, { [AVA]: next.test });
}

const sourceOf = (url: string) => readFileSync(fileURLToPath(url), 'utf8');

/** The module's JavaScript with the bug in it, if it is the one. */
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
