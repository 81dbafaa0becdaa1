/** With all packages. Needs: portal. */
import { type TestApp, testApps } from '@matting/core/test/support/test-app.ts';
import { type Stores, withPackages } from './every-store.ts';
import { TEST_PACKAGES } from './packages.ts';

export type ProgramApp = TestApp<Stores>;

export const { openTestApp, useTestApp } = testApps(TEST_PACKAGES, withPackages);
