/**
 * Real photos for a measurement of speed, by how hard they are: what a photo costs depends on which
 * models a node asks about it. The photos are the caller's.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import sharp from 'sharp';
import { at } from '../test/support/at.ts';
import type { BenchPhoto } from './photos.ts';
import { openPlanNode } from './quality/plan-node.ts';

export const PHOTO_KINDS = ['easy', 'middling', 'hard'] as const;
export type PhotoKind = (typeof PHOTO_KINDS)[number];

/** A photo's kind follows from the last role that a node of this plan runs on it. */
const PLAN = 'standard';
const KINDS: Readonly<Record<string, PhotoKind>> = { opinion: 'middling', second_look: 'hard' };
/** Sizes with the pixels of 512x512 and 1920x1080, in the photo's own shape: nothing is cut off. */
export const KIND_SIZES = [
  { name: '0.26 MP png', pixels: 512 * 512, type: 'png' },
  { name: '2.1 MP jpeg', pixels: 1920 * 1080, type: 'jpeg' },
] as const;
const JPEG_QUALITY = 90;

export interface JudgedPhoto {
  readonly file: string;
  readonly kind: PhotoKind;
}

/**
 * Sends every photo of the folders to a node. Reference mattes and true colours (NAME_alpha.png,
 * NAME_fg.png) beside them are no photos.
 */
export async function judgePhotos(folders: readonly string[]): Promise<JudgedPhoto[]> {
  const files = folders.flatMap(folder =>
    globSync('**/*.{jpg,jpeg,png,webp,avif}', { cwd: folder })
      .filter(file => !/_(alpha|fg)\.png$/.test(file))
      .sort()
      .map(file => path.join(folder, file)),
  );
  const node = await openPlanNode(PLAN);
  const judged: JudgedPhoto[] = [];
  try {
    for (const file of files) {
      const { width, height } = await sharp(file).metadata();
      const { roles } = await node.cutOut({ file: readFileSync(file), width, height });
      judged.push({ file, kind: KINDS[roles.at(-1) ?? ''] ?? 'easy' });
    }
  } finally {
    await node.close();
  }
  return judged;
}

/** Chooses at most `most` of a kind, spread evenly over them. */
export function choosePhotos(
  judged: readonly JudgedPhoto[],
  kind: PhotoKind,
  most: number,
): JudgedPhoto[] {
  const all = judged.filter(photo => photo.kind === kind);
  if (all.length <= most) return all;
  return Array.from({ length: most }, (_, i) =>
    at(all, Math.floor(((i + 0.5) * all.length) / most)),
  );
}

/** Scaled to the pixels, up too where the photo is smaller. */
export async function toBenchPhoto(
  file: string,
  { pixels, type }: (typeof KIND_SIZES)[number],
): Promise<BenchPhoto> {
  const { width: w, height: h } = (await sharp(file).metadata()).autoOrient;
  const scale = Math.sqrt(pixels / (w * h));
  const [width, height] = [Math.round(w * scale), Math.round(h * scale)];
  const picture = sharp(file).autoOrient().resize(width, height, { fit: 'fill' }).removeAlpha();
  const encoded = type === 'png' ? picture.png() : picture.jpeg({ quality: JPEG_QUALITY });
  return { name: `${path.basename(file)} ${type}`, width, height, file: await encoded.toBuffer() };
}
