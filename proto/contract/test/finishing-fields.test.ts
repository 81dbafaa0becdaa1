import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { InputFormat, Finishing as ProtoFinishing } from '../../gen/matting/v1/matte_service.ts';
import { ContractError, type ErrorCode } from '../errors.ts';
import { parseFinishing } from '../finishing/fields.ts';
import { framePixelsUnseen, frameRange, frameRefusal, requireFrame } from '../finishing/frame.ts';
import { parseColour } from '../finishing/measures.ts';
import { FINISHING_FIELDS, type FinishingField } from '../finishing/table.ts';
import { type CropMargins, type Finishing, SHADOW, type Size } from '../finishing.ts';
import { finishingFromProto, finishingToProto } from '../finishing-wire.ts';
import { FRAME_PIXELS_MAX } from '../limits.ts';

type Texts = Partial<Record<FinishingField, string>>;

type Context = Parameters<typeof parseFinishing>[1];

const CONTEXT: Context = { outputFormat: 'png', backgroundFile: false };

function parse(texts: Texts, context: Partial<Context> = {}) {
  const given = new Map(Object.entries(texts) as [FinishingField, string][]);
  return parseFinishing(given, { ...CONTEXT, ...context });
}

function refusal(texts: Texts, context: Partial<Context> = {}): ContractError {
  try {
    parse(texts, context);
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    return error;
  }
  assert.fail(`not refused: ${JSON.stringify(texts)}`);
}

const px = (value: number) => ({ px: value });
const percent = (value: number) => ({ percent: value });
const NONE = { top: px(0), right: px(0), bottom: px(0), left: px(0) };

const MEANT: readonly [Texts, Finishing | undefined][] = [
  [{}, undefined],
  [{ background: 'transparent' }, undefined],
  [{ background: '#ff000000' }, undefined],
  [{ background: 'white' }, { background: { kind: 'colour', rgba: 0xffffffff } }],
  [{ background: 'ReBeccaPurple' }, { background: { kind: 'colour', rgba: 0x663399ff } }],
  [{ background: '#fff' }, { background: { kind: 'colour', rgba: 0xffffffff } }],
  [{ background: 'F0A8' }, { background: { kind: 'colour', rgba: 0xff00aa88 } }],
  [{ background_url: 'https://a.example/b.jpg' }, { background: { kind: 'picture' } }],
  [{ channels: 'rgba' }, undefined],
  [{ crop: 'false' }, undefined],
  [{ crop: 'true' }, { crop: NONE }],
  [{ crop: 'TRUE', crop_margin: '0' }, { crop: NONE }],
  [
    { crop: 'true', crop_margin: '10px' },
    { crop: { top: px(10), right: px(10), bottom: px(10), left: px(10) } },
  ],
  [
    { crop: 'true', crop_margin: '5% 2.5px' },
    { crop: { top: percent(5), right: px(2.5), bottom: percent(5), left: px(2.5) } },
  ],
  [
    { crop: 'true', crop_margin: '1px 2px 3%  0' },
    { crop: { top: px(1), right: px(2), bottom: percent(3), left: px(0) } },
  ],
  [{ scale: '85%' }, { scalePercent: 85 }],
  [{ scale: '010.50%' }, { scalePercent: 10.5 }],
  [{ scale: '100%', position: 'center' }, { scalePercent: 100 }],
  [
    { scale: '90%', position: 'original' },
    { scalePercent: 90, position: 'original' },
  ],
  [
    { output_width: '100', position: '0%' },
    { outputWidth: 100, position: { xPercent: 0, yPercent: 0 } },
  ],
  [
    { output_height: '9', position: '20% 100%' },
    { outputHeight: 9, position: { xPercent: 20, yPercent: 100 } },
  ],
  [{ size_max_megapixels: '0.25' }, { sizeMaxMegapixels: 0.25 }],
  [
    { output_width: '10000', output_height: '5000' },
    { outputWidth: 10_000, outputHeight: 5000 },
  ],
  [{ aspect_ratio: '1:1' }, { aspectRatio: { width: 1, height: 1 } }],
  [{ aspect_ratio: '8:6' }, { aspectRatio: { width: 8 / 6, height: 1 } }],
  [{ aspect_ratio: '1:1.25' }, { aspectRatio: { width: 1, height: 1.25 } }],
  [
    { aspect_ratio: '1:100', position: '0%' },
    { aspectRatio: { width: 1, height: 100 }, position: { xPercent: 0, yPercent: 0 } },
  ],
  [
    { aspect_ratio: '1:1', output_height: '500' },
    { aspectRatio: { width: 1, height: 1 }, outputHeight: 500 },
  ],
  [{ enlarge: 'true' }, undefined],
  [{ enlarge: 'false' }, undefined],
  [{ enlarge: 'false', crop: 'true' }, { crop: NONE }],
  [{ background: 'Original' }, { background: { kind: 'original' } }],
  [{ roi: '0 0 100% 100%' }, undefined],
  [
    { roi: '5px 0% 50%  20px' },
    { region: { left: px(5), top: px(0), right: percent(50), bottom: px(20) } },
  ],
  [{ shadow: 'drop' }, { shadow: SHADOW.absent }],
  [{ shadow: 'DROP', shadow_opacity: '50', shadow_offset: '0% 2' }, { shadow: SHADOW.absent }],
  [
    { shadow: 'drop', shadow_opacity: '100', shadow_blur: '0', shadow_offset: '20 1.5' },
    { shadow: { opacity: 100, blur: 0, offsetX: 20, offsetY: 1.5 } },
  ],
  [
    { enlarge: 'False', scale: '85%' },
    { scalePercent: 85, enlarge: false },
  ],
];

