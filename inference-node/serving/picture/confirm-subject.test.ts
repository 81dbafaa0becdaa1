import test from 'ava';
import type { MatteRole } from '../models/prepared-model.ts';
import { confirmSubject } from './confirm-subject.ts';
import { inferPlan, type ModelRun } from './infer-plan.ts';

const SIZE = { width: 40, height: 20 };

/** Shows this share of the picture's width from the left. */
function matteOf(role: MatteRole, share: number, alpha = 255) {
  const from = (i: number) => (i % SIZE.width < share * SIZE.width ? alpha : 0);
  return {
    role,
    size: SIZE,
    alpha: Buffer.from(Array.from({ length: 800 }, (_none, i) => from(i))),
  };
}

const GHOST = matteOf('subject', 0.5, 150);
const rolesOf = (mattes: readonly { readonly role: MatteRole }[]) => mattes.map(({ role }) => role);

test('a picture whose framed look is not believed › has no subject where no other look shows it', t => {
  for (const ghost of [GHOST, matteOf('subject', 0.5)]) {
    const [only, ...others] = confirmSubject([
      ghost,
      matteOf('opinion', 0),
      matteOf('secondLook', 0),
    ]);
    t.deepEqual([only?.role, only?.size, others], ['subject', SIZE, []]);
    t.true(only?.alpha.every(value => value === 0));
  }
  t.true(GHOST.alpha.includes(150), 'the buffer of the engine is left as it was');
});

test('a picture whose framed look is not believed › keeps what one other look shows a tenth of', t => {
  for (const mattes of [
    [GHOST, matteOf('opinion', 0), matteOf('secondLook', 0.1)],
    [GHOST, matteOf('opinion', 0.1, 200), matteOf('secondLook', 0)],
    [matteOf('subject', 0), matteOf('opinion', 0), matteOf('secondLook', 0)],
  ]) {
    t.deepEqual(confirmSubject(mattes), mattes);
  }
});

test('a picture whose framed look is not believed › is judged by no fewer than three looks', t => {
  for (const mattes of [
    [GHOST],
    [GHOST, matteOf('opinion', 0)],
    [GHOST, matteOf('secondLook', 0)],
    [GHOST, matteOf('opinion', 0.6)],
  ]) {
    t.deepEqual(confirmSubject(mattes), mattes);
  }
});

test('a ghost of what the opinion surely shows › leaves the subject to the opinion', t => {
  const opinion = matteOf('opinion', 0.6);
  for (const role of ['secondLook', 'subject'] as const) {
    const again = matteOf(role, 0);
    const mattes = confirmSubject([GHOST, opinion, again]);
    t.deepEqual(rolesOf(mattes), ['subject', 'secondLook', 'secondLook']);
    t.deepEqual(
      mattes.map(({ alpha }) => alpha),
      [opinion.alpha, GHOST.alpha, again.alpha],
    );
  }
});

test('a ghost › stays the subject beside an opinion that is unsure, sees a part, or the picture itself', t => {
  const again = matteOf('secondLook', 0.5, 150);
  for (const opinion of [
    matteOf('opinion', 0.6, 200),
    matteOf('opinion', 0.4),
    matteOf('opinion', 1),
  ]) {
    const mattes = [GHOST, opinion, again];
    t.deepEqual(confirmSubject(mattes), mattes);
  }
});

test('a ghost › that is faint everywhere stays the subject beside an opinion that shows nothing', t => {
  const mattes = [
    matteOf('subject', 0.5, 100),
    matteOf('opinion', 0),
    matteOf('secondLook', 0.5, 100),
  ];
  t.deepEqual(confirmSubject(mattes), mattes);
});

test('a first look that is sure of a tenth › stays the subject, whatever the opinion shows', t => {
  const alpha = Buffer.from(GHOST.alpha.map((value, i) => (i % 40 < 3 ? 255 : value)));
  const mattes = [{ ...GHOST, alpha }, matteOf('opinion', 0.6), matteOf('secondLook', 0.5)];
  t.deepEqual(confirmSubject(mattes), mattes);
});

const PLAN = [
  { model: { model: 'isnet' }, role: 'subject' },
  { model: { model: 'modnet' }, role: 'opinion' },
  { model: { model: 'isnet' }, role: 'secondLook' },
] as const;

/** The opinion and the plain second look show nothing. */
async function infer(first: ReturnType<typeof matteOf>, framed: ReturnType<typeof matteOf>) {
  const take = async ({ entry, input }: ModelRun<(typeof PLAN)[number]>) => {
    if (entry.role === 'subject') return first;
    return input ? framed : matteOf(entry.role, 0);
  };
  const choose = () => {
    throw new Error('no further run was taken');
  };
  const { mattes, runs } = await inferPlan(PLAN, { picture: SIZE }, take, choose);
  return [rolesOf(runs), mattes.map(({ alpha }) => alpha.some(value => value > 0))];
}

test('a plan › has no subject where a framed look is not believed and no look shows the first one', async t => {
  const all = ['subject', 'opinion', 'secondLook'];
  const whole = matteOf('secondLook', 1);
  t.deepEqual(await infer(GHOST, whole), [all, [false]]);
  // The middle shows the left 2 thirds of the picture.
  t.deepEqual(await infer(GHOST, matteOf('secondLook', 0.7)), [all, [true, true, false]]);
  // A fifth is unsure, so there is no framed run.
  const alpha = Buffer.from(GHOST.alpha.map((value, i) => (value > 0 && i % 5 > 0 ? 255 : value)));
  t.deepEqual(await infer({ ...GHOST, alpha }, whole), [all, [true, false, false]]);
});
