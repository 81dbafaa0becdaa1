import test from 'ava';
import type { MatteRole } from '../models/prepared-model.ts';
import { FRAMED_RULES, isWorthFraming, withFramedRun } from './framed-run.ts';

const SIZE = { width: 64, height: 32 };

function framed(alphaAt: (x: number, y: number) => number): Buffer {
  const { width, height } = SIZE;
  const cells = Array.from({ length: width * height }, (_, i) => i);
  return Buffer.from(cells.map(i => alphaAt(i % width, Math.floor(i / width))));
}

const matte = (role: MatteRole, alpha = new Uint8Array(4), size = { width: 2, height: 2 }) => {
  return { alpha, size, role };
};
/** Shows this share of the picture from the left. */
const leftOf = (role: MatteRole, share: number) => {
  const size = { width: 40, height: 20 };
  const alpha = Uint8Array.from({ length: 800 }, (_, i) => (i % 40 < share * 40 ? 255 : 0));
  return matte(role, alpha, size);
};
const addFramed = (alpha: Buffer) => withFramedRun([matte('subject')], { alpha, size: SIZE });

test('a framed look › that is believed leads, and the first look is heard like a second', t => {
  const joined = withFramedRun([matte('subject'), matte('opinion')], {
    alpha: framed(x => (x < 40 ? 255 : 0)),
    size: SIZE,
  });
  t.deepEqual(
    joined?.map(({ role }) => role),
    ['subject', 'secondLook', 'opinion'],
  );
});

test('a framed look › is not believed where it shows the picture itself', t => {
  t.is(addFramed(framed(() => 255)), undefined);
  // A part of the lower side is missing, such as the lawn before a person.
  const { sideShareMax } = FRAMED_RULES;
  const lower = (share: number) =>
    addFramed(framed((x, y) => (y < SIZE.height - 1 || x < share * SIZE.width ? 255 : 0)));
  t.not(lower(sideShareMax - 0.05), undefined);
  t.is(lower(sideShareMax + 0.05), undefined);
});

test('a framed look › is not believed where what shows the picture itself fades at its edge', t => {
  const side = 256;
  const size = { width: side, height: side };
  const fading = (edge: number) => {
    const alpha = Buffer.alloc(side * side);
    for (let y = edge; y < side; y++) alpha.fill(255, y * side + edge, (y + 1) * side);
    return withFramedRun([matte('subject')], { alpha, size });
  };
  t.is(fading(2), undefined);
  t.not(fading(3), undefined);
});

test('a framed look › is not believed where the border does not cut the subject off', t => {
  const { cutOffShareMin } = FRAMED_RULES;
  const standsAt = (share: number) =>
    addFramed(framed((x, y) => (y > 2 && x < share * SIZE.width ? 255 : 0)));
  const lying = (left: number) =>
    addFramed(framed((x, y) => (x > left && x < 50 && y === 9 ? 255 : 0)));
  t.not(standsAt(cutOffShareMin + 0.05), undefined);
  t.is(lying(0), undefined);
  t.is(lying(-1), undefined, 'a row of pixels is less than a twentieth of a side');
});

test('a framed look › is not believed where it shows nothing clearly', t => {
  const { unsureShareMax } = FRAMED_RULES;
  const unsure = (share: number) =>
    addFramed(framed((x, y) => (y >= 16 ? 0 : (x * 37) % 64 < share * 64 ? 128 : 255)));
  t.not(unsure(unsureShareMax - 0.05), undefined);
  t.is(unsure(unsureShareMax + 0.05), undefined);
});

test('a framed look › is not believed where it loses some of what the first look shows', t => {
  const shows = (share: number) =>
    withFramedRun([leftOf('subject', 0.5)], {
      alpha: framed(x => (x < share * SIZE.width ? 255 : 0)),
      size: SIZE,
    });
  t.not(shows(0.5), undefined);
  t.not(shows(0.9), undefined, 'more than the first look shows is what it is for');
  t.is(shows(0.45), undefined);
});

test('a framed look › is not believed where the opinion sees what the first look sees', t => {
  const seenBy = (opinion: number) =>
    withFramedRun([leftOf('subject', 0.25), leftOf('opinion', opinion)], {
      alpha: framed(x => (x < 0.5 * SIZE.width ? 255 : 0)),
      size: SIZE,
    });
  t.is(seenBy(0.25), undefined);
  t.not(seenBy(0.5), undefined);
  t.not(seenBy(0), undefined, 'an opinion that sees neither decides nothing');
});

test('a framed look › of the picture itself is believed where the opinion sees the same', t => {
  const whole = { alpha: framed(() => 255), size: SIZE };
  const seenBy = (opinion: number) =>
    withFramedRun([leftOf('subject', 0.25), leftOf('opinion', opinion)], whole);
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
