import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import type { MatteRole } from '../../models/prepared-model.ts';
import { chooseMattes } from './choose-mattes.ts';

const SIDE = 96;
type AlphaAt = (x: number, y: number) => number;

function matteOf(role: MatteRole, alphaAt: AlphaAt) {
  const cells = Array.from({ length: SIDE * SIDE }, (_, i) => i);
  const alpha = Uint8Array.from(cells, i => alphaAt(i % SIDE, Math.floor(i / SIDE)));
  return { alpha, width: SIDE, height: SIDE, role };
}

/** A body that meets the lower side; `lower`: the alpha of its lower half. */
const body =
  (lower: number | AlphaAt): AlphaAt =>
  (x, y) => {
    if (x < 24 || x >= 72 || y < 24) return 0;
    if (y < 60) return 255;
    return typeof lower === 'number' ? lower : lower(x, y);
  };
const WHOLE = body(255);
const half: AlphaAt = (x, y) => 90 + ((x + y) % 2) * 60;
const LOST = [matteOf('subject', body(half)), matteOf('secondLook', body(half))];
const APART = [at(LOST, 0), matteOf('secondLook', body(45))];
const KEPT = ['0 subject', '1 secondLook'];

function choose(before: typeof LOST, further: readonly AlphaAt[], isLast = true) {
  const all = [...before, ...further.map(alphaAt => matteOf('secondLook', alphaAt))];
  const { mattes, settled } = chooseMattes(all, further.length, isLast);
  return { mattes: mattes.map(one => `${one.at} ${one.role}`), settled };
}

test('further looks › are wanted only where what the plan shows is unsure', t => {
  t.deepEqual(choose(APART, []), { mattes: KEPT, settled: false });
  const sure = [matteOf('subject', WHOLE), matteOf('secondLook', WHOLE)];
  t.deepEqual(choose(sure, []), { mattes: KEPT, settled: true });
  const nothing = [matteOf('subject', () => 0)];
  t.deepEqual(choose(nothing, []), { mattes: ['0 subject'], settled: true });
});

test('further looks › are not wanted if all mattes of a plan but its opinion are alike', t => {
  t.deepEqual(choose(LOST, []), { mattes: KEPT, settled: true });
  t.true(choose([...LOST, matteOf('opinion', () => 0)], []).settled);
  t.false(choose([...LOST, at(APART, 1)], []).settled, 'one of three differs');
  const alone = [at(LOST, 0), matteOf('opinion', body(half))];
  t.false(choose(alone, []).settled, 'one has no other');
});

test('further looks › that are sure of a body that the first half lost replace it', t => {
  const chosen = choose(LOST, [WHOLE, WHOLE, WHOLE]);
  t.deepEqual(chosen, { mattes: ['2 subject', '0 secondLook', '1 secondLook'], settled: true });
});

test('further looks › leave an opinion what it is', t => {
  const { mattes } = choose([...LOST, matteOf('opinion', WHOLE)], [WHOLE, WHOLE, WHOLE]);
  t.deepEqual(mattes, ['3 subject', '0 secondLook', '1 secondLook', '2 opinion']);
});

test('a first look › that further ones confirm leads alone, without the one that lost the body', t => {
  const nearlySure = body(235);
  const before = [matteOf('subject', nearlySure), matteOf('secondLook', body(half))];
  const chosen = choose(before, [nearlySure, nearlySure]);
  t.deepEqual(chosen, { mattes: ['0 subject'], settled: true });
});

test('glass and smoke › stay as they are beside one look that is sure of all', t => {
  const glass: AlphaAt = (x, y) => (Math.hypot(x - 48, y - 48) < 30 ? 100 + (y >> 1) : 0);
  const filled: AlphaAt = (x, y) => (glass(x, y) > 0 ? 255 : 0);
  const smoke: AlphaAt = (x, y) => Math.max(0, 200 - 5 * Math.hypot(x - 48, y - 48));
  for (const [veil, sure] of [
    [glass, filled],
    [smoke, (x: number, y: number) => (smoke(x, y) > 20 ? 255 : 0)],
    [body(half), WHOLE],
  ] as const) {
    const before = [matteOf('subject', veil), matteOf('secondLook', veil)];
    for (const further of [[sure], [veil, sure], [sure, veil, veil]]) {
      t.deepEqual(choose(before, further), { mattes: KEPT, settled: false });
    }
  }
});

test('glass and smoke › stay as they are if most of the other looks do not show them fully', t => {
  const [fills, none] = [[WHOLE, WHOLE, WHOLE, WHOLE], body(0)];
  t.deepEqual(choose(LOST, [...fills, none, none]).mattes, KEPT);
  t.is(choose(LOST, [...fills, none]).mattes[0], '2 subject');
});

test('a look › that lost what the matte surely shows does not lead, however sure it is', t => {
  const lower: AlphaAt = (x, y) => (y < 60 ? 0 : WHOLE(x, y));
  for (const other of [() => 0, lower]) {
    const { mattes, settled } = choose(LOST, [other, other, other, other]);
    t.deepEqual([mattes, settled], [KEPT, false]);
  }
});

test('a body › does not become ground by one look that is sure that it is', t => {
  t.deepEqual(choose(LOST, [body(half), body(0), body(half)]).mattes, KEPT);
});

test('an opinion › outvotes looks that are far apart, if it is sure of what they show', t => {
  const scattered = [12, 40, 68].map(
    (from): AlphaAt =>
      (x, y) =>
        y >= 24 && y < 60 && x >= from && x < from + 16 ? 255 : half(x, y) * Number(y > 94),
  );
  const sees: AlphaAt = (_x, y) => (y >= 20 && y < 64 ? 255 : 0);
  const leads = (opinion: AlphaAt, further = scattered, isLast = true) => {
    const looks = [matteOf('subject', at(scattered, 0)), matteOf('secondLook', at(scattered, 1))];
    const before = [...looks, matteOf('opinion', opinion)];
    return choose(before, further, isLast).mattes[0] === '2 subject';
  };
  t.true(leads(sees));
  t.false(leads(sees, scattered, false), 'a further look may settle it');
  const refused: Readonly<Record<string, AlphaAt>> = {
    'it is unsure itself': (x, y) => sees(x, y) && half(x, y),
    'it lost what they show': (x, y) => (x < 30 ? sees(x, y) : 0),
    'it shows the picture itself': () => 255,
  };
  for (const [why, opinion] of Object.entries(refused)) t.false(leads(opinion), why);
  const alike = Array<AlphaAt>(9).fill(at(scattered, 0));
  t.false(leads(sees, alike), 'most looks agree');
});

test('an opinion › outvotes a matte that is mostly unsure, if it shows what that is sure of', t => {
  const leads = (opinion: AlphaAt, seen = body(half)) => {
    const before = [matteOf('subject', seen), matteOf('opinion', opinion)];
    return choose(before, [seen, seen]).mattes[0] === '1 subject';
  };
  t.true(leads(WHOLE));
  const lost: AlphaAt = (x, y) => (y < 60 ? 0 : WHOLE(x, y));
  t.false(leads(lost), 'it lost what the matte is sure of');
  const lower: AlphaAt = (x, y) => (y < 75 ? 255 : half(x, y));
  t.false(leads(WHOLE, body(lower)), 'the matte is mostly sure');
  t.false(leads(WHOLE, half), 'the matte is sure of nothing');
});
