import assert from 'node:assert/strict';
import test from 'ava';
import { admittedMegapixels, canDo, needsOf } from '../../control-plane/core/dispatch/job-needs.ts';
import type { JobInput } from '../../control-plane/core/jobs/job-request.ts';
import { sizeOf } from '../../control-plane/core/jobs/job-request.ts';
import type { MatteCall } from '../../control-plane/nodes/matte-client-call.ts';
import { headerMessage } from '../../control-plane/nodes/matte-client-call.ts';
import { costOf } from '../../inference-node/serving/grpc/matte-handler.ts';
import {
  checkMatteHeader,
  type NodeAbilities,
} from '../../inference-node/serving/grpc/matte-header.ts';
import { ContractError } from '../../proto/contract/errors.ts';
import { frameRefusal } from '../../proto/contract/finishing/frame.ts';
import type { Finishing, Length } from '../../proto/contract/finishing.ts';
import { INPUT_FORMATS } from '../../proto/contract/formats.ts';
import { countedMegapixels } from '../../proto/contract/picture-memory.ts';
import { MatteRequest } from '../../proto/gen/matting/v1/matte_service.ts';
import { fc } from '../support/property-tests.ts';

const JXL_PIXELS_MAX = 40_000_000;
const OUTPUTS = ['png', 'webp', 'avif', 'jxl'] as const;
const PLAN = { name: 'plan', runs: [] };
const NODE: NodeAbilities = {
  plan: PLAN,
  selectable: { name: 'plan', kind: 'plan', sha256: '' },
  pictures: {
    inputFormats: INPUT_FORMATS,
    outputFormats: OUTPUTS,
    jxlPixelsMax: JXL_PIXELS_MAX,
  },
};
const ADVERTISED = {
  bootId: 'boot',
  inputFormats: new Set(INPUT_FORMATS),
  outputFormats: new Set(OUTPUTS),
  imagePixelsMax: 100_000_000,
  jxlPixelsMax: JXL_PIXELS_MAX,
  megapixelsAloneMax: 1000,
};

const side = fc.oneof(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 10_000 }));
const picture = (max: number) =>
  fc
    .record({
      format: fc.constantFrom(...INPUT_FORMATS),
      size: fc.option(fc.record({ width: side, height: side }), { freq: 9 }),
    })
    .map(({ format, size }): JobInput => {
      const isTaken = size !== null && size.width * size.height <= max;
      const { width, height } = isTaken ? size : { width: null, height: null };
      return { blob: 'blob', bytes: 9, format, width, height };
    });
const length: fc.Arbitrary<Length> = fc.oneof(
  fc.record({ px: fc.constantFrom(0, 20, 10_000) }),
  fc.record({ percent: fc.constantFrom(0, 5, 500) }),
);
const finishing = fc.record(
  {
    crop: fc.record({ top: length, right: length, bottom: length, left: length }),
    scalePercent: fc.constantFrom(10, 85, 100),
    position: fc.constant('original' as const),
    outputWidth: fc.integer({ min: 1, max: 10_000 }),
    outputHeight: fc.integer({ min: 1, max: 5000 }),
    sizeMaxMegapixels: fc.constantFrom(0.01, 12, 100),
  },
  { requiredKeys: [] },
);
const job = fc.record({
  input: picture(100_000_000),
  outputFormat: fc.constantFrom(...OUTPUTS),
  channels: fc.constantFrom('rgba' as const, 'alpha' as const),
  steps: fc.option(finishing),
  background: fc.option(picture(25_000_000)),
});

/** The job as placed, and as the node reads the request. */
function bothOf({
  input,
  steps,
  background,
  ...asked
}: typeof job extends fc.Arbitrary<infer J> ? J : never) {
  const isMask = steps !== null && asked.channels === 'alpha';
  const behind = steps === null || isMask ? null : background;
  const channels = isMask ? ('alpha' as const) : ('rgba' as const);
  const whole: Finishing | null =
    behind === null ? steps : { ...steps, background: { kind: 'picture' } };
  const needs = needsOf(input, {
    outputFormat: asked.outputFormat,
    channels,
    finishing: whole,
    background: { input: behind },
  });
  const call = {
    jobId: 'job',
    attempt: 1,
    inputBytes: input.bytes,
    inputFormat: input.format,
    width: input.width,
    height: input.height,
    outputFormat: asked.outputFormat,
    sync: true,
    ...(whole === null ? {} : { channels, finishing: whole }),
    ...(behind === null ? {} : { background: { ...behind, open: () => assert.fail('not sent') } }),
  } as unknown as MatteCall;
  const sent = MatteRequest.decode(MatteRequest.encode(headerMessage(call)).finish()).message;
  assert.ok(sent?.$case === 'header');
  return { needs, header: sent.value };
}

test('counts on the node what it was placed for, and is refused there for what was known', t => {
  let taken = 0;
  let refused = 0;
  const property = fc.property(job, one => {
    const { needs, header } = bothOf(one);
    const size = sizeOf(one.input);
    const { steps, frame } = needs.finishing ?? {};
    const tooLarge = steps && frame && size && frameRefusal(steps, size, frame.least);
    try {
      const order = checkMatteHeader(header, NODE);
      taken += 1;
      assert.equal(countedMegapixels(costOf(order)), admittedMegapixels(needs));
      assert.ok(tooLarge === undefined && canDo(ADVERTISED, needs));
    } catch (error) {
      if (!(error instanceof ContractError)) throw error;
      refused += 1;
      // Both sides over the bound together is an error of the fields alone.
      if (error.code === 'INVALID_REQUEST') assert.match(error.message, /output_width x/);
      else assert.equal(error.code, tooLarge?.code ?? 'NODE_INCAPABLE');
      if (error.code === 'NODE_INCAPABLE') assert.equal(canDo(ADVERTISED, needs), false);
    }
  });
  t.notThrows(() => fc.assert(property, { numRuns: 1000 }));
  t.true(taken > 300 && refused > 10, `${taken} taken, ${refused} refused`);
});
