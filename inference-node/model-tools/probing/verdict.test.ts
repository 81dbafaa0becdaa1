import test from 'ava';
import { activationOf, chooseOutput, isConstant, isInverted } from './verdict.ts';

test('the range of the values decides how they become alpha, or leaves it open', t => {
  for (const [range, activation] of [
    [[0.5, 0.5], undefined],
    [[0, 9], undefined],
    [[0.2, 20], undefined],
    [[-0.6, 0.8], undefined],
    [[0, 300], undefined],
    [[0.55, 0.6], undefined],
    [[0.05, 0.4], undefined],
    [[0.45, 0.731], undefined],
    [[0.52, 0.71], 'logit'],
    [[0.5, 0.731], 'logit'],
    [[0.2, 0.8], 'none'],
    [[0, 1], 'none'],
    [[-0.04, 1.06], 'none'],
    [[-1, 0.999], 'signed'],
    [[-0.95, 0.3], 'signed'],
    [[0, 255], 'scale255'],
    [[-2, 41], 'scale255'],
    [[-69, 46], 'sigmoid'],
    [[-7, -2], 'sigmoid'],
    [[-0.5, 4], 'sigmoid'],
    [[-40, 255], 'sigmoid'],
  ] as const satisfies readonly (readonly [readonly [number, number], unknown])[]) {
    t.is(activationOf(range, 1), activation, range.join());
  }
  t.is(activationOf([-3, 4], 2), 'softmax');
  t.is(activationOf([0.1, 0.4], 2), 'none');
});

test('one value everywhere is no matte, whatever its size', t => {
  t.true(isConstant([0.5, 0.5]));
  t.true(isConstant([255, 255.001]));
  t.false(isConstant([0, 0.001]));
});

test('a matte is inverted where every picture says so', t => {
  const sure = { subject: 0.9, background: 0.1 };
  const inverted = { subject: 0.1, background: 0.9 };
  const unsure = { subject: 0.5, background: 0.4 };
  t.is(isInverted([]), undefined);
  t.is(isInverted([unsure, unsure]), undefined);
  t.is(isInverted([sure, inverted]), undefined);
  t.is(isInverted([inverted, unsure]), undefined);
  const faint = { subject: 0.2, background: 0.4 };
  t.is(isInverted([faint, faint]), undefined);
  t.is(isInverted([inverted, faint]), true);
  t.is(isInverted([inverted, inverted]), true);
  t.is(isInverted([sure, unsure]), false);
});

test('the largest output that varies is the matte; among equals its name decides, then the order', t => {
  const output = (name: string, side: number, more: object = {}) => {
    const facts = { name, type: 'float32', notFinite: false, count: side * side };
    return { ...facts, dims: [1, 1, side, side], range: [0, 1] as const, ...more };
  };
  const chosen = (...outputs: ReturnType<typeof output>[]) => chooseOutput(outputs)?.name;
  t.is(chosen(output('a', 0), output('b', 8, { dims: [1, 5, 8, 8] })), undefined);
  t.is(chosen(output('coarse', 4), output('fine', 8)), 'fine');
  t.is(chosen(output('first', 8), output('second', 8)), 'first');
  t.is(chosen(output('p4', 8), output('alpha', 8)), 'alpha');
  t.is(chosen(output('matte', 8, { range: [1, 1] }), output('b', 8)), 'b');
  t.is(chosen(output('matte', 8, { notFinite: true }), output('b', 4)), 'b');
  t.is(chosen(output('a', 8, { range: [1, 1] })), 'a');
});
