import { storeFixtures } from '@matting/core/test/fixtures.ts';
import type { Stores as CoreStores } from '@matting/core/test/internals.ts';
import { portal } from '../portal.ts';
import { createPortalStores, type PortalStores } from '../portal-stores.ts';

export type Stores = CoreStores & PortalStores;

export const PORTAL_FIXTURES = storeFixtures({ packages: [portal], more: createPortalStores });

export const { series, storesOn, useStores, onStores, onStoresInCi } = PORTAL_FIXTURES;
