import type { Size } from '@matting/proto/contract/finishing.ts';
import test from 'ava';
import { sizeInInput } from '../../models/input-size.ts';
import { FITS, type GraphForm } from '../../models/prepared-model.ts';
import { withTrimap } from '../../models/trimap.ts';
import {
  ElementType,
  encodeModel,
  float32Tensor,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
  type Tensor,
  text,
} from '../../onnx/graph.ts';
import { ModelProto, NodeProto, ValueInfoProto } from '../../test/onnx-messages.ts';
import { PROBE_SPEC } from '../choice/gpu-probe-graph.ts';
import { type SessionSpec, shortenNativeError } from '../engine-protocol.ts';
import { LoadedModel } from './loaded-model.ts';

const [WIDTH, HEIGHT] = [6, 4];
const PIXELS = WIDTH * HEIGHT;

interface TinyForm {
  readonly inputType?: GraphForm['inputType'];
  readonly layout?: GraphForm['layout'];
  readonly images?: number;
  readonly channels?: number;
  /** null: any. */
  readonly size?: readonly [width: number | null, height: number | null];
  /** From `m`, a pixel's red from 0 to 1, [1, 1, H, W], to `out`. */
  readonly nodes?: readonly GraphNode[];
  readonly constants?: Readonly<Record<string, Tensor>>;
  readonly outputType?: number;
}

const one = (value: number) => float32Tensor([value], []);
const CONSTANTS = { zero: one(0), half: one(0.5), two: one(2), eight: one(8), all: one(255) };

/** If nothing normalises the input, red is 255 times as large. */
function tinyForm(form: TinyForm): Buffer {
  const { inputType = 'float32', layout = 'nchw', images = 1, channels = 3 } = form;
  const { nodes = [nodeOf('Identity', ['m'], 'out')], constants = {} } = form;
  const [width, height] = form.size ?? [WIDTH, HEIGHT];
  const sides: Record<string, number | null> = { n: images, c: channels, h: height, w: width };
  const weights = [1 / 255, ...new Array<number>(channels - 1).fill(0)];
  const toPlanes = layout.endsWith('c') ? [0, 3, 1, 2] : [0, 1, 2, 3];
  const value = (name: string, elementType: number, dims: readonly (number | null)[]) => ({
    ...{ name, elementType, dims },
  });
  const pieces = encodeModel({
    irVersion: 8,
    opsets: [{ domain: '', version: 17 }],
    inputs: [
      value(
        'in',
        ElementType[inputType],
        [...layout].map(axis => sides[axis] ?? null),
      ),
    ],
    outputs: [value('out', form.outputType ?? ElementType.float32, [])],
    initialisers: new Map(
      Object.entries({
        ...CONSTANTS,
        ...{ red: float32Tensor(weights, [1, channels, 1, 1]), first: int64Tensor([0], [1]) },
        ...constants,
      }),
    ),
    nodes: [
      nodeOf('Cast', ['in'], 'float', [integer('to', ElementType.float32)]),
      layout.length === 4
        ? nodeOf('Identity', ['float'], 'pictures')
        : nodeOf('Unsqueeze', ['float', 'first'], 'pictures'),
      nodeOf('Transpose', ['pictures'], 'planes', [integers('perm', toPlanes)]),
      nodeOf('Conv', ['planes', 'red'], 'm'),
      ...nodes,
    ],
  });
  return Buffer.concat([...pieces]);
}

interface Given extends TinyForm, Partial<Omit<GraphForm, 'inputType' | 'layout'>> {
  readonly activation?: SessionSpec['activation'];
  readonly spec?: Partial<SessionSpec>;
  readonly bytes?: Uint8Array;
}

async function load(given: Given): Promise<LoadedModel> {
  const { inputType = 'float32', layout = 'nchw', fit = 'stretch', inverted = false } = given;
  const spec: SessionSpec = {
    ...{ ...PROBE_SPEC, provider: 'cpu', allowCpuNodes: true },
    ...{ inputName: 'in', outputName: 'out', inputWidth: WIDTH, inputHeight: HEIGHT },
    normalisation: { mean: [0, 0, 0], std: [1, 1, 1] },
    activation: given.activation ?? 'none',
    form: { inputType, layout, fit, inverted, ...(given.trimap && { trimap: true }) },
    ...given.spec,
  };
  return (await LoadedModel.load(spec, given.bytes ?? tinyForm(given))).model;
}

