/** Preloaded into a node: short timeouts, and stopped children survive SIGKILL. */
import '@matting/test-support/stopped-cannot-be-killed.ts';
import '@matting/test-support/tiny-plan-hook.ts';
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const fromNode = context.parentURL?.endsWith('/serving/open-pools.ts');
    if (fromNode && specifier.endsWith('engine/pool/open-engine-pool.ts')) {
      return { url: new URL('./impatient-pool.ts', import.meta.url).href, shortCircuit: true };
    }
    return nextResolve(specifier, context);
  },
});
