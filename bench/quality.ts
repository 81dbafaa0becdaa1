/**
 * Mean absolute error of the matte through REST against reference mattes.
 * Usage: quality.ts <folder>: NAME.jpg (or .png) beside NAME_alpha.png.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import sharp from 'sharp';
import { writeResults } from './results.ts';
import { openService } from './service.ts';

const folder = process.argv[2];
if (folder === undefined)
  throw new Error('usage: quality.ts <folder with NAME.jpg, NAME_alpha.png>');

async function alphaOf(file: Buffer, width: number, height: number): Promise<Buffer> {
  const image = sharp(file).ensureAlpha().extractChannel('alpha');
  const { data, info } = await image.raw().toBuffer({ resolveWithObject: true });
  if (info.width !== width || info.height !== height) throw new Error('sizes differ');
  return data;
}

const service = await openService();
try {
  const errors: Record<string, number> = {};
  for (const reference of globSync('*_alpha.png', { cwd: folder }).sort()) {
    const name = reference.replace(/_alpha\.png$/, '');
    const [photo] = globSync(`${name}.{jpg,png}`, { cwd: folder });
    const truth = await sharp(path.join(folder, reference))
      .extractChannel(0)
      .raw()
      .toBuffer({ resolveWithObject: true });
    const { file } = await service.cutOut(readFileSync(path.join(folder, photo)));
    const alpha = await alphaOf(file, truth.info.width, truth.info.height);
    let sum = 0;
    for (let i = 0; i < alpha.length; i++) sum += Math.abs(alpha[i] - truth.data[i]);
    errors[name] = sum / alpha.length / 255;
    console.log(`${name.padEnd(24)} ${errors[name].toFixed(4)}`);
  }
  const values = Object.values(errors);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  writeResults('quality', { images: values.length, meanMae: mean, errors });
} finally {
  await service.close();
}
