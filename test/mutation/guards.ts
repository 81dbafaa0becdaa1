import { CORE_GUARDS } from './core-guards.ts';
import { NODE_GUARDS } from './node-guards.ts';
import { PACKAGE_GUARDS } from './package-guards.ts';
import { PORTAL_GUARDS } from './portal-guards.ts';
import { SHARED_GUARDS } from './shared-guards.ts';

export const GUARDS = [
  ...CORE_GUARDS,
  ...PORTAL_GUARDS,
  ...NODE_GUARDS,
  ...PACKAGE_GUARDS,
  ...SHARED_GUARDS,
];
