import assert from 'node:assert/strict';
import { OVERLONG, type TextValue } from '@matting/http/body-fields.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type Finishing, SHADOW } from '@matting/proto/contract/finishing.ts';
import ava from 'ava';
import { RemovebgRefusal } from './removebg-errors.ts';
import { removebgRequestOf } from './removebg-request.ts';
import type { RemovebgPicture, RemovebgText } from './removebg-values.ts';

const test = ava.serial;

const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false };

type Texts = Partial<Record<RemovebgText, TextValue>>;

function parsed(texts: Texts, pictures: readonly RemovebgPicture[] = ['image_file']) {
  const given = new Map(Object.entries(texts) as [RemovebgText, TextValue][]);
  const fields = { unknown: [], texts: given, pictures: new Set(pictures) };
  return removebgRequestOf(fields, POLICY);
}

function refusalOf(texts: Texts, pictures?: readonly RemovebgPicture[]): [string, string] {
  try {
    parsed(texts, pictures);
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    const code = error instanceof RemovebgRefusal ? error.removebgCode : error.code;
    return [code, error.fieldErrors[0]?.field ?? ''];
  }
  assert.fail(`not refused: ${JSON.stringify(texts)}`);
}

const px = (value: number) => ({ px: value });
const percent = (value: number) => ({ percent: value });
const NONE = { top: px(0), right: px(0), bottom: px(0), left: px(0) };
const colour = (rgba: number) => ({ kind: 'colour', rgba }) as const;

const MEANT: readonly [Texts, string, Finishing | undefined][] = [
  [{}, 'png', undefined],
  // PyPI's removebg sends this on every call.
  [
    {
      size: 'auto',
      type: 'auto',
      type_level: 'none',
      format: 'auto',
      roi: '0 0 100% 100%',
      crop: 'false',
      scale: 'original',
      position: 'original',
      channels: 'rgba',
      add_shadow: 'false',
      semitransparency: 'true',
    },
    'png',
    undefined,
  ],
  [{ size: 'preview' }, 'png', { sizeMaxMegapixels: 0.25 }],
  [{ size: 'SMALL' }, 'png', { sizeMaxMegapixels: 0.25 }],
  [{ size: 'regular' }, 'png', { sizeMaxMegapixels: 0.25 }],
  [{ size: 'medium' }, 'png', { sizeMaxMegapixels: 1.5 }],
  [{ size: 'hd' }, 'png', { sizeMaxMegapixels: 4 }],
  [{ size: 'full' }, 'png', { sizeMaxMegapixels: 10 }],
  [{ size: '4k', format: 'webp' }, 'webp', { sizeMaxMegapixels: 25 }],
  [{ size: '50MP', format: 'zip' }, 'zip', { sizeMaxMegapixels: 50 }],
  [{ format: 'zip' }, 'zip', {}],
  [{ format: 'WebP' }, 'webp', undefined],
  [{ format: 'jpg' }, 'jpeg', { background: colour(0xffffffff) }],
  [{ format: 'jpg', bg_color: 'f00' }, 'jpeg', { background: colour(0xff0000ff) }],
  // The half transparent colour lies on white.
  [{ format: 'jpg', bg_color: '#ff000080' }, 'jpeg', { background: colour(0xff7f7fff) }],
  [{ format: 'jpg', bg_color: '00000000' }, 'jpeg', { background: colour(0xffffffff) }],
  [{ bg_color: 'green' }, 'jpeg', { background: colour(0x008000ff) }],
  [{ bg_color: '81d4fa77' }, 'png', { background: colour(0x81d4fa77) }],
  [{ bg_color: 'white', format: 'png' }, 'png', { background: colour(0xffffffff) }],
  [{ bg_image_url: 'https://a.example/b' }, 'jpeg', { background: { kind: 'picture' } }],
  [{ channels: 'alpha' }, 'png', {}],
  [{ channels: 'alpha', format: 'webp' }, 'webp', {}],
  [{ crop: '1' }, 'png', { crop: NONE }],
  [{ crop: 'true', crop_margin: '0' }, 'png', { crop: NONE }],
  [
    { crop: 'true', crop_margin: '10% 30px' },
    'png',
    { crop: { top: percent(10), right: px(30), bottom: percent(10), left: px(30) } },
  ],
  [{ crop: 'false', crop_margin: '10%' }, 'png', undefined],
  [{ scale: '80%' }, 'png', { scalePercent: 80 }],
  [{ scale: '80%', position: 'center' }, 'png', { scalePercent: 80 }],
  [{ scale: '80%', position: 'original' }, 'png', { scalePercent: 80, position: 'original' }],
  [
    { scale: '80%', position: '0 100%' },
    'png',
    { scalePercent: 80, position: { xPercent: 0, yPercent: 100 } },
  ],
  [{ crop: 'true', position: '20%' }, 'png', { crop: NONE }],
  [
    { roi: '10px 0 50% 30px' },
    'png',
    { region: { left: px(10), top: px(0), right: percent(50), bottom: px(30) } },
  ],
  [{ roi: '0% 0% 100% 100%' }, 'png', undefined],
  [{ shadow_type: '3D', shadow_opacity: '30', shadow_method: 'legacy' }, 'png', undefined],
  [{ shadow_type: 'Drop', shadow_opacity: 'Auto' }, 'png', { shadow: SHADOW.absent }],
  [
    { shadow_type: 'drop', shadow_opacity: '7.5' },
    'png',
    { shadow: { ...SHADOW.absent, opacity: 7.5 } },
  ],
  [{ shadow_type: 'drop', shadow_opacity: '0' }, 'png', undefined],
  [{ shadow_type: 'drop', channels: 'alpha' }, 'png', {}],
];

