/**
 * Some hundred awkward graphs that lie beside the checkout, each with three channels in: what ONNX
 * Runtime loads gives a matte, the others say why not. Those that take memory or time without end
 * are left to the bounded child of model-tools/probing.
 */
import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { LAYOUTS, type Layout } from '../../models/prepared-model.ts';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { compareAlphas, PROBE_SPEC } from '../choice/execution-provider.ts';
import { type SessionSpec, shortenNativeError } from '../engine-protocol.ts';
import { LoadedModel } from './loaded-model.ts';
import { InferenceSession } from './onnx-runtime.ts';

const FOLDER = fileURLToPath(
  new URL('../../../../../shared/research/models/small/', import.meta.url),
);
const UNBOUNDED = /^hostile-(constant|expand|loop|recursion|billion)/;
const SIDE_PX = 128;

const REFUSED: Readonly<Record<string, RegExp>> = {
  'external-(absolute|proc)': /Absolute path not allowed for external data/,
  'external-(deep-)?traversal': /escapes model directory/,
  'external-missing': /does not exist: .*not-there\.data/,
  'external-(negative|past-end)': /are out of bounds or can not be read/,
  float64: /Could not find an implementation for Conv/,
  'four-channels|one-channel': /has [14] channels, not 3/,
  'trimap|two-sizes-in': /inputs are input, (trimap|ratio), not input/,
  'hostile-circle': /not acyclic/,
  'hostile-(dims|negative-dims)': /declares a size|Out of bounds dimensions/,
  'hostile-twice': /two nodes with same node name/,
  'hostile-input-dims': /out of range/,
  'ir-99|opset-27': /failed: Unsupported model IR version/,
  'not-.*|ort-format': /Protobuf parsing failed|does not have a graph/,
  'optional-out|sequence-out': /is no tensor/,
  'out-classes4|out-rgba': /1x4x128x128: no matte/,
  'out-nan': /not numbers/,
  'unknown-op': /Bespoke.* is not a registered/,
};

const ACTIVATIONS: Readonly<Record<string, SessionSpec['activation']>> = {
  ...{ logits: 'sigmoid', 'sigmoid-twice': 'logit' },
  ...{ 'out-255': 'scale255', 'uint8-both': 'scale255', 'out-tanh': 'signed' },
};

/** They say something else than the others of the picture. */
const OTHERS = /^(external-self|out-(constant|minmax|int64|softmax2|tanh)|deformconv-.*|span-.*)$/;

async function specOf(name: string): Promise<SessionSpec> {
  const path = `${FOLDER}${name}.onnx`;
  const session = await InferenceSession.create(path, {
    intraOpNumThreads: 1,
    logSeverityLevel: 4,
  });
  const [input] = session.inputMetadata;
  // The best of several is the last but of one.
  const output = session.outputMetadata.at(name === 'outputs-first-best' ? 0 : -1);
  if (!input?.isTensor || !output) throw new Error('no tensor goes in, or nothing comes out');
  const { shape, type } = input;
  const isLayout = (layout: Layout) =>
    layout.length === shape.length && shape[layout.indexOf('c')] === 3;
  const layout = LAYOUTS.find(isLayout) ?? 'nchw';
  const sideOf = (axis: string) => {
    const dim = shape[layout.indexOf(axis)];
    return typeof dim === 'number' ? dim : SIDE_PX;
  };
  return {
    ...{ ...PROBE_SPEC, path, provider: 'cpu', allowCpuNodes: true },
    ...{ inputName: input.name, outputName: output.name },
    ...{ inputWidth: sideOf('w'), inputHeight: sideOf('h') },
    normalisation: { mean: [127.5, 127.5, 127.5], std: [127.5, 127.5, 127.5] },
    activation: ACTIVATIONS[name] ?? 'none',
    form: {
      inputType: type === 'float16' || type === 'uint8' ? type : 'float32',
      ...{ layout, fit: 'stretch', inverted: name === 'out-inverse' },
    },
  };
}

async function matteOf(name: string) {
  const spec = await specOf(name);
  const { model } = await LoadedModel.load(spec);
  const picture = drawCheckPicture(spec.inputWidth, spec.inputHeight);
  const { alpha, size } = await model.run(picture);
  return { alpha: Uint8Array.from(alpha), size };
}

test('awkward graphs run as they are, or say why not', async t => {
  if (!existsSync(FOLDER)) {
    t.log(`NOT RUN: there is no ${FOLDER}`);
    return t.pass();
  }
  const plain = await matteOf('plain');
  const names = readdirSync(FOLDER).flatMap(file => file.match(/^(.*)\.onnx$/)?.[1] ?? []);
  t.true(names.length > 90);
  for (const name of names.filter(found => !UNBOUNDED.test(found))) {
    const refusal = Object.entries(REFUSED).find(([of]) => new RegExp(`^(${of})$`).test(name));
    if (refusal !== undefined) {
      const failed = await t.throwsAsync(matteOf(name), undefined, name);
      t.regex(shortenNativeError(failed?.message ?? ''), refusal[1], name);
      continue;
    }
    const { alpha, size } = await matteOf(name);
    t.is(alpha.length, size.width * size.height, name);
    if (OTHERS.test(name) || size.width !== SIDE_PX) continue;
    t.true(compareAlphas(plain.alpha, alpha).mean < 1, `${name} shows what plain shows`);
  }
});
