/** Preloaded into an inference node: real picture workers, with a budget that a test can exceed. */
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const fromNode = context.parentURL?.endsWith('/serving/open-pools.ts');
    if (fromNode && specifier.endsWith('picture/pool/open-picture-pool.ts')) {
      return { url: new URL('./frugal-pictures.ts', import.meta.url).href, shortCircuit: true };
    }
    return nextResolve(specifier, context);
  },
});