/** Reds of 0 to 255 in even steps. Green and blue must not count. */
function pictureOf({ width, height }: Size): Uint8Array {
  const pixels = width * height;
  const rgb = new Uint8Array(3 * pixels).fill(77);
  for (let i = 0; i < pixels; i++) rgb[3 * i] = Math.round((255 * i) / (pixels - 1));
  return rgb;
}

const redsOf = (rgb: Uint8Array) => rgb.filter((_, i) => i % 3 === 0);
const PICTURE = pictureOf({ width: WIDTH, height: HEIGHT });
const REDS = [...redsOf(PICTURE)];

const cast = (to: number) => [nodeOf('Cast', ['m'], 'out', [integer('to', to)])];
const shaped = (dims: readonly number[]) => ({
  nodes: [nodeOf('Reshape', ['m', 'shape'], 'out')],
  constants: { shape: int64Tensor(dims, [dims.length]) },
});
const scaled = [nodeOf('Mul', ['m', 'all'], 's'), nodeOf('Round', ['s'], 'r')];
const scaledTo = (to: number) => [...scaled, nodeOf('Cast', ['r'], 'out', [integer('to', to)])];
const logits = (out = 'out') => [
  ...[nodeOf('Sub', ['m', 'half'], 'd'), nodeOf('Mul', ['d', 'eight'], out)],
];
const classes = (one: string, other: string, axis = 1) =>
  nodeOf('Concat', [one, other], 'out', [integer('axis', axis)]);
const background = nodeOf('Sub', ['one', 'm'], 'b');
const ONE = { one: one(1) };

const sigmoid = (red: number) => 255 / (1 + Math.exp(4 - (8 * red) / 255));
const isSame = (red: number) => red;

const FORMS: Readonly<Record<string, readonly [given: Given, expected?: (red: number) => number]>> =
  {
    plain: [{}],
    'bytes in': [
      { inputType: 'uint8', spec: { normalisation: { mean: [9, 9, 9], std: [2, 2, 2] } } },
    ],
    'halves in': [{ inputType: 'float16' }],
    'channels last': [{ layout: 'nhwc' }],
    'bytes, channels last, no axis of pictures': [{ layout: 'hwc', inputType: 'uint8' }],
    'no axis of pictures': [{ layout: 'chw' }],
    'three at once': [{ images: 3 }],
    'two at once, [2, H, W]': [{ images: 2, ...shaped([2, HEIGHT, WIDTH]) }],
    'no shape known': [{ size: [null, null] }],
    '[1, H, W]': [shaped([1, HEIGHT, WIDTH])],
    '[H, W]': [shaped([HEIGHT, WIDTH])],
    '[1, H, W, 1]': [shaped([1, HEIGHT, WIDTH, 1])],
    '[1, H, W, 1] of channels last': [{ layout: 'nhwc', ...shaped([1, HEIGHT, WIDTH, 1]) }],
    '[H, W, 1]': [shaped([HEIGHT, WIDTH, 1])],
    'halves out': [{ nodes: cast(ElementType.float16), outputType: ElementType.float16 }],
    'doubles out': [{ nodes: cast(ElementType.float64), outputType: ElementType.float64 }],
    'bytes out': [
      {
        ...{ nodes: scaledTo(ElementType.uint8), outputType: ElementType.uint8 },
        activation: 'scale255',
      },
    ],
    'int64 out': [
      {
        ...{ nodes: scaledTo(ElementType.int64), outputType: ElementType.int64 },
        activation: 'scale255',
      },
    ],
    'a mask of 0 and 1': [
      { nodes: [nodeOf('Greater', ['m', 'half'], 'out')], outputType: ElementType.bool },
      red => (red > 127.5 ? 255 : 0),
    ],
    sigmoid: [{ nodes: logits(), activation: 'sigmoid' }, sigmoid],
    'sigmoid twice': [{ nodes: [nodeOf('Sigmoid', ['m'], 'out')], activation: 'logit' }],
    '-1 to 1': [
      {
        nodes: [nodeOf('Mul', ['m', 'two'], 't'), nodeOf('Sub', ['t', 'one'], 'out')],
        ...{ constants: ONE, activation: 'signed' },
      },
    ],
    'the background': [
      { nodes: [nodeOf('Sub', ['one', 'm'], 'out')], constants: ONE, inverted: true },
    ],
    'logits of two classes': [
      {
        nodes: [...logits('subject'), nodeOf('Mul', ['m', 'zero'], 'n'), classes('n', 'subject')],
        activation: 'softmax',
      },
      sigmoid,
    ],
    'two classes': [{ nodes: [background, classes('b', 'm')], constants: ONE }],
    'two classes, last': [
      {
        nodes: [
          ...[background, nodeOf('Concat', ['b', 'm'], 'both', [integer('axis', 1)])],
          nodeOf('Transpose', ['both'], 'out', [integers('perm', [0, 2, 3, 1])]),
        ],
        ...{ constants: ONE, layout: 'nhwc' },
      },
    ],
    'rescaled by its least and most, where a flat picture is 0/0': [
      {
        nodes: [
          nodeOf('ReduceMin', ['m'], 'least'),
          nodeOf('ReduceMax', ['m'], 'most'),
          nodeOf('Sub', ['m', 'least'], 'over'),
          nodeOf('Sub', ['most', 'least'], 'span'),
          nodeOf('Div', ['over', 'span'], 'out'),
        ],
      },
    ],
  };

