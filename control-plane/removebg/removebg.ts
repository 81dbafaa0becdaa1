/** The interface of remove.bg, on the core's use cases. */
import type { Package } from '@matting/core/package.ts';
import { type RemovebgSettings, readRemovebg, warnOfOrigins } from './settings.ts';

export const removebg: Package<RemovebgSettings | undefined> = {
  name: 'removebg',
  readSettings: readRemovebg,
  warnings: warnOfOrigins,
  async open({ services, config, about }, settings) {
    if (settings === undefined) return {};
    const { removebgInterface } = await import('./removebg-interface.ts');
    const options = { ...settings, ...about, baseUrl: config.baseUrl, policy: config };
    return { httpInterface: removebgInterface(services, options) };
  },
};
