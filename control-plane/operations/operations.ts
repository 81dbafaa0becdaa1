import type { Package } from '@matting/core/package.ts';

/** Has only commands, so a running service loads nothing of it. */
export const operations: Package = {
  name: 'operations',
  loadCommands: async () => (await import('./operations-commands.ts')).addOperationsCommands,
};
