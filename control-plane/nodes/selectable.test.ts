import { SelectableKind } from '@matting/proto/gen/matting/v1/matte_service.ts';
import ava from 'ava';
import { commonDefault, ofStandingSum, standingSums } from './selectable.ts';
import { modelsSeen, saidModel, saidPlan } from './test/nodes-seen.ts';

const test = ava;

const voter = (registeredAtMs: number, ...reported: Parameters<typeof modelsSeen>) => {
  return { registeredAtMs, models: modelsSeen(...reported) };
};
const [ONE, TWO] = ['11', '22'];
const of = (sha256: string, atMs: number) => voter(atMs, saidModel('heavy', { sha256 }));

const SUMS: readonly [string, ReturnType<typeof voter>[], string | undefined][] = [
  ['no node', [], undefined],
  ['one node', [of(ONE, 1)], ONE],
  ['most nodes', [of(ONE, 1), of(TWO, 2), of(TWO, 3)], TWO],
  ['most nodes, in another order', [of(TWO, 3), of(ONE, 1), of(TWO, 2)], TWO],
  ['of as many the first to register', [of(TWO, 2), of(ONE, 1)], ONE],
  ['of as many the one with the first', [of(TWO, 3), of(ONE, 2), of(ONE, 4), of(TWO, 1)], TWO],
];
for (const [why, nodes, sum] of SUMS) {
  test(`a name stands for the sum of ${why}`, t => {
    t.is(standingSums(nodes).get('heavy'), sum);
  });
}

test('a model with another checksum than the fleet’s is not offered', t => {
  const standing = new Map([
    ['heavy', ONE],
    ['light', TWO],
  ]);
  const reported = modelsSeen(
    saidModel('heavy', { sha256: TWO }),
    saidModel('light', { sha256: TWO }),
  );
  t.deepEqual([...ofStandingSum(reported, standing).keys()], ['light']);
  const agreed = modelsSeen(saidModel('light', { sha256: TWO }));
  t.is(ofStandingSum(agreed, standing), agreed, 'the same object while nothing is left out');
});

test('the default is the plan that most nodes take', t => {
  t.is(commonDefault([voter(1, saidModel('heavy'))]), undefined);
  const plans = [
    voter(2, saidPlan('best')),
    voter(1, saidPlan('fast')),
    voter(3, saidPlan('best')),
  ];
  t.is(commonDefault(plans), 'best');
  t.is(commonDefault(plans.slice(0, 2)), 'fast');
});

test('entries without a valid kind, name or checksum are ignored', t => {
  const odd = ['', '.', '-a', 'a b', 'a/b', 'a'.repeat(65), 'é'].map(name => saidModel(name));
  const kind = SelectableKind.SELECTABLE_KIND_UNSPECIFIED;
  const others = [saidModel('sumless', { sha256: '' }), saidModel('kindless', { kind })];
  t.deepEqual(
    [...modelsSeen(...odd, ...others, saidModel('a'.repeat(64))).keys()],
    ['a'.repeat(64)],
  );
  const many = Array.from({ length: 300 }, (_, index) => saidModel(`m${index}`));
  t.is(modelsSeen(...many).size, 256);
});
