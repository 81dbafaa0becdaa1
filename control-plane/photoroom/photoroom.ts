import { readCompat } from '@matting/compat/settings.ts';
import type { Package } from '@matting/core/package.ts';

export const photoroom: Package<object | undefined> = {
  name: 'photoroom',
  readSettings: reader => (readCompat(reader, 'photoroom') ? {} : undefined),
  async open({ services, config }, settings) {
    if (settings === undefined) return {};
    const { photoroomInterface } = await import('./photoroom-interface.ts');
    return { httpInterface: photoroomInterface(services, config.syncWaitMs) };
  },
};
