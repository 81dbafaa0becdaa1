/**
 * A model's mattes against reference mattes, unrefined: what the graph itself answers, enlarged by
 * plain bilinear interpolation. Folders hold NAME.jpg or NAME.png beside NAME_alpha.png.
 */
import { globSync } from 'node:fs';
import path from 'node:path';
import sharp from 'sharp';
import { fillAlpha } from '../inference-node/serving/engine/child/graph-io.ts';
import {
  type InferenceSession,
  Tensor,
} from '../inference-node/serving/engine/child/onnx-runtime.ts';
import type { ModelManifest } from '../inference-node/serving/models/manifest.ts';
import { readModelPhoto, toPlanes } from './model-photo.ts';
import { type MatteErrors, measureMatte } from './quality/matte-metrics.ts';

export type ErrorsByImage = ReadonlyMap<string, MatteErrors>;

export const MEASURES = ['mae', 'mse', 'gradient', 'softMae'] as const;
type Measure = (typeof MEASURES)[number];

/** An image is worse for real when its SAD is by so much, in thousands, and by so large a share. */
const WORSE_SAD = 0.5;
const WORSE_RATIO = 1.2;

export async function inferAlpha(
  session: InferenceSession,
  manifest: ModelManifest,
  rgb: Buffer,
  side: number,
): Promise<Buffer> {
  const { inputName, outputName } = manifest.graph;
  const input = new Tensor('float32', toPlanes(rgb, manifest), [1, 3, side, side]);
  const outputs = await session.run({ [inputName]: input }, [outputName]);
  const values = outputs[outputName]?.data as Float32Array;
  const alpha = new Uint8ClampedArray(values.length);
  if (!fillAlpha(values, alpha, manifest.activation))
    throw new Error('the matte is not of numbers');
  return Buffer.from(alpha.buffer);
}

export async function judge(
  session: InferenceSession,
  manifest: ModelManifest,
  side: number,
  folders: readonly string[],
): Promise<ErrorsByImage> {
  const errors = new Map<string, MatteErrors>();
  for (const folder of folders) {
    for (const file of globSync('*_alpha.png', { cwd: folder }).sort()) {
      const name = file.replace(/_alpha\.png$/, '');
      const [photo = file] = globSync(`${name}.{jpg,png}`, { cwd: folder });
      const reference = await sharp(path.join(folder, file))
        .extractChannel(0)
        .raw()
        .toBuffer({ resolveWithObject: true });
      const { width, height } = reference.info;
      const { rgb } = await readModelPhoto(path.join(folder, photo), side);
      const alpha = await inferAlpha(session, manifest, rgb, side);
      const enlarged = await sharp(alpha, { raw: { width: side, height: side, channels: 1 } })
        .resize(width, height, { fit: 'fill', kernel: 'linear' })
        .extractChannel(0)
        .raw()
        .toBuffer();
      const size = { width, height };
      const found = measureMatte({ data: enlarged, ...size }, { data: reference.data, ...size });
      errors.set(`${path.basename(folder)}/${name}`, found);
    }
  }
  return errors;
}

export function meanError(errors: ErrorsByImage, measure: Measure): number {
  return [...errors.values()].reduce((sum, error) => sum + error[measure], 0) / errors.size;
}

/** Ratios of the means, `after` to `before`. */
export function errorRatios(before: ErrorsByImage, after: ErrorsByImage): Record<Measure, number> {
  const ratio = (measure: Measure) => meanError(after, measure) / meanError(before, measure);
  return Object.fromEntries(MEASURES.map(measure => [measure, ratio(measure)])) as Record<
    Measure,
    number
  >;
}

/** The images that `after` makes worse for real, as lines. */
export function worseImages(before: ErrorsByImage, after: ErrorsByImage): string[] {
  return [...after].flatMap(([name, { sad }]) => {
    const old = before.get(name)?.sad ?? 0;
    const worse = sad - old > WORSE_SAD && sad > old * WORSE_RATIO;
    return worse ? [`${name}: SAD ${old.toFixed(2)} -> ${sad.toFixed(2)} thousand`] : [];
  });
}
