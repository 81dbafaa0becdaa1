/**
 * The packages in the order in which they open. Each loads its other files only if its setting is
 * on.
 */
import { batches } from '@matting/batches/batches.ts';
import type { Package } from '@matting/core/package.ts';
import { mcp } from '@matting/mcp/mcp.ts';
import { objectStorage } from '@matting/object-storage/object-storage.ts';
import { operations } from '@matting/operations/operations.ts';
import { photoroom } from '@matting/photoroom/photoroom.ts';
import { portal } from '@matting/portal/portal.ts';
import { rembg } from '@matting/rembg/rembg.ts';
import { removebg } from '@matting/removebg/removebg.ts';

export const PACKAGES: readonly Package[] = [
  objectStorage,
  batches,
  removebg,
  photoroom,
  rembg,
  mcp,
  portal,
  operations,
];
