import type { Package } from '@matting/core/package.ts';
import type { Removal } from '@matting/core/retention/removal-steps.ts';
import { MCP_MIGRATIONS } from './migrations.ts';

export const mcp: Package<boolean> = {
  name: 'mcp',
  migrations: MCP_MIGRATIONS,
  readSettings: reader =>
    reader.section('Interfaces of other services').boolean('MATTING_MCP', {
      about: 'Serves the [Model Context Protocol](agents.md) at `/mcp`.',
      default: true,
    }),
  async open({ services, config, about, database }, isOn) {
    const { createUploadStore } = await import('./upload-store.ts');
    const uploads = createUploadStore(database);
    const removeBlob = (name: string) => services.blobs.remove(name);
    const removals: Removal[] = [
      { name: 'old uploads', remove: size => uploads.removeOld(size, removeBlob) },
    ];
    // Uploads from before the interface was switched off still expire.
    if (!isOn) return { removals };
    const { mcpInterface } = await import('./mcp-interface.ts');
    const { baseUrl, syncWaitMs } = config;
    const options = { baseUrl, syncWaitMs, policy: config, version: about.version };
    return { httpInterface: mcpInterface(services, uploads, options), removals };
  },
};