test('graphs of every form give the matte of the picture', async t => {
  for (const [name, [given, expected = isSame]] of Object.entries(FORMS)) {
    const model = await load(given);
    const { alpha, size } = await model.run(PICTURE);
    t.deepEqual(size, { width: WIDTH, height: HEIGHT }, name);
    const differences = REDS.map((red, i) => Math.abs(expected(red) - (alpha[i] ?? -9)));
    // Halves have 11 bits, and two sigmoids lose some.
    t.true(Math.max(...differences) <= 1, `${name}: ${alpha.join()}`);
    t.is(alpha.length, PIXELS);
  }
});

test('blue comes first where the model says so, and each channel has its own numbers', async t => {
  const normalisation = { mean: [0, 0, 55], std: [1, 1, 2] } as const;
  for (const layout of ['nchw', 'nhwc'] as const) {
    const model = await load({ layout, spec: { colourOrder: 'bgr', normalisation } });
    const { alpha } = await model.run(PICTURE);
    t.deepEqual([...new Set(alpha)], [(77 - 55) / 2], layout);
  }
});

const RESIZE = (factor: number) => ({
  nodes: [
    nodeOf('Resize', ['m', '', 'scales'], 'out', [
      text('mode', 'linear'),
      text('coordinate_transformation_mode', 'half_pixel'),
    ]),
  ],
  constants: { scales: float32Tensor([1, 1, factor, factor], [4]) },
});

/** Where the picture is red, the alpha shows a pixel's position in the input. */
function placing(size: Size) {
  const pixels = size.width * size.height;
  const places = Array.from({ length: pixels }, (_, i) => (i + 1) / 255);
  return {
    nodes: [nodeOf('Mul', ['m', 'places'], 'out')],
    constants: { places: float32Tensor(places, [1, 1, size.height, size.width]) },
    size: [size.width, size.height] as const,
    spec: { inputWidth: size.width, inputHeight: size.height },
  };
}

test('a letterbox is black around the picture, and its matte is that of the picture', async t => {
  const input = { width: 12, height: 12 };
  for (const [fit, left, top, picture] of [
    ['letterbox', 0, 3, { width: 400, height: 200 }],
    ['letterbox', 3, 0, { width: 200, height: 400 }],
    ['top-left', 0, 0, { width: 400, height: 200 }],
    ['top-left', 0, 0, { width: 200, height: 400 }],
  ] as const) {
    for (const layout of ['nchw', 'hwc'] as const) {
      const size = sizeInInput({ ...input, fit }, picture);
      const model = await load({ fit, layout, ...placing(input) });
      const rgb = new Uint8Array(3 * size.width * size.height).fill(255);
      const placeOf = (i: number) =>
        1 + (top + Math.floor(i / size.width)) * input.width + left + (i % size.width);
      const { alpha, size: found } = await model.run(rgb, size);
      t.deepEqual(found, size);
      t.deepEqual(
        [...alpha],
        Array.from({ length: 72 }, (_, i) => placeOf(i)),
        fit,
      );
      // Only the first corner is set: nothing of the picture before remains.
      const { alpha: marked } = await model.run(rgb.fill(0, 3), size);
      t.deepEqual([...marked].filter(Boolean), [placeOf(0)]);
    }
  }
});

