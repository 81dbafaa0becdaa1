/** How many nodes a fleet that sleeps should have: a loop that measures, and a gauge to scale by. */
import type { Package } from '@matting/core/package.ts';
import { FLEET_SIZE_MIGRATIONS } from './migrations.ts';

export const fleetSize: Package = {
  name: 'fleet-size',
  migrations: FLEET_SIZE_MIGRATIONS,
  async open(core) {
    const { onDemand } = core.config;
    if (onDemand === undefined) return {};
    const { openFleetSize } = await import('./fleet-sizing.ts');
    return { loops: [openFleetSize(core, onDemand)] };
  },
};
