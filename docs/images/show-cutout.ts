/**
 * Draws docs/images/demo-cutout.png, the demo picture beside its cut-out over a checkerboard, and
 * the cut-out that the account area shows strangers, as WebP with its transparency.
 * Usage: make demo OUT=cutout.png && sh bin/node24 docs/images/show-cutout.ts cutout.png
 */
import path from 'node:path';
import sharp from 'sharp';
import { besideResult } from './beside-result.ts';

const cutout = process.argv[2];
if (cutout === undefined) throw new Error('usage: show-cutout.ts <cutout.png>');

await sharp(cutout)
  .resize(900, 675)
  .webp({ quality: 82, alphaQuality: 90, effort: 6 })
  .toFile(path.join(import.meta.dirname, '../../control-plane/portal/assets/demo-cutout.webp'));

const here = (name: string) => path.join(import.meta.dirname, name);
const size = { width: 600, height: 450 };
await besideResult(here('demo.jpg'), cutout, here('demo-cutout.png'), size);
