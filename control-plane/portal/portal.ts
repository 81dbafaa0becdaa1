import type { Package } from '@matting/core/package.ts';
import { PORTAL_MIGRATIONS } from './migrations.ts';
import { type PortalSettings, readPortalSettings, warnOfAccountArea } from './settings.ts';
import { SETTLED_STEPS } from './settled-steps.ts';

export const portal: Package<PortalSettings> = {
  name: 'portal',
  migrations: PORTAL_MIGRATIONS,
  settled: SETTLED_STEPS,
  loadCommands: async () => (await import('./portal-commands.ts')).addPortalCommands,
  readSettings: (reader, { baseUrl }) => readPortalSettings(reader, baseUrl),
  warnings: warnOfAccountArea,
  // Without instructions or notifications of payments nobody can pay an order.
  sells: ({ sales: { priceList, paymentInstructions, paymentSecret } }) =>
    priceList !== 'none' && (paymentInstructions ?? paymentSecret) !== undefined,
  async open(core, settings) {
    const { openPortal } = await import('./open-portal.ts');
    return await openPortal(core, settings);
  },
};
