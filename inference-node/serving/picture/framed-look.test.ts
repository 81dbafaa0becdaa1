import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import type { MatteRole } from '../models/prepared-model.ts';
import { boxInFrame, FRAMED_RULES, isWorthFraming, withFramedLook } from './framed-look.ts';
import { createFramedInput } from './matte/framed-input.ts';
import { createModelInput } from './matte/model-input.ts';
import type { RgbaPicture } from './rgba-picture.ts';

const SIZE = { width: 96, height: 48 };
const BOX = { left: 16, top: 8, width: 64, height: 32 };

/** A matte of a framed input: `alphaAt` in the picture, and `around` in its frame. */
function framed(alphaAt: (x: number, y: number) => number, around = 0): Uint8Array {
  return Uint8Array.from({ length: SIZE.width * SIZE.height }, (_, i) => {
    const x = (i % SIZE.width) - BOX.left;
    const y = Math.floor(i / SIZE.width) - BOX.top;
    return x >= 0 && y >= 0 && x < BOX.width && y < BOX.height ? alphaAt(x, y) : around;
  });
}

const matte = (role: MatteRole, alpha = new Uint8Array(4), size = { width: 2, height: 2 }) => {
  return { alpha, size, role };
};
/**
 * Makes what another model, or the same without a frame, shows of the picture: so much from its
 * left.
 */
const leftOf = (role: MatteRole, share: number) => {
  const size = { width: 40, height: 20 };
  const alpha = Uint8Array.from({ length: 800 }, (_, i) => (i % 40 < share * 40 ? 255 : 0));
  return matte(role, alpha, size);
};
const look = (alpha: Uint8Array) => withFramedLook([matte('subject')], { alpha, size: SIZE });

test('a framed look › is of the picture alone, which lies in the middle of the input', t => {
  t.deepEqual(boxInFrame(SIZE), BOX);
  t.deepEqual(boxInFrame({ width: 1, height: 2 }), { left: 0, top: 0, width: 1, height: 1 });
  const alphaAt = (x: number, y: number) => ((x * y) % 3 === 1 ? 255 : 0);
  const [subject] = look(framed(alphaAt, 77)) ?? [];
  const cells = Array.from({ length: BOX.width * BOX.height }, (_, i) => i);
  const own = cells.map(i => alphaAt(i % BOX.width, Math.floor(i / BOX.width)));
  t.deepEqual([...(subject?.alpha ?? [])], own);
});

test('a framed look › that is believed leads, and the first look is heard like a second', t => {
  const joined = withFramedLook([matte('subject'), matte('opinion')], {
    alpha: framed(x => (x < 40 ? 255 : 0)),
    size: SIZE,
  });
  t.deepEqual(
    joined?.map(({ role }) => role),
    ['subject', 'secondLook', 'opinion'],
  );
});

test('a framed look › is not believed where it shows the picture itself', t => {
  t.is(look(framed(() => 255)), undefined);
  // A part of the lower side is not shown, as with the lawn before a person.
  const { sideShareMax } = FRAMED_RULES;
  const lower = (share: number) =>
    look(framed((x, y) => (y < BOX.height - 1 || x < share * BOX.width ? 255 : 0)));
  t.not(lower(sideShareMax - 0.05), undefined);
  t.is(lower(sideShareMax + 0.05), undefined);
});

test('a framed look › is not believed where what shows the picture itself fades at its edge', t => {
  const size = { width: 384, height: 384 };
  const { left, top, width, height } = boxInFrame(size);
  const fading = (edge: number) => {
    const alpha = new Uint8Array(size.width * size.height);
    for (let y = top + edge; y < top + height; y++) {
      alpha.fill(255, y * size.width + left + edge, y * size.width + left + width);
    }
    return withFramedLook([matte('subject')], { alpha, size });
  };
  t.is(fading(2), undefined);
  t.not(fading(3), undefined);
});

test('a framed look › is not believed where the border does not cut the subject off', t => {
  const { cutOffShareMin } = FRAMED_RULES;
  const standsAt = (share: number) =>
    look(framed((x, y) => (y > 2 && x < share * BOX.width ? 255 : 0)));
  const lying = (left: number) => look(framed((x, y) => (x > left && x < 50 && y === 9 ? 255 : 0)));
  t.not(standsAt(cutOffShareMin + 0.05), undefined);
  t.is(lying(0), undefined);
  t.is(lying(-1), undefined, 'a row of pixels is less than a twentieth of a side');
});

