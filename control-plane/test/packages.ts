/** The packages of the program, with passwords that cost little. Needs: portal. */
import type { Package } from '../core/package.ts';
import { PACKAGES } from '../packages.ts';
import { testPortal } from '../portal/test/portal-app.ts';

export const TEST_PACKAGES: readonly Package[] = PACKAGES.map(one =>
  one.name === testPortal.name ? testPortal : one,
);
