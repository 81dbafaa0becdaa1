/** The Model Context Protocol at /mcp, on the core's use cases. */
import type { Package } from '@matting/core/package.ts';

export const mcp: Package<boolean> = {
  name: 'mcp',
  readSettings: reader =>
    reader.section('Interfaces of other services').boolean('MATTING_MCP', {
      about: 'Serves the [Model Context Protocol](agents.md) at `/mcp`.',
      default: true,
    }),
  async open({ services, config, about }, isOn) {
    if (!isOn) return {};
    const { mcpInterface } = await import('./mcp-interface.ts');
    const { baseUrl, syncWaitMs } = config;
    const options = { baseUrl, syncWaitMs, policy: config, version: about.version };
    return { httpInterface: mcpInterface(services, options) };
  },
};
