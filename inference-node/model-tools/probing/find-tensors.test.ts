import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { matteOutputs, pictureInput } from './find-tensors.ts';

type Shape = readonly (number | string)[];

function tensor(shape: Shape, type = 'float32', name = 'x') {
  return { name, isTensor: true, type, shape };
}

test('a graph without a picture in colour as its input is refused with the cause', t => {
  for (const [inputs, expected] of [
    [[], /takes nothing: not one picture/],
    [[tensor([1, 1, 64, 64])], /: not the three channels of a picture in colour/],
    [[tensor([1, 2, 64, 64])], /: not the three channels/],
    [[tensor([1, 64, 64, 64])], /: not the three channels/],
    [[tensor([1, 3])], /x: float32 \[1, 3\]: no picture/],
    [[tensor([1, 3, 8, 64, 64])], /: no picture/],
    [[tensor([1, 3, 64, 64], 'float64')], /float64 \[1, 3, 64, 64\]: not numbers of a picture/],
    [[{ name: 'all', isTensor: false }], /all: no tensor/],
    [[tensor([16, 3, 64, 64])], /16 pictures at once/],
    [[tensor([1, 3, 2 ** 30, 64])], /a picture of over 8192 a side/],
    [[tensor([1, 3, 64, 64]), tensor([1])], /64\]; x: float32 \[1\]: not one picture/],
  ] as const) {
    throwsWith(t, () => pictureInput(inputs), isModelError('prepare', expected));
  }
});

test('order of axes, type and open sizes are read from what the runtime says', t => {
  for (const [shape, layout, width, height, channels] of [
    [[1, 3, 20, 30], 'nchw', 30, 20, 3],
    [[4, 3, 20, 30], 'nchw', 30, 20, 3],
    [[1, 4, 20, 30], 'nchw', 30, 20, 4],
    [[1, 20, 30, 3], 'nhwc', 30, 20, 3],
    [[1, 20, 30, 4], 'nhwc', 30, 20, 4],
    [[3, 20, 30], 'chw', 30, 20, 3],
    [[4, 20, 30], 'chw', 30, 20, 4],
    [[20, 30, 3], 'hwc', 30, 20, 3],
    [['b', 3, 'h', 'w'], 'nchw', null, null, 3],
    [['b', 'h', 'w', 3], 'nhwc', null, null, 3],
    [['b', 'c', 'h', 'w'], 'nchw', null, null, null],
    [[1, 3, -1, 30], 'nchw', 30, null, 3],
    [[], 'nchw', null, null, null],
  ] as const) {
    const read = pictureInput([tensor(shape, 'uint8')]);
    t.like(read, { type: 'uint8', layout, width, height, channels }, shape.join());
  }
});

test('an output is taken for a matte by its shape, or by the requested name', t => {
  const features = tensor([1, 64, 32, 32], 'float32', 'features');
  const colours = tensor([1, 3, 32, 32], 'float32', 'fgr');
  const alpha = tensor([1, 1, 32, 32], 'float32', 'pha');
  const names = matteOutputs([features, colours, alpha]).map(({ name }) => name);
  t.deepEqual(names, ['pha']);
  t.deepEqual(matteOutputs([alpha, colours], 'fgr'), [colours]);
  throwsWith(
    t,
    () => matteOutputs([alpha], 'b'),
    isModelError('settings', /outputs are pha: float32/),
  );
  throwsWith(
    t,
    () => matteOutputs([features]),
    isModelError('prepare', /no output .* features: float/),
  );
  throwsWith(
    t,
    () => matteOutputs([{ name: 'm', isTensor: false }]),
    isModelError('prepare', /m: no t/),
  );
  for (const [shape, isMatte] of [
    [[8, 8], true],
    [[1, 8, 8], true],
    [[8, 8, 1], true],
    [[1, 2, 8, 8], true],
    [[1, 8, 8, 1], true],
    [['h', 'w'], true],
    [[8], false],
    [[1, 4, 8, 8], false],
    [[3, 8, 8], false],
    [[1, 1, 1, 8, 8], false],
  ] as const) {
    const found = matteOutputs([tensor(shape, 'float32', 'shape'), alpha]);
    t.is(found.length, isMatte ? 2 : 1, shape.join());
  }
});
