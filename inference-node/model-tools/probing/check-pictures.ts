/** Painted subjects on backgrounds, of which is known what is which. Pure. */
import type { RgbaPicture } from '@matting/serving/picture/in-process.ts';

type Rgb = readonly [number, number, number];

/** Middle and half axes are shares of the picture's sides. */
type Ellipse = readonly [x: number, y: number, across: number, down: number, colour: Rgb];

export interface CheckPicture {
  readonly picture: RgbaPicture;
  /** The subject is 255 and the rest 0, one byte a pixel. */
  readonly matte: Uint8Array;
}

const CHECK_SIDE_PX = 640;

type Subject = readonly [behind: Rgb, ...subject: Ellipse[]];

/** The last that covers a pixel is seen there. */
const SUBJECTS: readonly [Subject, ...Subject[]] = [
  // A person, brighter than the background.
  [
    [70, 96, 122],
    [0.5, 0.52, 0.06, 0.16, [216, 158, 130]],
    [0.5, 0.98, 0.36, 0.42, [188, 44, 40]],
    [0.5, 0.28, 0.16, 0.18, [92, 52, 34]],
    [0.5, 0.36, 0.12, 0.15, [236, 178, 148]],
    [0.45, 0.32, 0.016, 0.014, [50, 35, 30]],
    [0.55, 0.32, 0.016, 0.014, [50, 35, 30]],
    [0.5, 0.43, 0.045, 0.012, [170, 70, 75]],
  ],
  // A fruit, as bright.
  [
    [150, 168, 182],
    [0.5, 0.22, 0.012, 0.06, [96, 62, 36]],
    [0.5, 0.52, 0.28, 0.28, [238, 116, 44]],
  ],
  // A bottle, darker.
  [
    [236, 239, 242],
    [0.5, 0.3, 0.045, 0.2, [124, 24, 30]],
    [0.5, 0.14, 0.05, 0.035, [150, 96, 60]],
    [0.5, 0.64, 0.14, 0.29, [124, 24, 30]],
  ],
];

let drawn: readonly [CheckPicture, ...CheckPicture[]] | undefined;

/** Drawn once. */
export function checkPictures(): readonly [CheckPicture, ...CheckPicture[]] {
  const [person, ...others] = SUBJECTS;
  drawn ??= [paint(person), ...others.map(paint)];
  return drawn;
}

/** Means of a matte of any size over the subject and over the rest, 0 to 1. */
export function meansOf(
  { alpha, width, height }: { alpha: Uint8Array; width: number; height: number },
  { matte }: CheckPicture,
): { readonly subject: number; readonly background: number } {
  const [sums, counts] = [
    [0, 0],
    [0, 0],
  ] as [[number, number], [number, number]];
  const at = (index: number, side: number) => Math.floor(((index + 0.5) * CHECK_SIDE_PX) / side);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const which = matte[at(row, height) * CHECK_SIDE_PX + at(column, width)] === 255 ? 0 : 1;
      sums[which] += alpha[row * width + column] ?? 0;
      counts[which] += 255;
    }
  }
  const [subject, background] = sums.map((sum, which) => sum / Math.max(1, counts[which] ?? 0));
  return { subject: subject ?? 0, background: background ?? 0 };
}

/** The pictures have noise, as a camera's have. */
const NOISE_LEVELS = 8;

function paint([behind, ...subject]: Subject): CheckPicture {
  const size = { width: CHECK_SIDE_PX, height: CHECK_SIDE_PX };
  const rgba = new Uint32Array(CHECK_SIDE_PX ** 2);
  const matte = new Uint8Array(rgba.length);
  let state = 1;
  for (let i = 0; i < rgba.length; i++) {
    const x = ((i % CHECK_SIDE_PX) + 0.5) / CHECK_SIDE_PX;
    const y = (Math.floor(i / CHECK_SIDE_PX) + 0.5) / CHECK_SIDE_PX;
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const noise = (state / 2 ** 32 - 0.5) * NOISE_LEVELS;
    const seen = subject.findLast(
      ([middle, centre, across, down]) =>
        Math.hypot((x - middle) / across, (y - centre) / down) < 1,
    );
    matte[i] = seen === undefined ? 0 : 255;
    const light = seen === undefined ? 1.1 - 0.3 * y : 1.15 - 0.7 * Math.hypot(x - 0.4, y - 0.3);
    const [red, green, blue] = (seen?.[4] ?? behind).map(value =>
      Math.max(0, Math.min(255, Math.round(value * light + noise))),
    ) as [number, number, number];
    rgba[i] = red | (green << 8) | (blue << 16) | 0xff000000;
  }
  return { picture: { ...size, rgba, translucent: false }, matte };
}
