/** Painted subjects on backgrounds, of which is known what is which. Pure. */
import type { RgbaPicture } from '@matting/serving/picture/in-process.ts';

type Rgb = readonly [number, number, number];

/** A colour that is not the subject's. */
interface Behind {
  readonly behind: Rgb;
}

/** A share of the picture's sides, from 0 to 1. */
interface Spot {
  readonly x: number;
  readonly y: number;
  readonly radius: number;
}

export interface CheckPicture {
  readonly picture: RgbaPicture;
  /** The subject is 255 and the rest 0, one byte a pixel. */
  readonly matte: Uint8Array;
  /** These spots are certainly of the subject. */
  readonly subject: readonly Spot[];
  readonly background: readonly Spot[];
}

const CHECK_SIDE_PX = 640;

/** Upper corners: a subject may stand on the lower border. */
const CORNERS: readonly Spot[] = [
  { x: 0.08, y: 0.08, radius: 0.07 },
  { x: 0.92, y: 0.08, radius: 0.07 },
];

let drawn: readonly [CheckPicture, CheckPicture, CheckPicture] | undefined;

/** A person, brighter than the background; a fruit, as bright; a bottle, darker. Drawn once. */
export function checkPictures(): readonly [CheckPicture, CheckPicture, CheckPicture] {
  drawn ??= [
    { ...paint(person), subject: [spot(0.5, 0.35, 0.07), spot(0.5, 0.85, 0.1)], ...BEHIND },
    { ...paint(fruit), subject: [spot(0.5, 0.5, 0.15)], ...BEHIND },
    { ...paint(bottle), subject: [spot(0.5, 0.6, 0.08), spot(0.5, 0.75, 0.08)], ...BEHIND },
  ];
  return drawn;
}

const BEHIND = { background: CORNERS };

function spot(x: number, y: number, radius: number): Spot {
  return { x, y, radius };
}

/** Mean of a matte of any size over some spots, 0 to 1. */
export function meanAt(
  { alpha, width, height }: { alpha: Uint8Array; width: number; height: number },
  spots: readonly Spot[],
): number {
  let [sum, count] = [0, 0];
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const at = [(column + 0.5) / width, (row + 0.5) / height] as const;
      if (!spots.some(({ x, y, radius }) => Math.hypot(at[0] - x, at[1] - y) < radius)) continue;
      sum += alpha[row * width + column] ?? 0;
      count += 1;
    }
  }
  return count === 0 ? 0 : sum / count / 255;
}

function person(x: number, y: number): Rgb | Behind {
  const light = 1.1 - 0.7 * Math.hypot(x - 0.4, y - 0.25);
  const face = ((x - 0.5) / 0.125) ** 2 + ((y - 0.34) / 0.165) ** 2;
  const hair = ((x - 0.5) / 0.16) ** 2 + ((y - 0.28) / 0.18) ** 2;
  const shoulders = ((x - 0.5) / 0.36) ** 2 + ((y - 0.98) / 0.42) ** 2;
  const neck = Math.abs(x - 0.5) < 0.06 && y > 0.4 && y < 0.6;
  const mouth = Math.hypot((x - 0.5) / 0.045, (y - 0.43) / 0.012) < 1;
  const eye = Math.hypot(Math.abs(x - 0.5) - 0.05, y - 0.32) < 0.014;
  if (face < 1 && mouth) return [170, 70, 75];
  if (face < 1 && eye) return [50, 35, 30];
  if (face < 1 && y > 0.24) return shade([236, 178, 148], light);
  if (hair < 1) return shade([92, 52, 34], light);
  if (shoulders < 1) return shade([188, 44, 40], light);
  if (neck) return shade([216, 158, 130], light);
  return { behind: shade([70, 96, 122], 1.15 - 0.5 * y) };
}

function fruit(x: number, y: number): Rgb | Behind {
  const light = 1.25 - 1.4 * Math.hypot(x - 0.4, y - 0.38);
  const stem = Math.abs(x - 0.5 - 0.2 * (0.24 - y)) < 0.012 && y > 0.14 && y < 0.26;
  if (Math.hypot(x - 0.5, y - 0.52) < 0.28) return shade([238, 116, 44], light);
  if (stem) return [96, 62, 36];
  return { behind: shade(y > 0.72 ? [120, 132, 140] : [150, 168, 182], 1.05 - 0.3 * x) };
}

function bottle(x: number, y: number): Rgb | Behind {
  const across = Math.abs(x - 0.5);
  const body = y > 0.4 && y < 0.92 && across < 0.14;
  const shoulder = Math.hypot((x - 0.5) / 0.14, (y - 0.4) / 0.12) < 1;
  const throat = across < 0.045 && y > 0.12 && y < 0.4;
  const light = 1.3 - 3.2 * Math.abs(x - 0.46);
  if (across < 0.05 && y > 0.1 && y < 0.17) return shade([150, 96, 60], light);
  if (body || shoulder || throat) return shade([124, 24, 30], light);
  return { behind: y > 0.86 ? [214, 210, 204] : shade([236, 239, 242], 1 - 0.12 * y) };
}

function shade([red, green, blue]: Rgb, light: number): Rgb {
  return [red * light, green * light, blue * light];
}

/** The pictures have noise, as a camera's have. */
const NOISE_LEVELS = 8;

function paint(
  colourAt: (x: number, y: number) => Rgb | Behind,
): Pick<CheckPicture, 'picture' | 'matte'> {
  const rgba = new Uint32Array(CHECK_SIDE_PX ** 2);
  const matte = new Uint8Array(rgba.length);
  let state = 1;
  const byte = (value: number) => Math.max(0, Math.min(255, Math.round(value)));
  for (let i = 0; i < rgba.length; i++) {
    const column = (i % CHECK_SIDE_PX) + 0.5;
    const row = Math.floor(i / CHECK_SIDE_PX) + 0.5;
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const noise = (state / 2 ** 32 - 0.5) * NOISE_LEVELS;
    const seen = colourAt(column / CHECK_SIDE_PX, row / CHECK_SIDE_PX);
    const [red, green, blue] = 'behind' in seen ? seen.behind : seen;
    matte[i] = 'behind' in seen ? 0 : 255;
    const rest = (byte(green + noise) << 8) | (byte(blue + noise) << 16) | 0xff000000;
    rgba[i] = byte(red + noise) | rest;
  }
  const size = { width: CHECK_SIDE_PX, height: CHECK_SIDE_PX };
  return { picture: { ...size, rgba, translucent: false }, matte };
}
