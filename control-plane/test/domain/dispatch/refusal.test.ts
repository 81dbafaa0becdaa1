/** What no node can do, by the words of the request's own field, and whose word counts. */
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import {
  type AskedOfNode,
  type NodeAbility,
  needsBeforeImage,
  needsOf,
} from '../../../src/domain/dispatch/job-needs.ts';
import { AdvertisedNodes, refusalOf } from '../../../src/domain/dispatch/refusal.ts';

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

describe('what no node can do', () => {
  const jxl = { format: 'jxl', width: 7000, height: 7000 } as const;
  const behind = { blob: 'b', bytes: 9, format: 'avif', width: 5000, height: 5000 } as const;
  const picture = { kind: 'picture' } as const;
  const cases: readonly [string, string, AskedOfNode, Parameters<typeof refused>[1]][] = [
    ['an input format', 'UNSUPPORTED_IMAGE_FORMAT', PNG, { ...photo, format: 'avif' }],
    ['a JPEG XL of 49 megapixels', 'IMAGE_RESOLUTION_TOO_LARGE', PNG, jxl],
    [
      'an output format',
      'UNSUPPORTED_OUTPUT_FORMAT output_format',
      { outputFormat: 'avif' },
      photo,
    ],
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
    it(`is ${code}: ${name}`, () => assert.equal(refused(asked, image), code));
  }

  it('is memory for a frame or a background by that field', () => {
    const reads = new Set(['jpeg', 'avif'] as const);
    const small = { ...NODE, inputFormats: reads, megapixelsAloneMax: 12 };
    const asked = { ...PNG, finishing: { background: picture }, background: { input: behind } };
    const image = { ...photo, width: 30, height: 20 };
    assert.equal(refused(asked, image, [small]), 'INVALID_PARAMETER background');
    const wide = { outputFormat: 'webp', finishing: { crop: px(3000) } } as const;
    assert.equal(refused(wide, image, [small]), 'INVALID_PARAMETER crop_margin');
    assert.equal(refused({ ...asked, background: null }, image, [small]), undefined);
  });

  it('is a background that no node reads', () => {
    const asked = { ...PNG, finishing: { background: picture }, background: { input: behind } };
    assert.equal(refused(asked), 'UNSUPPORTED_IMAGE_FORMAT');
    const jxlBehind = { ...behind, format: 'jxl' } as const;
    const withJxl = { ...asked, background: { input: jxlBehind } };
    assert.equal(refused(withJxl), undefined);
    const less = { ...NODE, jxlPixelsMax: 20_000_000 };
    assert.equal(refused(withJxl, photo, [less]), 'UNSUPPORTED_IMAGE_FORMAT');
  });

  it('is judged by the node that comes furthest, and is nothing where one can', () => {
    const reader = { ...NODE, bootId: 'a', inputFormats: new Set(['avif'] as const) };
    const avif = { ...photo, format: 'avif' } as const;
    const toJpeg = { outputFormat: 'avif' } as const;
    assert.equal(refused(toJpeg, avif, [NODE, reader]), 'UNSUPPORTED_OUTPUT_FORMAT output_format');
    assert.equal(refused(PNG, avif, [NODE, reader]), undefined);
    assert.equal(refused(PNG, avif, []), undefined, 'none to ask');
  });

  it('is only what the fields show as long as the image is not there', () => {
    const nothing = { ...NODE, inputFormats: new Set<never>(), megapixelsAloneMax: 1 };
    assert.equal(refusalOf([nothing], needsBeforeImage(PNG)), undefined);
    const jxlFrame = { outputFormat: 'jxl', finishing: { outputHeight: 9000 } } as const;
    assert.equal(refusalOf([nothing], needsBeforeImage(jxlFrame)), undefined);
    const avif = refusalOf([nothing], needsBeforeImage({ outputFormat: 'avif' }));
    assert.equal(avif?.code, 'UNSUPPORTED_OUTPUT_FORMAT');
  });

  it('is a codec of some nodes alone where each has refused what it says it can', () => {
    const all = new Set(['boot']);
    const cmyk = needsOf({ ...jxl, width: 10, height: 10 }, PNG);
    assert.equal(refusalOf([NODE], cmyk, all)?.code, 'UNSUPPORTED_IMAGE_FORMAT');
    const toJxl = needsOf(photo, { outputFormat: 'jxl' });
    assert.equal(refusalOf([NODE], toJxl, all)?.code, 'UNSUPPORTED_OUTPUT_FORMAT');
    assert.equal(refusalOf([NODE], needsOf(photo, PNG), all), undefined, 'the nodes are at fault');
    assert.equal(refusalOf([NODE, { ...NODE, bootId: 'other' }], toJxl, all), undefined);
  });
});

describe('the nodes whose word counts', () => {
  const GRACE_MS = 6000;
  let nowMs: number;
  let routable: NodeAbility[];
  let advertised: AdvertisedNodes;

  beforeEach(() => {
    nowMs = 0;
    routable = [NODE];
    advertised = new AdvertisedNodes({
      routable: () => routable,
      graceMs: GRACE_MS,
      now: () => nowMs,
    });
  });

  it('are not known within the first grace', () => {
    nowMs = GRACE_MS;
    assert.equal(advertised.nodes(), undefined);
    nowMs += 1;
    assert.deepEqual(advertised.nodes(), [NODE]);
  });

  it('are those that were there within the grace, and no others', () => {
    const other = { ...NODE, bootId: 'other' };
    nowMs = 2 * GRACE_MS;
    advertised.changed();
    routable = [other];
    nowMs += GRACE_MS;
    assert.deepEqual(advertised.nodes(), [NODE, other]);
    nowMs += 1;
    assert.deepEqual(advertised.nodes(), [other]);
    routable = [];
    nowMs += GRACE_MS + 1;
    assert.deepEqual(advertised.nodes(), []);
  });

  it('are looked at often enough, however often they report', () => {
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
    assert.equal(looks, 10);
  });
});
