/** Preloaded into a node's children: takes marked-finish.ts for what it stands in for. */
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const isMarked = /\/(refine|foreground)\.ts$/.test(specifier);
    if (isMarked && context.parentURL?.endsWith('/src/picture/worker/finish.ts')) {
      return { url: new URL('./marked-finish.ts', import.meta.url).href, shortCircuit: true };
    }
    return nextResolve(specifier, context);
  },
});
