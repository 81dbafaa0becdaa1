/** Preloaded into an inference node: its engines find the GPUs of a stand-in (gpu-host.ts). */
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const fromNode = context.parentURL?.endsWith('/serving/open-pools.ts');
    if (fromNode && specifier.endsWith('providers/provider-files.ts')) {
      return {
        url: new URL('./gpu-host-environment.ts', import.meta.url).href,
        shortCircuit: true,
      };
    }
    return nextResolve(specifier, context);
  },
});
