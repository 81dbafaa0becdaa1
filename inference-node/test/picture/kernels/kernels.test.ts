import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { at as elementAt } from '../../../../test/support/at.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import {
  borrowCopy,
  bytesAt,
  floatsAt,
  kernels,
  VECTOR_BYTES,
  withMemory,
} from '../../../src/picture/kernels/kernels.ts';
import { estimateForeground } from '../../../src/picture/matte/foreground.ts';
import { borrowLevel, relax } from '../../../src/picture/matte/foreground-level.ts';
import { expand, GuidedFilter, type Region } from '../../../src/picture/matte/guided-filter.ts';
import { createModelInput } from '../../../src/picture/matte/model-input.ts';
import { refineMatte } from '../../../src/picture/matte/refine.ts';

/** The same bytes on every run. */
function noise(length: number, seed: number): Uint8Array {
  let state = seed * 2654435761 + 1;
  return Uint8Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return state >>> 24;
  });
}

describe('the compiled kernels', () => {
  it('take what their interface says: a wrong number of arguments would pass silently', () => {
    const source = readFileSync(
      new URL('../../../src/picture/kernels/kernels.ts', import.meta.url),
      'utf8',
    );
    const text = source.slice(source.indexOf('interface Kernels {'));
    const declared = [...text.slice(0, text.indexOf('\n}')).matchAll(/^ {2}(\w+)\(([^)]*)\)/gm)]
      .map(([, name, parameters = '']) => [name, parameters.split(':').length - 1] as const)
      .sort();
    const exported = Object.entries(kernels)
      .filter(([, value]) => typeof value === 'function')
      .map(([name, value]) => [name, (value as () => void).length] as const)
      .sort();
    assert.ok(declared.length > 15);
    assert.deepEqual(declared, exported);
  });

  it('lend memory that is whole, apart, aligned and free again afterwards', () => {
    const first = withMemory(borrow => {
      const one = borrow(3);
      const other = borrow(1_000_000);
      bytesAt(one, 3).fill(7);
      bytesAt(other, 1_000_000).fill(9);
      const inner = withMemory(borrow => borrow(5));
      assert.equal(
        withMemory(borrow => borrow(5)),
        inner,
      );
      for (const at of [one, other, inner]) assert.equal(at % VECTOR_BYTES, 0);
      assert.deepEqual([...bytesAt(one, 3)], [7, 7, 7]);
      assert.ok(bytesAt(other, 1_000_000).every(value => value === 9));
      return one;
    });
    assert.equal(
      withMemory(borrow => borrow(3)),
      first,
    );
  });

  it('refuse to grow without bound, and go on', () => {
    const lend = () => withMemory(borrow => borrow(2 ** 30));
    assert.throws(lend, RangeError);
    assert.equal(
      withMemory(borrow => borrowCopy(borrow, noise(10, 1)) > 0),
      true,
    );
  });
});

describe('memory of the kernels', () => {
  it('does not grow with the picture', () => {
    const matte = (side: number, role: 'subject' | 'opinion') => {
      const alpha = noise(side * side, side);
      return { alpha, width: side, height: side, role };
    };
    const mattes = [matte(1024, 'subject'), matte(640, 'opinion')];
    for (const [width, height] of [
      [10_000, 1],
      [1, 10_000],
      [10_000, 150],
      // The largest whose working size is its own.
      [1448, 1448],
    ] as const) {
      for (const translucent of [false, true]) {
        const rgba = new Uint32Array(width * height).fill(translucent ? 0x80808080 : 0xff808080);
        const picture = { rgba, width, height, translucent };
        createModelInput(picture, { width: 1024, height: 1024 });
        estimateForeground(picture, refineMatte(mattes, picture));
        const bytes = kernels.memory.buffer.byteLength;
        assert.ok(bytes <= 48_000_000, `${bytes} after ${width}x${height}`);
      }
    }
  });
});

