/** Photos with reference mattes, and true foreground colours where there are any. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import sharp from 'sharp';
import { decodeFile } from '../../inference-node/serving/picture/codecs/decode.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import type { SentFile } from './plan-node.ts';

export interface Photo {
  /** Name of the folder, then of the file. */
  readonly name: string;
  readonly picture: RgbaPicture;
  /** One byte a pixel. */
  readonly alpha: Uint8Array;
  /** RGB. */
  readonly foreground: Uint8Array | undefined;
  /** The file it was read from; absent if a bench made the picture. */
  readonly sent?: SentFile;
}

const REFERENCE = '_alpha.png';

/** Paths, without what ends them: each is one photo for loadPhoto. Sorted. */
export function findPhotos(folders: readonly string[]): string[] {
  return folders.flatMap(folder =>
    globSync(`**/*${REFERENCE}`, { cwd: folder })
      .sort()
      .map(file => path.join(folder, file.slice(0, -REFERENCE.length))),
  );
}

/** NAME.jpg (or .jpeg, .png, .webp) beside NAME_alpha.png and, perhaps, NAME_fg.png. */
export async function loadPhoto(stem: string): Promise<Photo> {
  const [name] = globSync(`${stem}.{jpg,jpeg,png,webp}`);
  if (name === undefined) throw new Error(`no photo for ${stem}${REFERENCE}`);
  const file = readFileSync(name);
  const options = { declared: undefined, onOpened: () => undefined };
  const picture = await decodeFile(file, options);
  const reference = await sharp(`${stem}${REFERENCE}`)
    .extractChannel(0)
    .raw()
    .toBuffer({ resolveWithObject: true });
  const { width, height } = reference.info;
  if (width !== picture.width || height !== picture.height)
    throw new Error(`${stem}: sizes differ`);
  const [trueColours] = globSync(`${stem}_fg.png`);
  const foreground =
    trueColours === undefined ? undefined : await sharp(trueColours).removeAlpha().raw().toBuffer();
  return {
    name: `${path.basename(path.dirname(stem))}/${path.basename(stem)}`,
    ...{ picture, alpha: reference.data, foreground },
    sent: { file, width, height },
  };
}
