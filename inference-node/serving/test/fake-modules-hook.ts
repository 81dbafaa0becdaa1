import { registerHooks } from 'node:module';

const ROOMS = [
  'engine/choice/execution-provider.ts',
  'engine/pool/open-engine-pool.ts',
  'models/plan.ts',
  'prepared/load-prepared.ts',
  'picture/pool/open-picture-pool.ts',
];

registerHooks({
  resolve(specifier, context, nextResolve) {
    const fromProgram = /\/serving\/(open-pools|start\/gpus)\.ts$/.test(context.parentURL ?? '');
    if (fromProgram && ROOMS.some(room => specifier.endsWith(room))) {
      return { url: new URL('./fake-modules.ts', import.meta.url).href, shortCircuit: true };
    }
    return nextResolve(specifier, context);
  },
});