test('fields › the quality is of its format, and its own value counts as absent', t => {
  const quality = (value: string, outputFormat?: 'jpeg' | 'webp' | 'avif') =>
    parse({ quality: value, background: 'white' }, { outputFormat }).finishing?.quality;
  t.deepEqual(
    [quality('90', 'jpeg'), quality('90', 'webp'), quality('80', 'avif')],
    [undefined, undefined, undefined],
  );
  t.deepEqual([quality('80', 'jpeg'), quality('1', 'webp'), quality('90', 'avif')], [80, 1, 90]);
  t.is(quality('90'), 90, 'no format is known yet');
});

test('fields › the own ground is opaque', t => {
  const jpeg = parse({ background: 'original' }, { outputFormat: 'jpeg' });
  t.deepEqual(jpeg.finishing, { background: { kind: 'original' } });
});

test('fields › equal proportions are the same request', t => {
  t.deepEqual(parse({ aspect_ratio: '4:3' }), parse({ aspect_ratio: '8:6' }));
});

for (const [texts, finishing] of MEANT) {
  test(`fields › ${JSON.stringify(texts)} asks for ${JSON.stringify(finishing)}`, t => {
    t.deepEqual(parse(texts), { channels: 'rgba', finishing });
  });
}

const NONSENSE: readonly [FinishingField, ...string[]][] = [
  ['background', '', ' white', 'whit', '#', '#ff', '#fffff', '#fffffff', '#ggg', 'rgb(1,2,3)'],
  ['background', 'constructor', '__proto__', '##fff', 'fff '],
  ['channels', '', 'rgb', 'alphas'],
  ['crop', '', '1', 'yes', 'on'],
  ['crop_margin', '', '1', '-1px', '1px,2px', '1px 2px 3px', '1px 2px 3px 4px 5px', '1em', 'px'],
  ['crop_margin', '1e3px', '501%', '10001px', ' 1px', '1px ', 'NaN%', 'Infinitypx'],
  ['scale', '', '85', '9.9%', '100.1%', '-10%', '%', '1e1%', '85 %'],
  ['position', '', 'left', '101%', '10', '10% 20% 30%', '10%,20%', 'original center'],
  ['size_max_megapixels', '', '0', '0.009', '101', '-1', '1MP', 'Infinity', '1e1'],
  ['output_width', '', '0', '10001', '1.5', '-1', '1px', '1e3'],
  ['output_height', '', '0', '10001', '1.5', '0x10'],
  ['aspect_ratio', '', '1', '1:', ':1', '1:1:1', '0:1', '0.9:1', '101:1', '1:-1', 'square', '1x1'],
  ['enlarge', '', '0', 'no', 'never'],
  ['quality', '', '0', '101', '9.5', '-1', '90%', 'high'],
  ['roi', '', '0 0 1px', '0 0 1px 1px 1px', '0 0 101% 5%', '-1px 0 1px 1px', '0,0,1px,1px'],
  ['shadow', '', 'true', '3D', 'soft'],
  ['shadow_opacity', '', '0', '101', '-1', 'half'],
  ['shadow_blur', '', '21', '-1', '1px'],
  ['shadow_offset', '', '1', '1 2 3', '21 0', '-1 0', '0,2'],
];

