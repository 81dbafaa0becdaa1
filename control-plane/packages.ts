/** The packages of this program, and what each plugs into the core. */
import { loadConfig } from './config.ts';
import type { Commands } from './core/cli/program.ts';
import { MIGRATIONS } from './migrations.ts';
import { bucketStorage } from './object-storage/bucket-storage.ts';
import { operationsCommands } from './operations/operations-commands.ts';
import { addPortalCommands } from './portal/portal-commands.ts';

/** What operators can type besides the core's commands. */
export const COMMANDS: Commands = {
  description:
    'the control plane’s accounts, keys, credits, orders, jobs, mails, nodes, storage, webhooks',
  packages: [addPortalCommands, operationsCommands(loadConfig)],
  helpOrder: [
    ...['migrate', 'bootstrap', 'accounts', 'keys', 'credits', 'jobs', 'mails', 'nodes', 'orders'],
    ...['storage', 'doctor', 'backup', 'restore', 'support-bundle', 'webhooks'],
  ],
  storageKinds: [bucketStorage],
  migrations: MIGRATIONS,
};