test('fields of remove.bg become a format, channels and finishing', t => {
  for (const [texts, format, finishing] of MEANT) {
    const { request } = parsed(texts);
    const { outputFormat, channels, callback } = request;
    const actual: unknown = [outputFormat, request.finishing, channels, callback];
    const meant = [format, finishing, texts.channels ?? 'rgba', undefined];
    t.deepEqual(actual, meant, JSON.stringify(texts));
  }
});

const NONSENSE: readonly [RemovebgText, ...string[]][] = [
  ['size', 'huge', '1', '4K '],
  ['type', 'dragon', 'auto,person'],
  ['type_level', '3', 'all'],
  ['format', 'gif', 'image/png'],
  ['roi', '0 0 100%', '0 0 1 1', '1em 0 5px 5px', '-1px 0 5px 5px', '0 0 5px 5px 5px', 'all'],
  ['crop', 'yes', '2', 'TRUE '],
  ['crop_margin', '501px', '51%', '1', '10%,10%', '1px 2px 3px'],
  ['scale', '9%', '101%', '80', 'big'],
  ['position', 'left', '101%', '10% 10% 10%', 'center'],
  ['channels', 'rgb', 'grey'],
  ['add_shadow', 'maybe'],
  ['shadow_type', 'a b', '<x>'],
  ['shadow_opacity', '101', '-1', 'dark'],
  ['shadow_method', 'newest'],
  ['semitransparency', 'half'],
  ['bg_color', '12345', 'greenish', 'rgb(1,2,3)'],
  ['bg_image_url', 'not a url', 'ftp://a.example/b', 'http://127.0.0.1/b'],
];

for (const [field, ...values] of NONSENSE) {
  test(`nonsense is refused by its field › ${field}: ${values.join(' | ')}`, t => {
    for (const value of [...values, OVERLONG] as const) {
      const [code, named] = refusalOf({ [field]: value });
      t.is(code, 'INVALID_PARAMETER', String(value));
      const known = field === 'bg_image_url' ? 'background_url' : field;
      t.is(named, known);
    }
  });
}

const CONTRADICTIONS: readonly [Texts, readonly RemovebgPicture[], string, string][] = [
  [{ bg_color: 'red' }, ['image_file', 'bg_image_file'], 'multiple_bg_sources', 'bg_image_file'],
  [{ channels: 'alpha', bg_color: 'red' }, ['image_file'], 'INVALID_PARAMETER', 'channels'],
  [{ channels: 'alpha', format: 'jpg' }, ['image_file'], 'INVALID_PARAMETER', 'format'],
  [{ channels: 'alpha', format: 'zip' }, ['image_file'], 'INVALID_PARAMETER', 'format'],
  [{ roi: '0 0 101% 5px' }, ['image_file'], 'roi_exceeds_bounds', 'roi'],
];

test('fields that contradict each other are refused by the code of their own', t => {
  for (const [texts, pictures, code, field] of CONTRADICTIONS) {
    t.deepEqual(refusalOf(texts, pictures), [code, field], JSON.stringify([texts, pictures]));
  }
});

const image = { blob: 'b', bytes: 1, format: 'png', width: 400, height: 300 } as const;
const judge = (roi: string) => {
  const { requireImage } = parsed({ roi });
  try {
    requireImage?.(image);
    return 'taken';
  } catch (error) {
    assert.ok(error instanceof RemovebgRefusal);
    return error.removebgCode;
  }
};
test('a region lies in its image, and holds something of it', t => {
  for (const [roi, judgement] of [
    ['0 0 400px 300px', 'taken'],
    ['10px 10px 11px 11px', 'taken'],
    // A camera may have turned the picture.
    ['0 0 300px 400px', 'taken'],
    ['0 0 401px 300px', 'roi_exceeds_bounds'],
    ['0 0 301px 301px', 'roi_exceeds_bounds'],
    ['0 0 10px 401px', 'roi_exceeds_bounds'],
    ['10px 10px 10px 20px', 'roi_region_empty'],
    ['20px 10px 10px 20px', 'roi_region_empty'],
    ['50% 50% 201px 151px', 'taken'],
    ['60% 0 40% 100%', 'roi_region_empty'],
  ] as const) {
    t.is(judge(roi), judgement, roi);
  }
});
