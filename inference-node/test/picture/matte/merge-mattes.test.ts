import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import type { MatteRole } from '../../../src/models/prepared-model.ts';
import { mergeMattes } from '../../../src/picture/matte/merge-mattes.ts';

const SIDE = 60;
const SIZE = { width: SIDE, height: SIDE };

/** A disc: opaque inside, falling to nothing over `soft` pixels. */
function disc(radius: number, soft: number, centre = SIDE / 2, side = SIDE): Uint8Array {
  return Uint8Array.from({ length: side * side }, (_, i) => {
    const far = Math.hypot((i % side) - centre, Math.floor(i / side) - centre);
    return Math.max(0, Math.min(255, ((radius - far) / soft) * 255 + 128));
  });
}

const part = (alpha: Uint8Array, role: MatteRole) => ({ alpha, ...SIZE, role });

test('a plan without a subject is a bug', t => {
  t.throws(() => mergeMattes([part(disc(20, 1), 'opinion')], SIZE), {
    message: /without a subject/,
  });
});

test('an opinion that shows something else changes nothing', t => {
  const subject = disc(20, 6);
  for (const other of [disc(8, 6), disc(20, 6, 10), new Uint8Array(SIDE * SIDE)]) {
    t.deepEqual(mergeMattes([part(subject, 'subject'), part(other, 'opinion')], SIZE), subject);
  }
});

test('a second look that has lost half of the body changes nothing', t => {
  const subject = disc(20, 6);
  const looks = (radius: number) => [part(subject, 'subject'), part(disc(radius, 6), 'secondLook')];
  t.deepEqual(mergeMattes(looks(13), SIZE), subject);
  t.notDeepEqual(mergeMattes(looks(18), SIZE), subject);
});

test('nothing in either stays nothing', t => {
  const empty = new Uint8Array(SIDE * SIDE);
  t.deepEqual(mergeMattes([part(empty, 'subject'), part(empty, 'opinion')], SIZE), empty);
});

test('what the subject is sure of far from its edge does not change', t => {
  const subject = disc(20, 2);
  const opinion = subject.slice();
  opinion[SIDE * (SIDE / 2) + SIDE / 2] = 0;
  opinion[0] = 255;
  const merged = mergeMattes([part(subject, 'subject'), part(opinion, 'opinion')], SIZE);
  t.is(merged[SIDE * (SIDE / 2) + SIDE / 2], 255);
  t.is(merged[0], 0);
});

test('at the edge the surer of the two counts more', t => {
  const subject = disc(20, 10);
  const opinion = disc(20.5, 1);
  const merged = mergeMattes([part(subject, 'subject'), part(opinion, 'opinion')], SIZE);
  const distance = (to: Uint8Array) =>
    merged.reduce((sum, value, i) => sum + Math.abs(value - at(to, i)), 0);
  t.true(distance(opinion) < distance(subject), 'the sharp one should have won');
  t.notDeepEqual(merged, subject);
});

test('a sharp edge is left alone by a blurred opinion, a soft one is not', t => {
  const side = 600;
  const size = { width: side, height: side };
  const large = (soft: number, role: 'subject' | 'opinion') => ({
    alpha: disc(200, soft, side / 2, side),
    ...size,
    role,
  });
  const sharp = large(1, 'subject');
  // Compared as bytes: the difference of two arrays of this length takes minutes to print.
  const changes = (subject: typeof sharp) =>
    Buffer.compare(mergeMattes([subject, large(24, 'opinion')], size), subject.alpha) !== 0;
  t.false(changes(sharp));
  t.true(changes(large(40, 'subject')));
});

test('two that are sure of the opposite do not make a half transparent pixel', t => {
  const subject = disc(20, 4);
  const opinion = subject.slice();
  const inside = SIDE * (SIDE / 2) + SIDE / 2 + 17;
  t.is(subject[inside], 255);
  opinion[inside] = 0;
  const merged = mergeMattes([part(subject, 'subject'), part(opinion, 'opinion')], SIZE);
  t.is(merged[inside], 255);
});

for (const role of ['subject', 'secondLook'] as const) {
  test(`where the first is unsure, a ${role} counts as much as it; no input is written to`, t => {
    const one = new Uint8Array(SIDE * SIDE).fill(100);
    const other = new Uint8Array(SIDE * SIDE).fill(151);
    const merged = mergeMattes([part(one, 'subject'), part(other, role)], SIZE);
    t.true(merged.every(value => value === 126));
    t.true(one.every(value => value === 100));
    t.true(other.every(value => value === 151));
  });

  test(`a ${role} that shows something else has no effect where the first is sure`, t => {
    const first = disc(12, 4, 20);
    const merged = mergeMattes([part(first, 'subject'), part(disc(8, 4, 48), role)], SIZE);
    t.is(merged[48 * SIDE + 48], 0, 'the other thing is not there');
    t.is(merged[20 * SIDE + 20], 255, 'the first one is whole');
  });
}

test('three subjects count the same', t => {
  const looks = [90, 120, 150].map(value => new Uint8Array(SIDE * SIDE).fill(value));
  const merged = mergeMattes(
    looks.map(alpha => part(alpha, 'subject')),
    SIZE,
  );
  t.true(merged.every(value => value === 120));
});