test('the input is padded with the value of black, not with zero', async t => {
  const model = await load({
    ...{ fit: 'top-left', ...placing({ width: 6, height: 6 }) },
    // The least value must be black's.
    nodes: [nodeOf('ReduceMin', ['m'], 'least'), nodeOf('Sub', ['m', 'least'], 'out')],
    spec: {
      ...{ inputWidth: 6, inputHeight: 6 },
      normalisation: { mean: [100, 100, 100], std: [1, 1, 1] },
    },
  });
  const { alpha } = await model.run(new Uint8Array(3 * 6 * 3).fill(50), { width: 6, height: 3 });
  t.deepEqual([...new Set(alpha)], [50]);
});

test('a matte of another size shows the same, its edges between two pixels too', async t => {
  for (const [factor, fit, expected] of [
    [2, 'stretch', { width: 32, height: 32 }],
    [0.5, 'stretch', { width: 8, height: 8 }],
    // Half the size makes 5.5 of 11 of 16 rows.
    [0.5, 'letterbox', { width: 8, height: 6 }],
    [0.75, 'top-left', { width: 12, height: 8 }],
  ] as const) {
    const side = { width: 16, height: 16 };
    const size = sizeInInput({ ...side, fit }, { width: 1600, height: 1100 });
    const spec = { inputWidth: 16, inputHeight: 16 };
    const model = await load({ fit, spec, size: [16, 16], ...RESIZE(factor) });
    const row = (y: number) => Math.round((255 * (y + 0.5)) / size.height);
    const rgb = new Uint8Array(3 * size.width * size.height);
    for (let i = 0; i < rgb.length; i++) rgb[i] = row(Math.floor(i / 3 / size.width));
    const { alpha, size: found } = await model.run(rgb, size);
    t.deepEqual(found, expected);
    // Away from the black padding.
    for (let y = 1; y < found.height - 1; y++) {
      const shown = alpha[y * found.width + found.width / 2] ?? -9;
      const exact = (255 * (y + 0.5)) / found.height;
      t.true(Math.abs(shown - exact) <= 2, `${factor} ${fit} ${y}: ${shown}, not ${exact}`);
    }
  }
});

test('one engine runs pictures of different sizes by their short side', async t => {
  const sides = { multipleOf: 2, max: 16 };
  const terms = { width: 6, height: 6, fit: 'short-side', sides } as const;
  const form = { inputType: 'float32', layout: 'nchw', inverted: false, ...terms } as const;
  const model = await load({ size: [null, null], spec: { inputHeight: 6, form } });
  for (const [picture, expected] of [
    [
      { width: 300, height: 400 },
      { width: 6, height: 8 },
    ],
    [
      { width: 400, height: 300 },
      { width: 8, height: 6 },
    ],
    [
      { width: 3, height: 3 },
      { width: 6, height: 6 },
    ],
    [
      { width: 100, height: 400 },
      { width: 4, height: 16 },
    ],
    [
      { width: 4000, height: 1 },
      { width: 16, height: 2 },
    ],
  ] as const) {
    const size = sizeInInput(terms, picture);
    t.deepEqual(size, expected);
    const rgb = pictureOf(size);
    const { alpha, size: found } = await model.run(rgb, size);
    t.deepEqual(found, size);
    t.deepEqual([...alpha], [...redsOf(rgb)]);
  }
});

test('no side is below the least that a model of any size runs with', t => {
  const terms = { width: 256, height: 256, fit: 'short-side' } as const;
  const picture = { width: 3000, height: 60 };
  const sized = (min?: number) => {
    const sides = { multipleOf: 32, ...(min && { min }), max: 512 };
    return sizeInInput({ ...terms, sides }, picture);
  };
  t.deepEqual(sized(), { width: 512, height: 32 });
  t.deepEqual(sized(64), { width: 512, height: 64 });
  t.deepEqual(sized(70), { width: 512, height: 96 });
});

test('a picture is inside of every fit, its own shape but for stretching', t => {
  for (const fit of FITS) {
    for (const [width, height] of [
      [1, 1],
      [5000, 3],
      [3, 5000],
      [1023, 1025],
    ] as const) {
      const terms = { width: 1024, height: 768, fit };
      const size = sizeInInput(terms, { width, height });
      t.true(size.width >= 1 && size.width <= 1024 && size.height >= 1 && size.height <= 1024, fit);
    }
  }
});

