/** What no node can do, by the words of the request's own field, and whose word counts. */
import assert from 'node:assert/strict';
import ava from 'ava';
import {
  type AskedOfNode,
  type NodeAbility,
  needsBeforeImage,
  needsOf,
} from '../../../src/domain/dispatch/job-needs.ts';
import { AdvertisedNodes, refusalOf } from '../../../src/domain/dispatch/refusal.ts';

const test = ava.serial;

const NODE: NodeAbility = {
  bootId: 'boot',
  inputFormats: new Set(['jpeg', 'png', 'jxl']),
  outputFormats: new Set(['png', 'webp', 'jxl', 'jpeg']),
  imagePixelsMax: 100_000_000,
  jxlPixelsMax: 40_000_000,
  megapixelsAloneMax: 60,
};
const photo = { format: 'jpeg', width: 4000, height: 3000 } as const;
const PNG = { outputFormat: 'png' } as const;
const px = (length: number) => {
  const side = { px: length };
  return { top: side, right: side, bottom: side, left: side };
};

function refused(
  asked: AskedOfNode,
  image: Parameters<typeof needsOf>[0] | undefined = photo,
  nodes: readonly NodeAbility[] = [NODE],
): string | undefined {
  const refusal = refusalOf(nodes, needsOf(image, asked));
  if (refusal === undefined) return undefined;
  assert.equal(refusal.retryable, false);
  const [error] = refusal.fieldErrors;
  return error === undefined ? refusal.code : `${refusal.code} ${error.field}`;
}

const jxl = { format: 'jxl', width: 7000, height: 7000 } as const;
const behind = { blob: 'b', bytes: 9, format: 'avif', width: 5000, height: 5000 } as const;
const picture = { kind: 'picture' } as const;
const cases: readonly [string, string, AskedOfNode, Parameters<typeof refused>[1]][] = [
  ['an input format', 'UNSUPPORTED_IMAGE_FORMAT', PNG, { ...photo, format: 'avif' }],
  ['a JPEG XL of 49 megapixels', 'IMAGE_RESOLUTION_TOO_LARGE', PNG, jxl],
  ['an output format', 'UNSUPPORTED_OUTPUT_FORMAT output_format', { outputFormat: 'avif' }, photo],
  [
    'JPEG XL of a frame of 49 megapixels',
    'UNSUPPORTED_OUTPUT_FORMAT output_format',
    { outputFormat: 'jxl', finishing: { outputWidth: 7000, outputHeight: 7000 } },
    photo,
  ],
  [
    'JPEG XL of a side of 9000',
    'UNSUPPORTED_OUTPUT_FORMAT output_format',
    { outputFormat: 'jxl', finishing: { outputHeight: 7000 } },
    { ...photo, width: 10, height: 10 },
  ],
  [
    'more memory than there is',
    'IMAGE_RESOLUTION_TOO_LARGE',
    PNG,
    { ...photo, width: 9000, height: 9000 },
  ],
];
for (const [name, code, asked, image] of cases) {
  test(`what no node can do › is ${code}: ${name}`, t => t.is(refused(asked, image), code));
}

test('what no node can do › is memory for a frame or a background by that field', t => {
  const reads = new Set(['jpeg', 'avif'] as const);
  const small = { ...NODE, inputFormats: reads, megapixelsAloneMax: 12 };
  const asked = { ...PNG, finishing: { background: picture }, background: { input: behind } };
  const image = { ...photo, width: 30, height: 20 };
  t.is(refused(asked, image, [small]), 'INVALID_PARAMETER background');
  const wide = { outputFormat: 'webp', finishing: { crop: px(3000) } } as const;
  t.is(refused(wide, image, [small]), 'INVALID_PARAMETER crop_margin');
  t.is(refused({ ...asked, background: null }, image, [small]), undefined);
});

