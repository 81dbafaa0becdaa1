/** A painted person in front of a wall, for a person to judge an added model's cut-out. */
import type { RgbaPicture } from '@matting/serving/picture/in-process.ts';

type Rgb = readonly [number, number, number];

/** Centre and half axes, as shares of the sides. */
type Ellipse = readonly [x: number, y: number, across: number, down: number, colour: Rgb];

interface DrawnPicture {
  readonly picture: RgbaPicture;
  readonly matte: Uint8Array;
}

const SIDE_PX = 640;
const WALL: Rgb = [70, 96, 122];
const PERSON: readonly Ellipse[] = [
  [0.5, 0.52, 0.06, 0.16, [216, 158, 130]],
  [0.5, 0.98, 0.36, 0.42, [188, 44, 40]],
  [0.5, 0.28, 0.16, 0.18, [92, 52, 34]],
  [0.5, 0.36, 0.12, 0.15, [236, 178, 148]],
  [0.45, 0.32, 0.016, 0.014, [50, 35, 30]],
  [0.55, 0.32, 0.016, 0.014, [50, 35, 30]],
  [0.5, 0.43, 0.045, 0.012, [170, 70, 75]],
];
const NOISE_LEVELS = 8;

export function drawPicture(): DrawnPicture {
  const rgba = new Uint32Array(SIDE_PX ** 2);
  const matte = new Uint8Array(rgba.length);
  let state = 1;
  for (let i = 0; i < rgba.length; i++) {
    const x = ((i % SIDE_PX) + 0.5) / SIDE_PX;
    const y = (Math.floor(i / SIDE_PX) + 0.5) / SIDE_PX;
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const noise = (state / 2 ** 32 - 0.5) * NOISE_LEVELS;
    const seen = PERSON.findLast(
      ([middle, centre, across, down]) =>
        Math.hypot((x - middle) / across, (y - centre) / down) < 1,
    );
    matte[i] = seen === undefined ? 0 : 255;
    const light = seen === undefined ? 1.1 - 0.3 * y : 1.15 - 0.7 * Math.hypot(x - 0.4, y - 0.3);
    const [red, green, blue] = (seen?.[4] ?? WALL).map(value =>
      Math.max(0, Math.min(255, Math.round(value * light + noise))),
    ) as [number, number, number];
    rgba[i] = red | (green << 8) | (blue << 16) | 0xff000000;
  }
  return { picture: { width: SIDE_PX, height: SIDE_PX, rgba, translucent: false }, matte };
}