test('a graph that gives no matte, or takes no picture, is refused with the cause', async t => {
  const nan = [nodeOf('Log', ['neg'], 'out')];
  for (const [given, message] of [
    [{ nodes: [nodeOf('Sub', ['m', 'two'], 'neg'), ...nan] }, /not numbers/],
    [
      { nodes: [nodeOf('Div', ['two', 'zero'], 'i'), nodeOf('Add', ['m', 'i'], 'out')] },
      /not numbers/,
    ],
    [
      { nodes: [nodeOf('Concat', ['m', 'm', 'm', 'm'], 'out', [integer('axis', 1)])] },
      /1x4x4x6: no matte/,
    ],
    [shaped([PIXELS]), /float32 24: no matte/],
    [{ channels: 4 }, /has 4 channels, not 3/],
    [{ trimap: true }, /has 3 channels, not 4/],
    [{ channels: 4, trimap: true }, /72 bytes of pixels where the model takes 96/],
    [{ images: 64 }, /takes 64 at once/],
    [{ spec: { inputWidth: 8 } }, /takes pictures of 6x4, not 8x4/],
    [{ bytes: tinyForm({ inputType: 'uint8' }) }, /input is uint8, not float32/],
    [{ bytes: tinyForm({ layout: 'hwc' }) }, /\[4, 6, 3\], not nchw/],
    [{ spec: { outputName: 'mat\u001b[2Jte' } }, /without mat\\u\{1b\}\[2Jte$/],
  ] as const) {
    const failed = await t.throwsAsync(async () => (await load(given)).run(PICTURE));
    t.regex(shortenNativeError(failed.message), message);
  }
  const boxed = await load({ fit: 'letterbox' });
  const [wide, flat] = [
    { width: WIDTH + 1, height: 1 },
    { width: WIDTH, height: 1 },
  ];
  await t.throwsAsync(boxed.run(pictureOf(wide), wide), { message: /7x1 is no picture in/ });
  await t.throwsAsync(boxed.run(PICTURE, flat), { message: /72 bytes of pixels .* takes 18/ });
});

test('other outputs than the matte may be of any kind; as the matte they are refused', async t => {
  const model = ModelProto.decode(tinyForm({}));
  const { graph } = model;
  const several = { opType: 'SequenceConstruct', input: ['m'], output: ['several'] };
  graph?.node.push(NodeProto.fromPartial(several));
  const tensorType = { elemType: ElementType.float32 };
  const type = { sequenceType: { elemType: { tensorType } } };
  graph?.output.push(ValueInfoProto.fromPartial({ name: 'several', type }));
  const bytes = ModelProto.encode(model).finish();
  const { alpha } = await (await load({ bytes })).run(PICTURE);
  t.deepEqual([...alpha], REDS);
  await t.throwsAsync(load({ bytes, spec: { outputName: 'several' } }), {
    message: /several is no tensor/,
  });
});

const only = (channel: number) => {
  const weights = [0, 1, 2, 3].map(other => Number(other === channel));
  return { constants: { red: float32Tensor(weights, [1, 4, 1, 1]) } };
};

test('a trimap is the fourth channel, 0 to 1, in every form of input', async t => {
  const bytes = Uint8Array.from({ length: PIXELS }, (_, i) => [0, 128, 255][i % 3] ?? 0);
  const picture = withTrimap(PICTURE, bytes);
  const own = { mean: [127.5, 0, 0], std: [127.5, 255, 255] } as const;
  const four = { channels: 4, trimap: true } as const;
  for (const form of [
    {},
    { layout: 'hwc' },
    { inputType: 'float16', layout: 'nhwc' },
    { images: 2, layout: 'nchw' },
  ] as const) {
    const shown = async (channel: number, given: Given) => {
      const normalised = { ...four, ...form, ...only(channel), ...given };
      const model = await load({ ...normalised, spec: { normalisation: own, ...given.spec } });
      return [...(await model.run(picture)).alpha];
    };
    t.deepEqual(await shown(3, {}), [...bytes]);
    t.deepEqual(await shown(1, {}), new Array(PIXELS).fill(77));
    const reds = await shown(0, { activation: 'signed' });
    t.true(
      reds.every((red, i) => Math.abs(red - REDS[i]!) <= 1),
      reds.join(),
    );
    const swapped = { activation: 'signed', spec: { colourOrder: 'bgr' } } as const;
    t.deepEqual(await shown(2, swapped), reds);
  }
  const boxed = { ...four, ...only(3), fit: 'letterbox', size: [8, 8] } as const;
  const model = await load({ ...boxed, spec: { inputWidth: 8, inputHeight: 8 } });
  const size = { width: WIDTH, height: HEIGHT };
  t.deepEqual([...(await model.run(picture, size)).alpha], [...bytes]);
});
