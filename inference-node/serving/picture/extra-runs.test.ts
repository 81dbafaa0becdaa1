import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import type { ExtraRun, MatteRole } from '../models/prepared-model.ts';
import { EXTRA_RUNS_MAX, extraRunsOf } from './extra-runs.ts';
import { type Choose, inferPlan, type ModelRun } from './infer-plan.ts';

const SIDE = 96;
const SIZE = { width: SIDE, height: SIDE };

/** A body that meets the lower side, surely shown up to `sureTo`. */
function matteOf(role: MatteRole, sureTo: number, from = 24) {
  const alpha = Buffer.alloc(SIDE * SIDE);
  for (let y = 24; y < SIDE; y++) {
    alpha.fill(y < sureTo ? 255 : 140, y * SIDE + from, y * SIDE + from + 40);
  }
  return { alpha, size: SIZE, role };
}
const UNSURE = matteOf('subject', 60);

const extra = (input: ExtraRun['input'], unsureFrom = 0.13): ExtraRun => ({ input, unsureFrom });
const isnet = { model: 'isnet' };
const PLAN = [
  { model: isnet, role: 'subject', extraRuns: [extra('mirrored'), extra('edges')] },
  { model: { model: 'other' }, role: 'secondLook', extraRuns: [extra('mirrored')] },
  { model: { model: 'fine' }, role: 'refine' },
] as const;

/** @param settledAt number of further runs */
async function infer(settledAt: number, first = UNSURE, missing: readonly number[] = []) {
  const taken: string[] = [];
  const choices: string[] = [];
  const take = async ({ entry, input, stage }: ModelRun<(typeof PLAN)[number]>) => {
    taken.push(`${entry.model.model} ${input?.kind ?? 'as it is'}`);
    if (stage !== undefined && missing.includes(taken.length)) return 'missing';
    return stage === undefined ? { ...first, role: entry.role } : matteOf('secondLook', SIDE);
  };
  const choose: Choose = (mattes, further, isLast) => {
    choices.push(`${mattes.length} ${further}${isLast ? ' last' : ''}`);
    const leads = { at: mattes.length - 1, role: 'subject' } as const;
    const second = further > 0 ? [{ at: 0, role: 'secondLook' } as const] : [];
    return { mattes: [leads, ...second], settled: further >= settledAt };
  };
  return { ...(await inferPlan(PLAN, { picture: SIZE }, take, choose)), taken, choices };
}

const BEFORE = ['isnet as it is', 'other as it is'];

test('a plan › takes its further runs one after the other, last model first, and three at most', async t => {
  const { taken, choices, extraRuns, mattes } = await infer(9);
  const further = ['other mirrored', 'isnet mirrored', 'isnet edges'];
  t.deepEqual(taken, [...BEFORE, ...further, 'fine as it is']);
  t.deepEqual(choices, ['2 0', '3 1', '4 2', '5 3 last']);
  t.is(extraRuns.length, EXTRA_RUNS_MAX);
  t.deepEqual(
    mattes.map(({ role }) => role),
    ['subject', 'secondLook', 'refine'],
  );
  t.deepEqual(at(mattes, 1).alpha, UNSURE.alpha);
  t.notDeepEqual(at(mattes, 0).alpha, UNSURE.alpha);
});

test('a plan › stops at the further run that settles it', async t => {
  const { extraRuns, taken } = await infer(1);
  t.deepEqual(extraRuns, ['mirrored']);
  t.deepEqual(taken, [...BEFORE, 'other mirrored', 'fine as it is']);
  t.deepEqual((await infer(0)).extraRuns, []);
});

test('a plan › looks no further at a picture that its first look is sure of', async t => {
  const { taken, choices, extraRuns } = await infer(9, matteOf('subject', SIDE));
  t.deepEqual([taken, choices, extraRuns], [['isnet as it is', 'fine as it is'], [], []]);
});

test('a plan › goes on without a further run that is missing, and says so', async t => {
  const { extraRuns, missing } = await infer(9, UNSURE, [3]);
  t.deepEqual(extraRuns, ['mirrored', 'edges']);
  t.deepEqual(missing, [PLAN[1]]);
});

test('further runs › continue the sides that one of the looks shows a twentieth of', t => {
  const inputsOf = (...mattes: ReturnType<typeof matteOf>[]) =>
    extraRunsOf([PLAN[0]], mattes).map(({ input }) => input);
  const mirrored = { kind: 'mirrored' };
  const edges = (left: number) => ({ kind: 'edges', beyond: [0, 0.12, left, 0] });
  t.deepEqual(inputsOf(UNSURE), [mirrored, edges(0)]);
  t.deepEqual(inputsOf(UNSURE, matteOf('opinion', SIDE, 0)), [mirrored, edges(0.12)]);
  const apart = { ...UNSURE, alpha: Buffer.alloc(SIDE * SIDE).fill(140, 40 * SIDE, 41 * SIDE) };
  apart.alpha.fill(0, 40 * SIDE, 40 * SIDE + 9).fill(0, 41 * SIDE - 9, 41 * SIDE);
  t.deepEqual(inputsOf(apart), [mirrored]);
});

const FAST = [
  { model: isnet, role: 'subject' },
  { model: isnet, role: 'surerLook' },
] as const;

/** @param larger undefined: the engine is missing */
async function inferFast(first: ReturnType<typeof matteOf>, larger?: ReturnType<typeof matteOf>) {
  const take = async ({ entry }: ModelRun<(typeof FAST)[number]>) =>
    entry.role === 'subject' ? first : (larger ?? 'missing');
  const choose = () => {
    throw new Error('the plan has nothing to choose among');
  };
  const { mattes, extraRuns, missing } = await inferPlan(FAST, { picture: SIZE }, take, choose);
  return { roles: mattes.map(({ role }) => role), alpha: at(mattes, 0).alpha, extraRuns, missing };
}

test('a surer look › replaces a subject that is less sure, and only that', async t => {
  const sure = matteOf('subject', 90);
  const better = await inferFast(UNSURE, sure);
  t.deepEqual([better.roles, better.extraRuns], [['subject'], ['larger']]);
  t.is(better.alpha, sure.alpha);
  const worse = await inferFast(UNSURE, matteOf('subject', 40));
  t.deepEqual([worse.roles, worse.extraRuns], [['subject'], ['larger']]);
  t.is(worse.alpha, UNSURE.alpha);
});

test('a surer look › that shows nothing is sure of nothing', async t => {
  const { alpha } = await inferFast(UNSURE, { ...UNSURE, alpha: Buffer.alloc(SIDE * SIDE) });
  t.is(alpha, UNSURE.alpha);
});

test('a surer look › is taken at no picture that the first look is sure of, and may be missing', async t => {
  t.deepEqual((await inferFast(matteOf('subject', SIDE))).extraRuns, []);
  const { alpha, missing, extraRuns } = await inferFast(UNSURE);
  t.deepEqual([extraRuns, missing], [[], [FAST[1]]]);
  t.is(alpha, UNSURE.alpha);
});
