/**
 * The packages of this program, in the order in which they are plugged in. Each is small here, and
 * loads the rest of itself where its setting is on.
 */
import type { Package } from './core/package.ts';
import { fleetSize } from './fleet-size/fleet-size.ts';
import { objectStorage } from './object-storage/object-storage.ts';
import { operations } from './operations/operations.ts';
import { portal } from './portal/portal.ts';
import { removebg } from './removebg/removebg.ts';

export const PACKAGES: readonly Package[] = [
  objectStorage,
  fleetSize,
  removebg,
  portal,
  operations,
];
