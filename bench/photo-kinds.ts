/**
 * Real photos for a measurement of speed, by how hard they are: what a photo costs depends on how
 * much of it a model is unsure. The photos are the caller's.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import sharp from 'sharp';
import { decodeFile } from '../inference-node/serving/picture/codecs/decode.ts';
import { unsureShare } from '../inference-node/serving/picture/worth-running.ts';
import { at } from '../test/support/at.ts';
import type { BenchPhoto } from './photos.ts';
import { openModelRunner } from './quality/model-runner.ts';

export const PHOTO_KINDS = ['easy', 'middling', 'hard'] as const;
export type PhotoKind = (typeof PHOTO_KINDS)[number];

/** Share of what isnet at 1024 shows that it is unsure of, below which a photo is of the kind. */
const UNSURE_BELOW: Readonly<Record<PhotoKind, number>> = {
  easy: 0.07,
  middling: 0.13,
  hard: Number.POSITIVE_INFINITY,
};
const JUDGE = { model: 'isnet', inputSize: 1024, role: 'subject' } as const;
/** As many pixels as 512x512 and 1920x1080, in the photo's own shape: nothing is cut off. */
export const KIND_SIZES = [
  { name: '0.26 MP png', pixels: 512 * 512, type: 'png' },
  { name: '2.1 MP jpeg', pixels: 1920 * 1080, type: 'jpeg' },
] as const;
const JPEG_QUALITY = 90;

export interface JudgedPhoto {
  readonly file: string;
  readonly kind: PhotoKind;
  readonly unsure: number;
}

/**
 * Judges every photo of the folders. Reference mattes and true colours (NAME_alpha.png,
 * NAME_fg.png) beside them are no photos.
 * @param keptIn a directory for mattes, or undefined.
 */
export async function judgePhotos(
  folders: readonly string[],
  keptIn: string | undefined,
): Promise<JudgedPhoto[]> {
  const files = folders.flatMap(folder =>
    globSync('**/*.{jpg,jpeg,png,webp,avif}', { cwd: folder })
      .filter(file => !/_(alpha|fg)\.png$/.test(file))
      .sort()
      .map(file => path.join(folder, file)),
  );
  const models = openModelRunner(keptIn);
  const judged: JudgedPhoto[] = [];
  try {
    for (const file of files) {
      const options = { declared: undefined, onOpened: () => undefined };
      const { alpha } = await models.run(JUDGE, await decodeFile(readFileSync(file), options));
      const unsure = unsureShare(alpha);
      const kind = PHOTO_KINDS.find(name => unsure < UNSURE_BELOW[name]) ?? 'hard';
      judged.push({ file, kind, unsure });
    }
  } finally {
    await models.close();
  }
  return judged;
}

/** At most `most` of a kind, spread evenly over them by how unsure they are. */
export function choosePhotos(
  judged: readonly JudgedPhoto[],
  kind: PhotoKind,
  most: number,
): JudgedPhoto[] {
  const all = judged.filter(photo => photo.kind === kind).sort((a, b) => a.unsure - b.unsure);
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
