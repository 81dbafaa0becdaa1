import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { InputFormat, Finishing as ProtoFinishing } from '#gen/matting/v1/matte_service.ts';
import { ContractError } from '../errors.ts';
import type { Finishing } from '../finishing.ts';
import { finishingFromProto, finishingToProto } from '../finishing-wire.ts';

const amount = fc.double({ min: 0, max: 500, noNaN: true }).map(Math.abs);
const length = fc.oneof(fc.record({ px: amount }), fc.record({ percent: amount }));
const percent = fc.double({ min: 0, max: 100, noNaN: true }).map(Math.abs);
const finishings: fc.Arbitrary<Finishing> = fc.record(
  {
    region: fc.record({ left: length, top: length, right: length, bottom: length }),
    crop: fc.record({ left: length, top: length, right: length, bottom: length }),
    scalePercent: fc.double({ min: 10, max: 100, noNaN: true }),
    position: fc.oneof(
      fc.constant('original' as const),
      fc.record({ xPercent: percent, yPercent: percent }),
    ),
    outputWidth: fc.integer({ min: 1, max: 5000 }),
    outputHeight: fc.integer({ min: 1, max: 10_000 }),
    sizeMaxMegapixels: fc.double({ min: 0.01, max: 100, noNaN: true }),
    background: fc.record({
      kind: fc.constant('colour' as const),
      rgba: fc.integer({ min: 0, max: 0xffffffff }),
    }),
  },
  { requiredKeys: [] },
);

test('finishing passes the wire unchanged, whatever is asked for', () => {
  fc.assert(
    fc.property(finishings, finishing => {
      const bytes = ProtoFinishing.encode(finishingToProto(finishing)).finish();
      assert.deepEqual(
        finishingFromProto(ProtoFinishing.decode(bytes)),
        structuredClone(finishing),
      );
    }),
  );
});

test('a background picture is named on the wire with its file', () => {
  const file = {
    contentLength: 5,
    sha256: Buffer.alloc(0),
    inputFormat: InputFormat.INPUT_FORMAT_JPEG,
    width: 2,
    height: 3,
  };
  const message = finishingToProto({ background: { kind: 'picture' } }, file);
  assert.deepEqual(message.background, { $case: 'backgroundPicture', value: file });
  assert.deepEqual(finishingFromProto(message), { background: { kind: 'picture' } });
  assert.throws(() => finishingToProto({ background: { kind: 'picture' } }), /without its file/);
});

const NONSENSE: readonly Partial<ProtoFinishing>[] = [
  { scalePercent: 9.9 },
  { scalePercent: 100.1 },
  { scalePercent: Number.NaN },
  { sizeMaxMegapixels: 0.001 },
  { sizeMaxMegapixels: -1 },
  { outputWidth: 10_001 },
  { outputHeight: 10_001 },
  { outputWidth: 10_000, outputHeight: 5001 },
  { position: { position: undefined } },
  { position: { position: { $case: 'percent', value: { x: -1, y: 0 } } } },
  { position: { position: { $case: 'percent', value: { x: 0, y: 101 } } } },
  {
    crop: {
      marginTop: { length: { $case: 'px', value: -1 } },
      marginRight: undefined,
      marginBottom: undefined,
      marginLeft: undefined,
    },
  },
  {
    region: {
      left: { length: { $case: 'percent', value: Number.POSITIVE_INFINITY } },
      top: undefined,
      right: undefined,
      bottom: undefined,
    },
  },
];

for (const nonsense of NONSENSE) {
  test(`finishing that asks for nonsense is refused: ${JSON.stringify(nonsense)}`, () => {
    assert.throws(
      () => finishingFromProto(ProtoFinishing.fromPartial(nonsense)),
      (error: unknown) => error instanceof ContractError && error.code === 'INVALID_REQUEST',
    );
  });
}
