import assert from 'node:assert/strict';
import test from 'ava';
import { InputFormat, Hints as ProtoHints } from '../../gen/matting/v1/matte_service.ts';
import type { ContractError, ErrorCode } from '../errors.ts';
import { type HintShape, type Hints, requireInside } from '../hints.ts';
import { hintsFromProto, hintsToProto } from '../hints-wire.ts';

const FILE = {
  contentLength: 1,
  sha256: Buffer.alloc(0),
  inputFormat: InputFormat.INPUT_FORMAT_PNG,
  width: 0,
  height: 0,
};
const DOT: HintShape = { line: [[8, 8]], radius: 2 };
const BOX: HintShape = { box: [0, 0, 16, 9] };

const isRefused = (code: ErrorCode, field: string, act: () => unknown) =>
  assert.throws(act, (error: ContractError) => {
    assert.equal(error.code, code);
    assert.ok(error.message.includes(field), error.message);
    return true;
  });

const overTheWire = (hints: Hints) =>
  hintsFromProto(ProtoHints.decode(ProtoHints.encode(hintsToProto(hints, FILE)).finish()));

test('refuses shapes that mean nothing, and names their field', t => {
  const wrong: HintShape[] = [
    { line: [], radius: 2 },
    { line: [[8, 8]], radius: 0 },
    { line: [[8, 8]], radius: Number.NaN },
    { line: [[8, 8]], radius: Number.POSITIVE_INFINITY },
    { line: [[8, Number.NaN]], radius: 1 },
    { line: [[-1, 8]], radius: 1 },
    { line: [[8, 10_001]], radius: 1 },
    { box: [4, 0, 4, 9] },
    { box: [4, 9, 8, 9] },
    { box: [4, 9, 3, 10] },
    { box: [0, 0, Number.POSITIVE_INFINITY, 9] },
  ];
  for (const shape of wrong) {
    isRefused('INVALID_PARAMETER', 'keep', () => overTheWire({ keep: [shape] }));
    isRefused('INVALID_PARAMETER', 'erase', () => overTheWire({ keep: [DOT], erase: [shape] }));
  }
  t.pass();
});

test('refuses more shapes or points than a request may have', t => {
  const many = Array.from({ length: 33 }, () => DOT);
  const long: HintShape = { line: Array.from({ length: 2049 }, () => [1, 1] as const), radius: 1 };
  isRefused('INVALID_PARAMETER', 'erase', () => overTheWire({ keep: many, erase: many }));
  isRefused('INVALID_PARAMETER', 'erase', () => overTheWire({ keep: [long], erase: [long] }));
  t.notThrows(() => overTheWire({ keep: many.slice(1), erase: many.slice(1) }));
  t.notThrows(() => overTheWire({ keep: [long] }));
});

test('refuses messages that no field of a request becomes', t => {
  const file = { picture: FILE };
  const shape = hintsToProto({ keep: [DOT] }).keep;
  const odd = { shape: { $case: 'line' as const, value: { points: [1, 2, 3], radius: 1 } } };
  for (const wrong of [{ ...file, keep: shape }, { keep: [odd] }, { erase: [{}] }]) {
    const message = ProtoHints.fromPartial(wrong as Parameters<typeof ProtoHints.fromPartial>[0]);
    isRefused('INVALID_REQUEST', 'hints.', () => hintsFromProto(message));
  }
  t.throws(() => hintsToProto({ picture: true }), { message: /without its file/ });
});

test('refuses shapes outside of the picture or the box', t => {
  const area = { left: 0, top: 0, width: 16, height: 9 };
  const line: HintShape = {
    line: [
      [8, 8],
      [18, 8],
    ],
    radius: 1,
  };
  isRefused('INVALID_PARAMETER', 'the image', () => requireInside({ keep: [line] }, area));
  const subjectBox = { left: { px: 0 }, top: { px: 0 }, right: { px: 9 }, bottom: { px: 9 } };
  const inBox = { ...area, width: 9 };
  isRefused('INVALID_PARAMETER', 'subject_box', () =>
    requireInside({ subjectBox, erase: [BOX] }, inBox),
  );
  t.notThrows(() => requireInside({ keep: [BOX, DOT] }, area));
});

test('says the same after the wire', t => {
  const subjectBox = { left: { px: 1 }, top: { percent: 2 }, right: { px: 9 }, bottom: { px: 9 } };
  const hints: Hints = {
    subjectBox,
    keep: [DOT, BOX],
    erase: [
      {
        line: [
          [1, 2],
          [3, 4],
        ],
        radius: 5,
      },
    ],
  };
  t.deepEqual(overTheWire(hints), hints);
  t.deepEqual(overTheWire({ picture: true }), { picture: true });
});
