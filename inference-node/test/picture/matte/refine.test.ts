import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import { Random } from '../../../../test/support/random.ts';
import { refineMatte, stretchMatte } from '../../../src/picture/matte/refine.ts';
import { asRgba, paint } from '../pictures.ts';

type Colour = readonly [red: number, green: number, blue: number];

const paintPicture = (width: number, height: number, at: (x: number, y: number) => Colour) =>
  asRgba(paint(width, height, 4, (x, y) => [...at(x, y), 255]));

function matteOf(width: number, height: number, alphaAt: (x: number, y: number) => number) {
  const alpha = Buffer.alloc(width * height);
  for (let i = 0; i < alpha.length; i++) {
    alpha[i] = Math.max(0, Math.min(255, Math.round(alphaAt(i % width, Math.floor(i / width)))));
  }
  return [{ alpha, width, height, role: 'subject' as const }];
}

const RED: Colour = [200, 40, 30];
const GREEN: Colour = [30, 160, 60];

for (const [width, height] of [
  [1, 1],
  [2, 3000],
  [3000, 2],
  [97, 1],
  [640, 360],
] as const) {
  for (const value of [0, 1, 90, 254, 255]) {
    test(`${width}x${height}, one colour, a matte of ${value}: the matte stays what it is`, t => {
      const picture = paintPicture(width, height, () => GREEN);
      const matte = matteOf(32, 32, () => value);
      const out = refineMatte(matte, picture);
      t.is(out.length, width * height);
      t.not(out.buffer, at(matte, 0).alpha.buffer);
      t.true(out.every(alpha => Math.abs(alpha - value) <= 1));
    });
  }
}

test('noise under an unsure matte does not become a rescaled one', t => {
  const random = new Random(7);
  const noise = () => random.below(256);
  const picture = paintPicture(300, 200, () => [noise(), noise(), noise()]);
  const faint = matteOf(64, 64, () => random.below(9));
  const out = refineMatte(faint, picture);
  t.true(Math.max(...out) <= 16, `${Math.max(...out)}`);
});

test('a blurred edge follows the edge of the colours', t => {
  const picture = paintPicture(960, 200, x => (x < 480 ? RED : GREEN));
  const blurred = matteOf(960, 200, x => ((486 - x) / 12) * 255);
  const error = (alpha: Buffer) =>
    alpha.reduce((sum, value, i) => sum + Math.abs(value - (i % 960 < 480 ? 255 : 0)), 0);
  const plain = error(stretchMatte(blurred, picture));
  const refined = error(refineMatte(blurred, picture));
  t.true(refined < 0.5 * plain, `${refined} of ${plain}`);
});

test('in a small picture, what lies near a sharp edge does not blur it', t => {
  // A thing of the subject's colour in the background, beside a matte that is right.
  const mixed: Colour = [115, 100, 45];
  const picture = paintPicture(240, 200, x =>
    x === 120 ? mixed : x < 120 || (x > 125 && x < 131) ? RED : GREEN,
  );
  const right = matteOf(240, 200, x => (x < 120 ? 255 : x === 120 ? 128 : 0));
  const out = refineMatte(right, picture);
  const changes = out.map((value, i) => Math.abs(value - at(at(right, 0).alpha, i)));
  t.true(Math.max(...changes) <= 8, `${Math.max(...changes)}`);
});

test('what the matte is sure of stays, whatever the colours say', t => {
  const picture = paintPicture(200, 200, (x, y) => ((x + y) % 2 === 0 ? RED : GREEN));
  const sure = matteOf(200, 200, x => (x < 100 ? 255 : 0));
  t.deepEqual(refineMatte(sure, picture), at(sure, 0).alpha);
});

test('no seam where one tile ends and the next begins', t => {
  // A straight edge with the same neighbourhood everywhere: every row must be the same.
  const picture = paintPicture(260, 330, x => (x < 130 ? RED : GREEN));
  const blurred = matteOf(260, 330, x => ((140 - x) / 20) * 255);
  const out = refineMatte(blurred, picture);
  for (let y = 1; y < 330; y++) {
    t.deepEqual(out.subarray(y * 260, (y + 1) * 260), out.subarray(0, 260), `row ${y}`);
  }
});

test('above the working size the answer is in the pixels of the picture', t => {
  const width = 2400;
  const height = 1200;
  const picture = paintPicture(width, height, x => (x < 1201 ? RED : GREEN));
  const blurred = matteOf(1024, 1024, x => ((520 - x) / 16) * 255);
  const row = refineMatte(blurred, picture).subarray(600 * width, 601 * width);
  // One pixel on each side of the edge of the colours: the jump is there and nowhere else.
  t.true(at(row, 1200) - at(row, 1201) > 100, `${row[1200]} to ${row[1201]}`);
  t.true(at(row, 1190) > 200 && at(row, 1212) < 55, `${row[1190]}, ${row[1212]}`);
});
