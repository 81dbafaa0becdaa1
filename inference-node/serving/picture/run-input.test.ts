import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import { createModelInput } from './matte/model-input.ts';
import { createRunInput } from './matte/run-input-pixels.ts';
import type { RgbaPicture } from './rgba-picture.ts';
import { boxInInput, matteOfPicture, type RunInput } from './run-input.ts';

const SIZE = { width: 96, height: 48 };
const FRAMED: RunInput = { kind: 'framed' };
const BOX = { left: 16, top: 8, width: 64, height: 32 };
/** Beyond the lower and the left side. */
const EDGES: RunInput = { kind: 'edges', beyond: [0, 0.5, 0.2, 0] };
const CONTINUED_BOX = { left: 16, top: 0, width: 80, height: 32 };

function picture(colourAt: (x: number, y: number) => readonly [number, number, number]) {
  const [width, height] = [200, 100];
  const rgba = Uint32Array.from({ length: width * height }, (_, i) => {
    const [red, green, blue] = colourAt(i % width, Math.floor(i / width));
    return red | (green << 8) | (blue << 16) | (255 << 24);
  });
  return { rgba, width, height, translucent: false } satisfies RgbaPicture;
}

test('an input › has the picture in its box, as a model would see it at that size', t => {
  t.deepEqual(boxInInput(SIZE, FRAMED), BOX);
  t.deepEqual(boxInInput({ width: 1, height: 2 }, FRAMED), {
    left: 0,
    top: 0,
    width: 1,
    height: 1,
  });
  t.deepEqual(boxInInput(SIZE, EDGES), CONTINUED_BOX);
  const seen = picture((x, y) => [x, 2 * y, (x * 7 + y * 13) % 256]);
  for (const input of [FRAMED, EDGES]) {
    const box = boxInInput(SIZE, input);
    const painted = createRunInput(seen, SIZE, input);
    const own = createModelInput(seen, box);
    for (let y = 0; y < box.height; y++) {
      const from = 3 * ((box.top + y) * SIZE.width + box.left);
      const row = own.subarray(3 * y * box.width, 3 * (y + 1) * box.width);
      t.deepEqual(painted.subarray(from, from + 3 * box.width), row, `${input.kind}, row ${y}`);
    }
  }
});

test('a framed input › has the colours of the picture around it, without their shapes', t => {
  const plain = createRunInput(
    picture(() => [10, 130, 255]),
    SIZE,
    FRAMED,
  );
  for (let i = 0; i < plain.length; i += 3) {
    t.deepEqual([...plain.subarray(i, i + 3)], [10, 130, 255]);
  }
  const stripes = createRunInput(
    picture(x => [x % 4 < 2 ? 255 : 0, x < 100 ? 0 : 200, 0]),
    SIZE,
    FRAMED,
  );
  for (let x = 0; x < SIZE.width; x++) {
    t.true(Math.abs(at(stripes, 3 * x) - 127.5) < 16, `stripes at ${x}`);
  }
  t.deepEqual([at(stripes, 1), at(stripes, 3 * SIZE.width - 2)], [0, 200]);
});

test('a continued input › goes on with the colours of the edge', t => {
  const seen = picture((x, y) => [x, 2 * y, (x * 7 + y * 13) % 256]);
  const pixel = (rgb: Buffer, x: number, y: number) => {
    const from = 3 * (y * SIZE.width + x);
    return [...rgb.subarray(from, from + 3)];
  };
  const edges = createRunInput(seen, SIZE, EDGES);
  t.deepEqual(pixel(edges, 0, 20), pixel(edges, 16, 20));
  t.deepEqual(pixel(edges, 50, 47), pixel(edges, 50, 31));
  t.deepEqual(pixel(edges, 3, 40), pixel(edges, 16, 31));
});

test('a mirrored input › has its columns the other way round', t => {
  const seen = picture((x, y) => [x, 2 * y, 0]);
  const [plain, mirrored] = [undefined, { kind: 'mirrored' } as const].map(input =>
    createRunInput(seen, SIZE, input),
  );
  const own = createModelInput(seen, SIZE);
  t.deepEqual(plain, own);
  for (let i = 0; i < own.length; i++) {
    const [row, column] = [Math.floor(i / 3 / SIZE.width), Math.floor(i / 3) % SIZE.width];
    const from = 3 * (row * SIZE.width + SIZE.width - 1 - column) + (i % 3);
    if (mirrored?.[i] !== own[from]) t.fail(`byte ${i}`);
  }
});

test('what a look shows › is of the picture alone, the right way round', t => {
  const value = (x: number, y: number) => (7 * x + 13 * y) % 256;
  const shown = (read: (x: number, y: number) => number, width: number, height: number) =>
    Array.from({ length: width * height }, (_, i) => read(i % width, Math.floor(i / width)));
  const matte = { alpha: Buffer.from(shown(value, SIZE.width, SIZE.height)), size: SIZE };
  t.is(matteOfPicture(matte, undefined), matte);
  const mirrored = matteOfPicture(matte, { kind: 'mirrored' });
  t.deepEqual(
    [...mirrored.alpha],
    shown((x, y) => value(SIZE.width - 1 - x, y), 96, 48),
  );
  t.is(at(matte.alpha, 1), 7, 'the buffer of the engine is left as it was');
  const { alpha, size } = matteOfPicture(matte, EDGES);
  t.deepEqual(size, { width: 80, height: 32 });
  t.deepEqual(
    [...alpha],
    shown((x, y) => value(x + 16, y), 80, 32),
  );
});
