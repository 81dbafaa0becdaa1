/**
 * Draws docs/images/warning-*.png: of each warning an image that gets it, made of demo.jpg, beside
 * its result over a checkerboard. The service that it starts must give each image its warning.
 * Run: `sh bin/node24 docs/images/draw-warnings.ts`, after `matting models fetch`.
 */
import path from 'node:path';
import sharp from 'sharp';
import { openService } from '../../bench/service.ts';
import { besideResult } from './beside-result.ts';

const DEMO = path.join(import.meta.dirname, 'demo.jpg');
const demo = () => sharp(DEMO);

/** The wall beside the teapot. */
const wall = () => demo().extract({ left: 0, top: 0, width: 240, height: 180 });

const IMAGES = {
  no_subject: () => wall().resize(1200, 900),
  // Out of focus.
  subject_unsure: () => demo().blur(12),
  subject_cut_off: () => demo().extract({ left: 480, top: 300, width: 640, height: 480 }),
};

const service = await openService();
try {
  for (const [warning, draw] of Object.entries(IMAGES)) {
    const input = await draw().jpeg({ quality: 92 }).toBuffer();
    const { file, warnings } = await service.cutOut(input);
    if (warnings.join() !== warning)
      throw new Error(`${warning}: got ${warnings.join() || 'none'}`);
    const name = `warning-${warning.replaceAll('_', '-')}.png`;
    await besideResult(input, file, path.join(import.meta.dirname, name));
  }
} finally {
  await service.close();
}