test('a framed look › is not believed where it shows nothing clearly', t => {
  const { unsureShareMax } = FRAMED_RULES;
  const unsure = (share: number) =>
    look(framed((x, y) => (y >= 16 ? 0 : (x * 37) % 64 < share * 64 ? 128 : 255)));
  t.not(unsure(unsureShareMax - 0.05), undefined);
  t.is(unsure(unsureShareMax + 0.05), undefined);
});

test('a framed look › is not believed where it loses some of what the first look shows', t => {
  const shows = (share: number) =>
    withFramedLook([leftOf('subject', 0.5)], {
      alpha: framed(x => (x < share * BOX.width ? 255 : 0)),
      size: SIZE,
    });
  t.not(shows(0.5), undefined);
  t.not(shows(0.9), undefined, 'more than the first look shows is what it is for');
  t.is(shows(0.45), undefined);
});

test('a framed look › is not believed where the opinion sees what the first look sees', t => {
  const seenBy = (opinion: number) =>
    withFramedLook([leftOf('subject', 0.25), leftOf('opinion', opinion)], {
      alpha: framed(x => (x < 0.5 * BOX.width ? 255 : 0)),
      size: SIZE,
    });
  t.is(seenBy(0.25), undefined);
  t.not(seenBy(0.5), undefined);
  t.not(seenBy(0), undefined, 'an opinion that sees neither decides nothing');
});

test('a framed look › of the picture itself is believed where the opinion sees the same', t => {
  const whole = { alpha: framed(() => 255), size: SIZE };
  const seenBy = (opinion: number) =>
    withFramedLook([leftOf('subject', 0.25), leftOf('opinion', opinion)], whole);
  t.not(seenBy(FRAMED_RULES.agreementMin + 0.05), undefined);
  t.is(seenBy(FRAMED_RULES.agreementMin - 0.05), undefined);
});

test('a framed look › is worth it where the first model is unsure of a third, and looks again', t => {
  const subject = (unsure: number) =>
    Uint8Array.from({ length: 7000 }, (_, i) => ((i * 37) % 100 < unsure ? 128 : 255));
  const isWorth = (unsure: number, role: MatteRole = 'secondLook', model = 'isnet') =>
    isWorthFraming({ role, model }, 'isnet', subject(unsure));
  t.deepEqual([isWorth(28), isWorth(33), isWorth(33, 'subject')], [false, true, true]);
  t.deepEqual([isWorth(33, 'opinion'), isWorth(33, 'secondLook', 'modnet')], [false, false]);
  const nothing = new Uint8Array(7000).fill(5);
  t.false(isWorthFraming({ role: 'secondLook', model: 'isnet' }, 'isnet', nothing));
});

function picture(colourAt: (x: number, y: number) => readonly [number, number, number]) {
  const [width, height] = [200, 100];
  const rgba = Uint32Array.from({ length: width * height }, (_, i) => {
    const [red, green, blue] = colourAt(i % width, Math.floor(i / width));
    return red | (green << 8) | (blue << 16) | (255 << 24);
  });
  return { rgba, width, height, translucent: false } satisfies RgbaPicture;
}

test('a framed input › has the picture in its box, as a model would see it at that size', t => {
  const seen = picture((x, y) => [x, 2 * y, (x * 7 + y * 13) % 256]);
  const input = createFramedInput(seen, SIZE);
  const own = createModelInput(seen, BOX);
  for (let y = 0; y < BOX.height; y++) {
    const from = 3 * ((BOX.top + y) * SIZE.width + BOX.left);
    const row = own.subarray(3 * y * BOX.width, 3 * (y + 1) * BOX.width);
    t.deepEqual(input.subarray(from, from + 3 * BOX.width), row, `row ${y}`);
  }
});

test('a framed input › has the colours of the picture around it, without their shapes', t => {
  const plain = createFramedInput(
    picture(() => [10, 130, 255]),
    SIZE,
  );
  for (let i = 0; i < plain.length; i += 3) {
    t.deepEqual([...plain.subarray(i, i + 3)], [10, 130, 255]);
  }
  const stripes = createFramedInput(
    picture(x => [x % 4 < 2 ? 255 : 0, x < 100 ? 0 : 200, 0]),
    SIZE,
  );
  for (let x = 0; x < SIZE.width; x++) {
    t.true(Math.abs(at(stripes, 3 * x) - 127.5) < 16, `stripes at ${x}`);
  }
  t.deepEqual([at(stripes, 1), at(stripes, 3 * SIZE.width - 2)], [0, 200]);
});
