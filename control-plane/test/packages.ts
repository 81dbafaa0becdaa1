/** With cheap password hashes. Needs: portal. */
import type { Package } from '@matting/core/package.ts';
import { testPortal } from '@matting/portal/test/portal-app.ts';
import { PACKAGES } from '../packages.ts';

export const TEST_PACKAGES: readonly Package[] = PACKAGES.map(one =>
  one.name === testPortal.name ? testPortal : one,
);
