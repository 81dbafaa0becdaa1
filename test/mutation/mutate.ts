/**
 * Preloaded (`--import`) into a process that is to have one of the mutations: MATTING_TEST_MUTATION
 * is its number. Says so on stderr once each file was changed.
 */
import { registerHooks } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const number = Number(process.env.MATTING_TEST_MUTATION);
const mutation = MUTATIONS[number];
if (mutation === undefined) throw new Error('MATTING_TEST_MUTATION names no mutation');

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    const edits = mutation.edits.filter(
      ({ file }) => pathToFileURL(path.join(ROOT, file)).href === url,
    );
    if (edits.length === 0) return loaded;
    let source = String(loaded.source);
    for (const { file, find, replace } of edits) {
      if (source.split(find).length !== 2) {
        throw new Error(`${mutation.name}: "${find}" does not stand once in ${file}`);
      }
      source = source.replace(find, () => replace);
    }
    process.stderr.write(`mutated ${url}\n`);
    return { ...loaded, source };
  },
});