const BESIDES: Texts = { crop: 'true', scale: '50%', shadow: 'drop' };

for (const [field, ...values] of NONSENSE) {
  for (const value of values) {
    test(`fields › ${field} ${JSON.stringify(value)} is refused by its name`, t => {
      const { code, fieldErrors, message } = refusal({ ...BESIDES, [field]: value });
      t.deepEqual([code, fieldErrors[0]?.field], ['INVALID_PARAMETER', field]);
      t.true(message.startsWith(`${field} `), message);
    });
  }
}

const URL_TEXT = 'https://a.example/b.jpg';
const EXCLUDED: readonly [Texts, Partial<Context>, ErrorCode, string][] = [
  [{ background: 'red', background_url: URL_TEXT }, {}, 'INVALID_PARAMETER', 'background_url'],
  [{ background: 'red' }, { backgroundFile: true }, 'INVALID_PARAMETER', 'background_file'],
  [{ background: 'transparent' }, { backgroundFile: true }, 'INVALID_PARAMETER', 'background_file'],
  [{ background_url: URL_TEXT }, { backgroundFile: true }, 'INVALID_PARAMETER', 'background_file'],
  [{ channels: 'alpha', background: 'red' }, {}, 'INVALID_PARAMETER', 'channels'],
  [{ channels: 'alpha', background_url: URL_TEXT }, {}, 'INVALID_PARAMETER', 'channels'],
  [{ channels: 'alpha' }, { backgroundFile: true }, 'INVALID_PARAMETER', 'channels'],
  [{ crop_margin: '1px' }, {}, 'INVALID_PARAMETER', 'crop_margin'],
  [{ crop: 'false', crop_margin: '1px' }, {}, 'INVALID_PARAMETER', 'crop_margin'],
  [{ position: 'center' }, {}, 'INVALID_PARAMETER', 'position'],
  [{ crop: 'true', position: '0%' }, {}, 'INVALID_PARAMETER', 'position'],
  [{ output_width: '10000', output_height: '5001' }, {}, 'INVALID_PARAMETER', 'output_height'],
  [{ quality: '70' }, {}, 'INVALID_PARAMETER', 'quality'],
  [{ quality: '90' }, { outputFormat: 'jxl' }, 'INVALID_PARAMETER', 'quality'],
  [{ quality: '70', channels: 'alpha' }, { outputFormat: 'webp' }, 'INVALID_PARAMETER', 'quality'],
  [{ shadow: 'drop', channels: 'alpha' }, {}, 'INVALID_PARAMETER', 'shadow'],
  [{ shadow: 'drop', background: 'original' }, {}, 'INVALID_PARAMETER', 'shadow'],
  [{ channels: 'alpha', background: 'original' }, {}, 'INVALID_PARAMETER', 'channels'],
  [{ background: 'original', background_url: URL_TEXT }, {}, 'INVALID_PARAMETER', 'background_url'],
  [{ shadow_opacity: '50' }, {}, 'INVALID_PARAMETER', 'shadow_opacity'],
  [{ shadow_blur: '1' }, {}, 'INVALID_PARAMETER', 'shadow_blur'],
  [{ shadow_offset: '1 1' }, {}, 'INVALID_PARAMETER', 'shadow_offset'],
  [
    { aspect_ratio: '1:1', output_width: '9', output_height: '9' },
    {},
    'INVALID_PARAMETER',
    'aspect_ratio',
  ],
  [{ aspect_ratio: '1:1', output_width: '8000' }, {}, 'INVALID_PARAMETER', 'aspect_ratio'],
  [{}, { outputFormat: 'jpeg' }, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format'],
  [{ crop: 'true' }, { outputFormat: 'jpeg' }, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format'],
  [{ background: '#fffe' }, { outputFormat: 'jpeg' }, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format'],
  [{ channels: 'alpha' }, { outputFormat: 'jpeg' }, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format'],
];

for (const [texts, context, code, field] of EXCLUDED) {
  test(`fields › ${JSON.stringify(texts)} with ${JSON.stringify(context)} is ${code}`, t => {
    const error = refusal(texts, context);
    t.deepEqual([error.code, error.fieldErrors[0]?.field], [code, field]);
  });
}

test('fields › jpeg, the matte alone and the archive need a node that finishes, whatever else is asked', t => {
  const colour = { kind: 'colour', rgba: 0x000000ff } as const;
  t.deepEqual(parse({ background: 'black' }, { outputFormat: 'jpeg' }).finishing, {
    background: colour,
  });
  const picture = { background: { kind: 'picture' } };
  const file = { outputFormat: 'jpeg', backgroundFile: true } as const;
  t.deepEqual(parse({}, file).finishing, picture);
  t.deepEqual(parse({ background_url: URL_TEXT }, { outputFormat: 'jpeg' }).finishing, picture);
  t.deepEqual(parse({ channels: 'alpha' }), { channels: 'alpha', finishing: {} });
  t.deepEqual(parse({ channels: 'Alpha', background: 'transparent' }).finishing, {});
  t.deepEqual(parse({}, { outputFormat: 'zip' }).finishing, {});
});

test('fields › a colour is read from every way of writing it', t => {
  const byte = fc.integer({ min: 0, max: 255 });
  const two = (value: number) => value.toString(16).padStart(2, '0');
  holds(t, [byte, byte, byte, byte, fc.boolean()], (red, green, blue, alpha, hash) => {
    const rgb = `${hash ? '#' : ''}${two(red)}${two(green)}${two(blue)}`;
    const opaque = red * 2 ** 24 + green * 2 ** 16 + blue * 2 ** 8 + 255;
    assert.equal(parseColour(rgb), opaque);
    assert.equal(parseColour(`${rgb}${two(alpha)}`.toUpperCase()), opaque - 255 + alpha);
  });
});

/** Texts of which many are valid. */
const nearly = fc.oneof(
  fc.string(),
  fc.stringMatching(/^[ 0-9.%px-]{0,12}$/),
  fc.stringMatching(/^#?[0-9a-f]{3,8}$/),
  fc.stringMatching(/^\d{1,4}(\.\d)?(px|%)?( \d{1,3}(px|%)){0,3}$/),
  fc.stringMatching(/^[0-9.]{1,4}:[0-9]{1,3}$/),
  fc.constantFrom('true', 'false', 'alpha', 'rgba', 'center', 'original', 'white', 'transparent'),
);

test('fields › whatever is sent is refused by a name of its own, or passes the wire as it was read', t => {
  const sent = fc.dictionary(fc.constantFrom(...FINISHING_FIELDS), nearly, { maxKeys: 4 });
  holds(
    t,
    [sent],
    texts => {
      let parsed: ReturnType<typeof parse>;
      try {
        parsed = parse(texts);
      } catch (error) {
        assert.ok(error instanceof ContractError && error.code === 'INVALID_PARAMETER');
        assert.ok(Object.hasOwn(texts, error.fieldErrors[0]?.field ?? ''));
        return;
      }
      const { finishing = {} } = parsed;
      if (finishing.background?.kind === 'picture') return;
      assert.deepEqual(finishingFromProto(finishingToProto(finishing)), finishing);
    },
    { numRuns: 2000 },
  );
});

const amount = fc.double({ min: 0, max: 500, noNaN: true }).map(Math.abs);
const length = fc.oneof(fc.record({ px: amount }), fc.record({ percent: amount }));
const share = fc.double({ min: 0, max: 100, noNaN: true }).map(Math.abs);
const finishings: fc.Arbitrary<Finishing> = fc.record(
  {
    region: fc.record({ left: length, top: length, right: length, bottom: length }),
    crop: fc.record({ left: length, top: length, right: length, bottom: length }),
    scalePercent: fc.double({ min: 10, max: 100, noNaN: true }),
    position: fc.oneof(
      fc.constant('original' as const),
      fc.record({ xPercent: share, yPercent: share }),
    ),
    outputWidth: fc.integer({ min: 1, max: 5000 }),
    outputHeight: fc.integer({ min: 1, max: 10_000 }),
    sizeMaxMegapixels: fc.double({ min: 0.01, max: 100, noNaN: true }),
    background: fc.record({
      kind: fc.constant('colour' as const),
      rgba: fc.integer({ min: 0, max: 0xffffffff }),
    }),
    enlarge: fc.constant(false as const),
    quality: fc.integer({ min: 1, max: 100 }),
    shadow: fc.record({
      opacity: fc.double({ min: 1, max: 100, noNaN: true }),
      blur: fc.double({ min: 0, max: 20, noNaN: true }).map(Math.abs),
      offsetX: fc.double({ min: 0, max: 20, noNaN: true }).map(Math.abs),
      offsetY: fc.double({ min: 0, max: 20, noNaN: true }).map(Math.abs),
    }),
  },
  { requiredKeys: [] },
);

test('fields › finishing passes the wire unchanged, whatever is asked for', t => {
  holds(t, [finishings], finishing => {
    const bytes = ProtoFinishing.encode(finishingToProto(finishing)).finish();
    assert.deepEqual(finishingFromProto(ProtoFinishing.decode(bytes)), structuredClone(finishing));
  });
});

test('fields › a background picture is named on the wire with its file', t => {
  const file = {
    contentLength: 5,
    sha256: Buffer.alloc(0),
    inputFormat: InputFormat.INPUT_FORMAT_JPEG,
    width: 2,
    height: 3,
  };
  const message = finishingToProto({ background: { kind: 'picture' } }, file);
  t.deepEqual(message.background, { $case: 'backgroundPicture', value: file });
  t.deepEqual(finishingFromProto(message), { background: { kind: 'picture' } });
  t.throws(() => finishingToProto({ background: { kind: 'picture' } }), {
    message: /without its file/,
  });
});

const WIRE_NONSENSE: readonly Parameters<typeof ProtoFinishing.fromPartial>[0][] = [
  { scalePercent: 9.9 },
  { scalePercent: 100.1 },
  { scalePercent: Number.NaN },
  { aspectRatio: {} },
  { quality: 101 },
  { shadow: { opacity: 0 } },
  { shadow: { blur: 21 } },
  { shadow: { offsetX: -1 } },
  { shadow: { offsetY: Number.NaN } },
  { shadow: {}, background: { $case: 'backgroundOriginal', value: true } },
  { aspectRatio: { width: 1, height: 101 } },
  { aspectRatio: { width: Number.NaN, height: 1 } },
  { aspectRatio: { width: 1, height: 1 }, outputWidth: 5, outputHeight: 5 },
  { sizeMaxMegapixels: 0.001 },
  { sizeMaxMegapixels: -1 },
  { outputWidth: 10_001 },
  { outputHeight: 10_001 },
  { outputWidth: 10_000, outputHeight: 5001 },
  { position: { position: undefined } },
  { position: { position: { $case: 'percent', value: { x: -1, y: 0 } } } },
  { position: { position: { $case: 'percent', value: { x: 0, y: 101 } } } },
  { crop: { marginTop: { length: { $case: 'px', value: -1 } } } },
  { region: { left: { length: { $case: 'percent', value: Number.POSITIVE_INFINITY } } } },
];

for (const nonsense of WIRE_NONSENSE) {
  test(`fields › finishing that asks for nonsense is refused: ${JSON.stringify(nonsense)}`, t => {
    throwsWith(
      t,
      () => finishingFromProto(ProtoFinishing.fromPartial(nonsense)),
      (error: unknown) => error instanceof ContractError && error.code === 'INVALID_REQUEST',
    );
  });
}

// inference-node/serving/picture/finishing/layout.test.ts compares these with real frames.

const pxAround = (length: number): CropMargins => {
  const side = { px: length };
  return { top: side, right: side, bottom: side, left: side };
};
const WHITE = { kind: 'colour', rgba: 0xffffffff } as const;

function refusedField(finishing: Finishing, size: Size): string | undefined {
  const { least } = frameRange(finishing, size, { turned: true });
  const refusal = frameRefusal(finishing, size, least);
  if (refusal === undefined) return undefined;
  assert.deepEqual([refusal.code, refusal.retryable], ['INVALID_PARAMETER', false]);
  assert.throws(() => requireFrame(finishing, size, least), refusal);
  return refusal.fieldErrors[0]?.field;
}

const tiny = { width: 24, height: 18 };
const refused: readonly [string, Finishing, Size, string][] = [
  [
    'proportions',
    { aspectRatio: { width: 1, height: 1 } },
    { width: 9000, height: 5000 },
    'aspect_ratio',
  ],
  ['one side of a square', { outputHeight: 10_000 }, { width: 1, height: 1 }, 'output_height'],
  ['the other side', { outputWidth: 8000 }, { width: 5, height: 5 }, 'output_width'],
  ['a side that a turned picture makes as large', { outputWidth: 10_000 }, tiny, 'output_width'],
  ['margins in px', { crop: pxAround(10_000) }, tiny, 'crop_margin'],
  ['margins and a scale', { crop: pxAround(400), scalePercent: 10 }, tiny, 'crop_margin'],
  ['a side and a crop', { crop: pxAround(5000), outputHeight: 9000 }, tiny, 'output_height'],
  [
    'more than the picture has',
    { outputWidth: 9900 },
    { width: 7100, height: 7200 },
    'output_width',
  ],
];
for (const [name, finishing, size, field] of refused) {
  test(`a frame larger than the picture and than 50 megapixels › is refused by the name of its field: ${name}`, t =>
    t.is(refusedField(finishing, size), field));
}

test('a frame larger than the picture and than 50 megapixels › is found where the picture lies as it is: its header left both open', t => {
  const size = { width: 9, height: 6 };
  const { least } = frameRange({ outputHeight: 8000 }, size, { turned: false });
  t.is(frameRefusal({ outputHeight: 8000 }, size, least)?.code, 'INVALID_PARAMETER');
  const scale = { crop: pxAround(0), scalePercent: 10 };
  const made = frameRefusal(scale, size, FRAME_PIXELS_MAX + 1);
  t.is(made?.fieldErrors[0]?.field, 'scale');
  t.regex(made?.message ?? '', /^scale makes a frame of 50000001 pixels\. .* 50 megapixels/);
});

const cases: readonly [Finishing, number][] = [
  [{}, 0],
  [{ background: WHITE, sizeMaxMegapixels: 4 }, 0],
  [{ crop: pxAround(0), position: 'original' }, 0],
  [{ scalePercent: 10 }, 0],
  [{ crop: pxAround(0), scalePercent: 99 }, 50e6],
  [{ crop: pxAround(1) }, 50e6],
  [{ crop: pxAround(1), sizeMaxMegapixels: 2 }, 2e6],
  [{ outputWidth: 1000, outputHeight: 800 }, 0.8e6],
  [{ outputWidth: 1000 }, 10e6],
  [{ outputWidth: 1000, aspectRatio: { width: 2, height: 1 } }, 0.5e6],
  [{ aspectRatio: { width: 2, height: 1 } }, 50e6],
  [{ outputHeight: 10_000 }, 50e6],
];
for (const [finishing, pixels] of cases) {
  test(`the most that fields make of a picture that is not there › is ${pixels} by ${JSON.stringify(finishing)}`, t =>
    t.is(framePixelsUnseen(finishing), pixels));
}
