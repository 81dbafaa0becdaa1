/** Caches hold files of a revision, so its bytes must not change. */
import { createHash } from 'node:crypto';
import type { Graph } from '@matting/serving/onnx/graph.ts';
import { PREPARER_REVISION } from '@matting/serving/prepared/prepared-cache.ts';
import test from 'ava';
import { mendDeformableConvolutions } from '../onnx/mend.ts';
import { planQuantisation } from '../onnx/plan-quantisation.ts';
import { stockDeformable } from '../test/stock-deformable.ts';
import { graphBytes, tinyGraph } from '../test/tiny-graph.ts';
import { prepareGraph } from './prepare.ts';

const WRITTEN: Readonly<Record<number, string>> = {
  3: '7ae7b97784945cac34ae8e22534192b72171de920d21ec178c0792b61a8a39f4',
};

const SIDE = 64;
const ENDS = { inputName: 'input', outputName: 'output' };
const EXPORTED = { width: SIDE, height: SIDE };
const PIXELS = {
  normalisation: { mean: [0.5, 0.4, 0.3], std: [1, 0.9, 0.8] },
  colourOrder: 'bgr',
  activation: 'sigmoid',
} as const;

type Preparation = Parameters<typeof prepareGraph>[1];

/** Not measured, only the same each time. */
const quantise: Preparation['quantise'] = float32 => {
  const { measured } = planQuantisation(float32, { inputIsExact: true });
  const ranges = new Map(measured.map((name, at) => [name, [-at / 8, 1 + at / 4] as const]));
  return { ranges, float32: new Set(), input: { scale: 1 / 255, zeroPoint: 0 } };
};

const CASES: readonly (readonly [source: Graph, preparation: Partial<Preparation>])[] = [
  [tinyGraph({ side: SIDE }), { precision: 'fp32' }],
  [tinyGraph({ side: SIDE }), { precision: 'fp32', wanted: { width: 96, height: 32 } }],
  [tinyGraph({ side: SIDE, sizes: 'computed', free: true }), { precision: 'fp32' }],
  [tinyGraph({ side: SIDE, half: true }), { precision: 'fp32' }],
  [tinyGraph({ side: SIDE, half: true }), { precision: 'fp16' }],
  [tinyGraph({ side: SIDE, half: true }), { precision: 'fp16', pixels: PIXELS }],
  [tinyGraph({ side: SIDE }), { precision: 'int8', quantise }],
];

test('a revision always writes the same bytes, so a change of the passes has another number', t => {
  const hash = createHash('sha256');
  for (const [source, preparation] of CASES) {
    const given = { ...ENDS, exported: EXPORTED, wanted: EXPORTED, precision: 'fp32' } as const;
    hash.update(graphBytes(prepareGraph(source, { ...given, ...preparation })));
  }
  hash.update(graphBytes(mendDeformableConvolutions(stockDeformable()).graph));
  t.is(
    hash.digest('hex'),
    WRITTEN[PREPARER_REVISION] ?? 'a digest for this revision',
    'The prepared bytes changed. Raise PREPARER_REVISION in serving/prepared/prepared-cache.ts, ' +
      'and write the new digest here beside it: a node would go on with files of the old passes.',
  );
});
