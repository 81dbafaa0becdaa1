import { TINY_LICENCE } from '@matting/test-support/tiny-model.ts';
import test from 'ava';
import { TINY_MODEL } from '../test/fake-pools.ts';
import type { CommercialUse } from './licence.ts';
import type { MatteRole, PreparedModel } from './prepared-model.ts';
import { sumOf, termsOf } from './selectable.ts';

const withModel = (change: Partial<PreparedModel>, role: MatteRole = 'subject') => ({
  models: [{ model: { ...TINY_MODEL, ...change }, role }],
});
const sum = sumOf(withModel({}));
const boxed = { inputType: 'uint8', layout: 'hwc', fit: 'letterbox', inverted: false } as const;

test('each fact that decides a matte changes the checksum', t => {
  const others = [
    withModel({ weights: ['ef'.repeat(32)] }),
    withModel({ inputWidth: 8 }),
    withModel({ normalisation: { mean: [1, 0, 0], std: [1, 1, 1] } }),
    withModel({ colourOrder: 'bgr' }),
    withModel({ activation: 'sigmoid' }),
    withModel({ outputName: 'other' }),
    withModel({ form: boxed }),
    withModel({ form: { ...boxed, inverted: true } }),
    withModel({ form: { ...boxed, trimap: true } }),
    withModel({}, 'opinion'),
    { models: [...withModel({}).models, ...withModel({}).models] },
  ];
  t.is(new Set([sum, ...others.map(sumOf)]).size, others.length + 1);
});

test('nodes that compute it otherwise have the same sum', t => {
  const licence = { ...TINY_LICENCE, spdx: 'NOASSERTION' };
  const here = { path: '/b', sha256: 'aa', provider: 'cuda', precision: 'fp16', licence } as const;
  t.is(sumOf(withModel({ ...here, version: '2', inputName: 'x' })), sum);
});

test('the strictest of several licences counts', t => {
  const using = (use: CommercialUse) => ({ ...TINY_LICENCE.weights, commercialUse: use });
  const of = (weights: CommercialUse, trainingData: CommercialUse) => {
    const licence = { ...TINY_LICENCE, weights: using(weights), trainingData: using(trainingData) };
    return withModel({ licence }).models;
  };
  const strictest = (...models: ReturnType<typeof of>) => {
    const { weights, trainingData } = termsOf({ models });
    return [weights?.commercialUse, trainingData?.commercialUse];
  };
  t.deepEqual(strictest(...of('yes', 'unclear'), ...of('unclear', 'yes')), ['unclear', 'unclear']);
  t.deepEqual(strictest(...of('unclear', 'no'), ...of('no', 'yes')), ['no', 'no']);
});
