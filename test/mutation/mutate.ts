/** Preloaded: applies the mutation MATTING_TEST_MUTATION and says so on stderr. */
import { registerHooks } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { mutated } from './mutation.ts';
import { MUTATIONS } from './mutations.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const mutation = MUTATIONS[Number(process.env.MATTING_TEST_MUTATION)];
if (mutation === undefined) throw new Error('MATTING_TEST_MUTATION names no mutation');
const target = pathToFileURL(path.join(ROOT, mutation.file)).href;

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (url !== target) return loaded;
    const source = mutated(mutation, String(loaded.source));
    process.stderr.write(`mutated ${url}\n`);
    return { ...loaded, source };
  },
});