/** He, Sun and Tang's filter as it is written, in double precision: the function of one pixel. */
function modelAt(
  { guide, alpha, width, height }: ReturnType<typeof drawn>,
  atX: number,
  atY: number,
  radius: number,
): number[] {
  const near = (at: number, length: number) => {
    const from = Math.max(0, at - radius);
    const to = Math.min(length - 1, at + radius);
    return Array.from({ length: to - from + 1 }, (_, i) => from + i);
  };
  const fitted = (x: number, y: number) => {
    const pixels = near(y, height).flatMap(v => near(x, width).map(u => v * width + u));
    const mean = (of: (at: number) => number) =>
      pixels.reduce((sum, at) => sum + of(at), 0) / pixels.length;
    const colour = (c: number) => (at: number) => elementAt(guide, 4 * at + c) / 255;
    const opacity = (at: number) => elementAt(alpha, at) / 255;
    const means = [0, 1, 2].map(c => mean(colour(c)));
    const meanAlpha = mean(opacity);
    const rows = [0, 1, 2].map(c => [
      ...[0, 1, 2].map(
        d =>
          mean(at => colour(c)(at) * colour(d)(at)) -
          elementAt(means, c) * elementAt(means, d) +
          (c === d ? 2.5e-5 : 0),
      ),
      mean(at => colour(c)(at) * opacity(at)) - elementAt(means, c) * meanAlpha,
    ]);
    // Gauss and Jordan.
    for (const c of [0, 1, 2]) {
      const pivot = elementAt(rows, c);
      const scaled = pivot.map(value => value / elementAt(pivot, c));
      rows[c] = scaled;
      for (const [d, row] of rows.entries()) {
        const factor = elementAt(row, c);
        if (d !== c) rows[d] = row.map((value, i) => value - factor * elementAt(scaled, i));
      }
    }
    const weights = rows.map(row => elementAt(row, 3));
    const rest = weights.reduce((sum, weight, c) => sum - weight * elementAt(means, c), meanAlpha);
    return [...weights, rest];
  };
  const all = near(atY, height).flatMap(y => near(atX, width).map(x => fitted(x, y)));
  return [0, 1, 2, 3].map(
    i => all.reduce((sum, model) => sum + elementAt(model, i), 0) / all.length,
  );
}

function drawn(width: number, height: number, seed: number) {
  const guide = noise(4 * width * height, seed);
  // Smooth, with a step and a little noise, and a random fourth byte.
  for (let i = 0; i < width * height; i++) {
    const base = (i % width) * 4 < width * 2 ? 40 : 200;
    for (const c of [0, 1, 2]) guide[4 * i + c] = base + (elementAt(guide, 4 * i + c) & 31);
  }
  return { guide, alpha: noise(width * height, seed + 1), width, height };
}

describe('the guided filter', () => {
  it('fits what the paper says, in any region of any picture, also smaller than its window', () => {
    const cases = fc.record({
      width: fc.integer({ min: 1, max: 24 }),
      height: fc.integer({ min: 1, max: 24 }),
      radius: fc.integer({ min: 1, max: 8 }),
      left: fc.double({ min: 0, max: 0.999, noNaN: true }),
      top: fc.double({ min: 0, max: 0.999, noNaN: true }),
      seed: fc.integer({ min: 0, max: 1000 }),
    });
    fc.assert(
      fc.property(cases, ({ width, height, radius, left, top, seed }) => {
        const picture = drawn(width, height, seed);
        const corner = { left: Math.floor(left * width), top: Math.floor(top * height) };
        const region: Region = expand({ ...corner, width: 1, height: 1 }, 3, { width, height });
        const found = withMemory(borrow => {
          const source = {
            guide: borrowCopy(borrow, picture.guide),
            alpha: borrowCopy(borrow, picture.alpha),
            width,
            height,
          };
          const models = new GuidedFilter(borrow, 7, radius).fit(source, region);
          return Float32Array.from(floatsAt(models.at, 4 * region.width * region.height));
        });
        for (let i = 0; i < region.width * region.height; i++) {
          const x = region.left + (i % region.width);
          const y = region.top + Math.floor(i / region.width);
          const wanted = modelAt(picture, x, y, radius);
          for (const [c, value] of wanted.entries()) {
            const answer = elementAt(found, 4 * i + c) / (c === 3 ? 255 : 1);
            const tolerance = 5e-4 * Math.max(1, Math.abs(value));
            assert.ok(Math.abs(answer - value) < tolerance, `${x},${y} ${c}: ${answer}, ${value}`);
          }
        }
      }),
      { numRuns: 40 },
    );
  });

  it('does not drift: white over white for a whole tile leaves nothing behind', () => {
    const size = { width: 120, height: 120 };
    const guide = new Uint8Array(4 * 120 * 120).fill(255);
    const alpha = new Uint8Array(120 * 120).fill(255);
    const models = withMemory(borrow => {
      const source = {
        guide: borrowCopy(borrow, guide),
        alpha: borrowCopy(borrow, alpha),
        ...size,
      };
      const region = { left: 11, top: 11, width: 98, height: 98 };
      const fitted = new GuidedFilter(borrow, 98, 8).fit(source, region);
      return Float32Array.from(floatsAt(fitted.at, 4 * 98 * 98));
    });
    for (let i = 0; i < models.length; i += 4) {
      const weights = [...models.subarray(i, i + 3)];
      for (const weight of weights) assert.ok(Math.abs(weight) < 1e-3);
      const sum = weights.reduce((total, weight) => total + weight, 0);
      assert.ok(Math.abs(sum * 255 + elementAt(models, i + 3) - 255) < 0.01);
    }
  });
});

