/** Operators examine the service and keep copies by `storage`, `doctor`, `backup` and `restore`. */
import type { Package } from '@matting/core/package.ts';

/** The package has only commands, so a running service loads nothing of it. */
export const operations: Package = {
  name: 'operations',
  loadCommands: async () => (await import('./operations-commands.ts')).addOperationsCommands,
};
