import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPlaneTables, fillAlpha, fillPlanes } from '../../../src/engine/child/graph-ends.ts';

const IDENTITY = { mean: [0, 0, 0], std: [1, 1, 1] } as const;

test('a value that is not a number is reported, wherever it stands', () => {
  for (const at of [0, 1, 2]) {
    const matte = Float32Array.of(0.5, 0.5, 0.5);
    matte[at] = Number.NaN;
    assert.equal(fillAlpha(matte, new Uint8ClampedArray(3), 'none'), false);
    assert.equal(fillAlpha(matte, new Uint8ClampedArray(3), 'sigmoid'), false);
  }
});

test('alpha is clamped and rounded, never rescaled', () => {
  const matte = Float32Array.of(-7, -0.001, 0, 0.25, 0.5, 254.6 / 255, 1, 1.001, 9);
  const alpha = new Uint8ClampedArray(matte.length);
  assert.equal(fillAlpha(matte, alpha, 'none'), true);
  assert.deepEqual([...alpha], [0, 0, 0, 64, 128, 255, 255, 255, 255]);
});

test('a faint matte stays faint', () => {
  const alpha = new Uint8ClampedArray(2);
  fillAlpha(Float32Array.of(0.1, 0.2), alpha, 'none');
  assert.deepEqual([...alpha], [26, 51]);
});

test('the sigmoid is applied where the model leaves it to us', () => {
  const alpha = new Uint8ClampedArray(5);
  assert.equal(fillAlpha(Float32Array.of(-1e9, -2, 0, 2, 1e9), alpha, 'sigmoid'), true);
  assert.deepEqual([...alpha], [0, 30, 128, 225, 255]);
});

test('planes are in the order of the tensor, each normalised by its own channel', () => {
  const normalisation = { mean: [10, 20, 30], std: [1, 2, 4] } as const;
  const rgb = Uint8Array.of(11, 22, 34, 12, 24, 38);
  const planes = new Float32Array(6);
  fillPlanes(rgb, planes, createPlaneTables(normalisation, 'rgb'));
  assert.deepEqual([...planes], [1, 2, 1, 2, 1, 2]);
  const swapped = Uint8Array.of(1, 2, 3, 4, 5, 6);
  fillPlanes(swapped, planes, createPlaneTables(IDENTITY, 'bgr'));
  assert.deepEqual([...planes], [3, 6, 2, 5, 1, 4]);
});

test('every byte has its float', () => {
  const normalisation = { mean: [128, 128, 128], std: [256, 256, 256] } as const;
  const rgb = Uint8Array.from({ length: 3 * 256 }, (_, i) => Math.floor(i / 3));
  const planes = new Float32Array(rgb.length);
  fillPlanes(rgb, planes, createPlaneTables(normalisation, 'rgb'));
  for (let value = 0; value < 256; value++) {
    for (const plane of [0, 1, 2]) {
      assert.equal(planes[plane * 256 + value], (value - 128) / 256);
    }
  }
});