/** One round of Germer's solver as it is written, in double precision. */
function relaxed(
  seen: Float64Array,
  [foreground, background]: readonly [Float64Array, Float64Array],
  width: number,
  height: number,
) {
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = y * width + x;
      const a = elementAt(seen, 4 * at + 3);
      const around = [
        x > 0 ? at - 1 : at,
        x < width - 1 ? at + 1 : at,
        y > 0 ? at - width : at,
        y < height - 1 ? at + width : at,
      ];
      const weights = around.map(n => 0.02 + 0.02 * Math.abs(a - elementAt(seen, 4 * n + 3)));
      const sum = weights.reduce((total, weight) => total + weight, 0);
      const ff = a * a + sum;
      const fb = a * (1 - a);
      const bb = (1 - a) * (1 - a) + sum;
      for (let c = 0; c < 3; c++) {
        const from = (plane: Float64Array) =>
          around.reduce(
            (total, n, i) => total + elementAt(weights, i) * elementAt(plane, 4 * n + c),
            0,
          );
        const f = a * elementAt(seen, 4 * at + c) + from(foreground);
        const g = (1 - a) * elementAt(seen, 4 * at + c) + from(background);
        const scale = 1 / (ff * bb - fb * fb);
        const clamp = (value: number) => Math.min(255, Math.max(0, value));
        foreground[4 * at + c] = clamp((bb * f - fb * g) * scale);
        background[4 * at + c] = clamp((ff * g - fb * f) * scale);
      }
    }
  }
}

describe('foreground estimation', () => {
  it('solves what the paper says', () => {
    for (const [width, height] of [
      [1, 1],
      [1, 9],
      [9, 1],
      [13, 7],
    ] as const) {
      const start = (seed: number) => Float64Array.from(noise(4 * width * height, seed));
      const seen = start(1).map((value, i) => (i % 4 === 3 ? value / 255 : value));
      const wanted = [start(2), start(3)] as const;
      const found = withMemory(borrow => {
        const level = borrowLevel(borrow, { width, height });
        floatsAt(level.seen, seen.length).set(seen);
        floatsAt(level.foreground, seen.length).set(wanted[0]);
        floatsAt(level.background, seen.length).set(wanted[1]);
        relax(level, 3, false);
        return [level.foreground, level.background].map(at =>
          Float32Array.from(floatsAt(at, seen.length)),
        );
      });
      for (let round = 0; round < 3; round++) relaxed(seen, wanted, width, height);
      for (const [plane, values] of wanted.entries()) {
        for (const [i, value] of values.entries()) {
          if (i % 4 === 3) continue;
          const close = Math.abs(elementAt(elementAt(found, plane), i) - value) < 0.05;
          assert.ok(close, `${plane} ${i}`);
        }
      }
    }
  });
});

describe('how uncertain a matte is around a pixel', () => {
  it('is counted in its window, clipped at the border', () => {
    for (const [width, height, reach] of [
      [1, 1, 3],
      [20, 1, 2],
      [17, 11, 1],
      [5, 6, 8],
    ] as const) {
      const alpha = noise(width * height, width);
      const shares = withMemory(borrow => {
        const out = borrow(4 * alpha.length);
        const counts = borrow(4 * width);
        const at = borrowCopy(borrow, alpha);
        kernels.uncertainShares(at, width, height, reach, 80, 200, counts, out);
        return Float32Array.from(floatsAt(out, alpha.length));
      });
      for (const [at, share] of shares.entries()) {
        let uncertain = 0;
        let all = 0;
        for (const [other, value] of alpha.entries()) {
          const across = Math.abs((other % width) - (at % width));
          const down = Math.abs(Math.floor(other / width) - Math.floor(at / width));
          if (across > reach || down > reach) continue;
          all += 1;
          if (value > 80 && value < 200) uncertain += 1;
        }
        assert.equal(share, Math.fround(uncertain / all));
      }
    }
  });
});
