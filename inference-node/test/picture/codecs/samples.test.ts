import test from 'ava';
import { at as elementAt } from '../../../../test/support/at.ts';
import {
  bytesOfSamples,
  divideByAlpha,
  type Samples,
} from '../../../src/picture/codecs/colour/samples.ts';

function divided<T extends Samples>(samples: T, channels?: 2 | 4, sampleMax?: number): number[] {
  divideByAlpha(samples, channels, sampleMax);
  return [...samples];
}

test('colours are divided by alpha and rounded, at any depth', t => {
  t.deepEqual(divided(Uint8Array.of(126, 68, 16, 134)), [240, 129, 30, 134]);
  t.deepEqual(divided(Uint8Array.of(1, 2, 3, 3)), [85, 170, 255, 3]);
  t.deepEqual(divided(Uint8Array.of(67, 134), 2), [128, 134]);
  t.deepEqual(divided(Uint16Array.of(16_384, 0, 32_768, 32_768)), [32_768, 0, 65_535, 32_768]);
  t.deepEqual(divided(Uint16Array.of(100, 200), 2, 1023), [512, 200]);
});

test('what is opaque stays, what is transparent has no colour, what is too bright is white', t => {
  t.deepEqual(divided(Uint8Array.of(1, 2, 3, 255)), [1, 2, 3, 255]);
  t.deepEqual(divided(Uint8Array.of(9, 99, 199, 0)), [0, 0, 0, 0]);
  t.deepEqual(divided(Uint8Array.of(200, 101, 99, 100)), [255, 255, 252, 100]);
});

test('every straight colour is restored within the loss of the multiplication', t => {
  for (let alpha = 1; alpha <= 255; alpha++) {
    for (let value = 0; value <= 255; value += 5) {
      const stored = Uint8Array.of(Math.round((value * alpha) / 255), alpha);
      const back = elementAt(divided(stored, 2), 0);
      t.true(Math.abs(back - value) <= 127.5 / alpha + 0.5, `${value} at ${alpha}: ${back}`);
    }
  }
});

test('16 bits come to 8 by rounding', t => {
  const bytes = bytesOfSamples(Uint16Array.of(0, 128, 129, 257, 65_406, 65_407, 65_535));
  t.deepEqual([...bytes], [0, 0, 1, 1, 254, 255, 255]);
});
