/** A photo as a model sees it, by the product's own arithmetic, and as the floats of its graph. */
import { readFileSync } from 'node:fs';
import sharp from 'sharp';
import { createPlaneTables, fillPlanes } from '../inference-node/serving/engine/child/graph-io.ts';
import type { ModelManifest } from '../inference-node/serving/models/manifest.ts';
import { createModelInput } from '../inference-node/serving/picture/matte/model-input.ts';

export interface ModelPhoto {
  /** HWC RGB of the model's input size. */
  readonly rgb: Buffer;
  /** Oriented, of the photo, pixels. */
  readonly width: number;
  readonly height: number;
}

export async function readModelPhoto(path: string, side: number): Promise<ModelPhoto> {
  const { data, info } = await sharp(readFileSync(path))
    .rotate()
    .toColourspace('srgb')
    .ensureAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  const { width, height } = info;
  const rgba = new Uint32Array(new Uint8Array(data).buffer);
  const size = { width: side, height: side };
  const rgb = createModelInput({ rgba, width, height, translucent: false }, size);
  return { rgb, width, height };
}

/** CHW, normalised. */
export function toPlanes(rgb: Uint8Array, manifest: ModelManifest): Float32Array {
  const planes = new Float32Array(rgb.length);
  fillPlanes(rgb, planes, createPlaneTables(manifest.normalisation, manifest.colourOrder));
  return planes;
}
