/** Preloaded into an inference node, for real picture workers with a small budget. */
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
