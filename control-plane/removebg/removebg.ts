import type { Package } from '@matting/core/package.ts';
import { type RemovebgSettings, readRemovebg, warnOfOrigins } from './settings.ts';

/** Clients give up after 20 s, and then send the request again. */
const WAIT_MS_MAX = 18_000;

export const removebg: Package<RemovebgSettings | undefined> = {
  name: 'removebg',
  readSettings: readRemovebg,
  warnings: warnOfOrigins,
  async open({ services, config, about }, settings) {
    if (settings === undefined) return {};
    const { removebgInterface } = await import('./removebg-interface.ts');
    const { baseUrl, syncWaitMs } = config;
    const waitMs = Math.min(WAIT_MS_MAX, syncWaitMs);
    const options = { ...settings, ...about, baseUrl, waitMs, policy: config };
    return { httpInterface: removebgInterface(services, options) };
  },
};