test('what no node can do › is a background that no node reads', t => {
  const asked = { ...PNG, finishing: { background: picture }, background: { input: behind } };
  t.is(refused(asked), 'UNSUPPORTED_IMAGE_FORMAT');
  const jxlBehind = { ...behind, format: 'jxl' } as const;
  const withJxl = { ...asked, background: { input: jxlBehind } };
  t.is(refused(withJxl), undefined);
  const less = { ...NODE, jxlPixelsMax: 20_000_000 };
  t.is(refused(withJxl, photo, [less]), 'UNSUPPORTED_IMAGE_FORMAT');
});

test('what no node can do › is judged by the node that comes furthest, and is nothing where one can', t => {
  const reader = { ...NODE, bootId: 'a', inputFormats: new Set(['avif'] as const) };
  const avif = { ...photo, format: 'avif' } as const;
  const toJpeg = { outputFormat: 'avif' } as const;
  t.is(refused(toJpeg, avif, [NODE, reader]), 'UNSUPPORTED_OUTPUT_FORMAT output_format');
  t.is(refused(PNG, avif, [NODE, reader]), undefined);
  t.is(refused(PNG, avif, []), undefined, 'none to ask');
});

test('what no node can do › is only what the fields show as long as the image is not there', t => {
  const nothing = { ...NODE, inputFormats: new Set<never>(), megapixelsAloneMax: 1 };
  t.is(refusalOf([nothing], needsBeforeImage(PNG)), undefined);
  const jxlFrame = { outputFormat: 'jxl', finishing: { outputHeight: 9000 } } as const;
  t.is(refusalOf([nothing], needsBeforeImage(jxlFrame)), undefined);
  const avif = refusalOf([nothing], needsBeforeImage({ outputFormat: 'avif' }));
  t.is(avif?.code, 'UNSUPPORTED_OUTPUT_FORMAT');
});

test('what no node can do › is a codec of some nodes alone where each has refused what it says it can', t => {
  const all = new Set(['boot']);
  const cmyk = needsOf({ ...jxl, width: 10, height: 10 }, PNG);
  t.is(refusalOf([NODE], cmyk, all)?.code, 'UNSUPPORTED_IMAGE_FORMAT');
  const toJxl = needsOf(photo, { outputFormat: 'jxl' });
  t.is(refusalOf([NODE], toJxl, all)?.code, 'UNSUPPORTED_OUTPUT_FORMAT');
  t.is(refusalOf([NODE], needsOf(photo, PNG), all), undefined, 'the nodes are at fault');
  t.is(refusalOf([NODE, { ...NODE, bootId: 'other' }], toJxl, all), undefined);
});

const GRACE_MS = 6000;
let nowMs: number;
let routable: NodeAbility[];
let advertised: AdvertisedNodes;

const prepare = () => {
  nowMs = 0;
  routable = [NODE];
  advertised = new AdvertisedNodes({
    routable: () => routable,
    graceMs: GRACE_MS,
    now: () => nowMs,
  });
};

test('the nodes whose word counts › are not known within the first grace', async t => {
  await prepare();
  nowMs = GRACE_MS;
  t.is(advertised.nodes(), undefined);
  nowMs += 1;
  t.deepEqual(advertised.nodes(), [NODE]);
});

test('the nodes whose word counts › are those that were there within the grace, and no others', async t => {
  await prepare();
  const other = { ...NODE, bootId: 'other' };
  nowMs = 2 * GRACE_MS;
  advertised.changed();
  routable = [other];
  nowMs += GRACE_MS;
  t.deepEqual(advertised.nodes(), [NODE, other]);
  nowMs += 1;
  t.deepEqual(advertised.nodes(), [other]);
  routable = [];
  nowMs += GRACE_MS + 1;
  t.deepEqual(advertised.nodes(), []);
});

test('the nodes whose word counts › are looked at often enough, however often they report', async t => {
  await prepare();
  nowMs = 2 * GRACE_MS;
  advertised.changed();
  let looks = 0;
  const counting = new AdvertisedNodes({
    routable: () => {
      looks += 1;
      return [];
    },
    graceMs: GRACE_MS,
    now: () => nowMs,
  });
  for (let report = 0; report < 1000; report += 1) {
    nowMs += 1;
    counting.changed();
  }
  t.is(looks, 10);
});
