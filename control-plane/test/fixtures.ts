import { storeFixtures } from '@matting/core/test/fixtures.ts';
import { PACKAGES } from '../packages.ts';

export const { series, storesOn, onStores, openStores, openCaller } = storeFixtures({
  packages: PACKAGES,
});
