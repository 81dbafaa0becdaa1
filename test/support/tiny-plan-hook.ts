/** Preloaded into an inference node: replaces its models by tiny-plan.ts. */
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const fromNode = context.parentURL?.endsWith('/inference-node/serving/open-pools.ts');
    if (fromNode && /(models\/plan|prepared\/load-prepared)\.ts$/.test(specifier)) {
      return { url: new URL('./tiny-plan.ts', import.meta.url).href, shortCircuit: true };
    }
    return nextResolve(specifier, context);
  },
});
