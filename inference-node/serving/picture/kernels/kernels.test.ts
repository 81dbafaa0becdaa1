import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { at as elementAt } from '@matting/test-support/at.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import { refineMatte } from '../../test/picture/refine-matte.ts';
import { findSubject } from '../finishing/subject.ts';
import { estimateForeground } from '../matte/foreground.ts';
import { borrowLevel, relax } from '../matte/foreground-level.ts';
import { expand, GuidedFilter, type Region } from '../matte/guided-filter.ts';
import { createModelInput } from '../matte/model-input.ts';
import {
  borrowCopy,
  bytesAt,
  floatsAt,
  kernels,
  pixelsAt,
  VECTOR_BYTES,
  withMemory,
} from './kernels.ts';

function noise(length: number, seed: number): Uint8Array {
  const random = new Random(seed);
  return Uint8Array.from({ length }, () => random.below(256));
}

test('the compiled kernels › take what their interface says: a wrong number of arguments would pass silently', t => {
  const source = readFileSync(new URL('./kernels.ts', import.meta.url), 'utf8');
  const text = source.slice(source.indexOf('interface Kernels {'));
  const declared = [...text.slice(0, text.indexOf('\n}')).matchAll(/^ {2}(\w+): \w+<(\d+)>;/gm)]
    .map(([, name, parameters]) => [name, Number(parameters)] as const)
    .sort();
  const exported = Object.entries(kernels)
    .filter(([, value]) => typeof value === 'function')
    .map(([name, value]) => [name, (value as () => void).length] as const)
    .sort();
  t.true(declared.length > 15);
  t.deepEqual(declared, exported);
});

test('the compiled kernels › lend memory that is whole, apart, aligned and free again afterwards', t => {
  const first = withMemory(borrow => {
    const one = borrow(3);
    const other = borrow(1_000_000);
    bytesAt(one, 3).fill(7);
    bytesAt(other, 1_000_000).fill(9);
    const inner = withMemory(borrow => borrow(5));
    t.is(
      withMemory(borrow => borrow(5)),
      inner,
    );
    for (const at of [one, other, inner]) t.is(at % VECTOR_BYTES, 0);
    t.deepEqual([...bytesAt(one, 3)], [7, 7, 7]);
    t.true(bytesAt(other, 1_000_000).every(value => value === 9));
    return one;
  });
  t.is(
    withMemory(borrow => borrow(3)),
    first,
  );
});

test('the compiled kernels › refuse to grow without bound, and go on', t => {
  const lend = () => withMemory(borrow => borrow(2 ** 30));
  t.throws(lend, { instanceOf: RangeError });
  t.true(withMemory(borrow => borrowCopy(borrow, noise(10, 1)) > 0));
});

test('memory of the kernels › does not grow with the picture', t => {
  const matte = (side: number, role: 'subject' | 'opinion') => {
    const alpha = noise(side * side, side);
    return { alpha, width: side, height: side, role };
  };
  const mattes = [matte(1024, 'subject'), matte(640, 'opinion')];
  for (const [width, height] of [
    [10_000, 1],
    [1, 10_000],
    [10_000, 150],
    // The largest picture whose working size is its own.
    [1448, 1448],
  ] as const) {
    for (const translucent of [false, true]) {
      const rgba = new Uint32Array(width * height).fill(translucent ? 0x80808080 : 0xff808080);
      const picture = { rgba, width, height, translucent };
      createModelInput(picture, { width: 1024, height: 1024 });
      const alpha = refineMatte(mattes, picture);
      estimateForeground(picture, alpha);
      findSubject(alpha, picture);
      const bytes = kernels.memory.buffer.byteLength;
      t.true(bytes <= 48_000_000, `${bytes} after ${width}x${height}`);
    }
  }
});

/** He, Sun and Tang's filter, literally and in double precision. */
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

test('the guided filter › fits what the paper says, in any region of any picture, also smaller than its window', t => {
  const cases = fc.record({
    width: fc.integer({ min: 1, max: 24 }),
    height: fc.integer({ min: 1, max: 24 }),
    radius: fc.integer({ min: 1, max: 8 }),
    left: fc.double({ min: 0, max: 0.999, noNaN: true }),
    top: fc.double({ min: 0, max: 0.999, noNaN: true }),
    seed: fc.integer({ min: 0, max: 1000 }),
  });
  holds(
    t,
    [cases],
    ({ width, height, radius, left, top, seed }) => {
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
        return Float32Array.from(floatsAt(models, 4 * region.width * region.height));
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
    },
    { numRuns: 40 },
  );
});

test('the guided filter › does not drift: white over white for a whole tile leaves nothing behind', t => {
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
    return Float32Array.from(floatsAt(fitted, 4 * 98 * 98));
  });
  for (let i = 0; i < models.length; i += 4) {
    const weights = [...models.subarray(i, i + 3)];
    for (const weight of weights) t.true(Math.abs(weight) < 1e-3);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    t.true(Math.abs(sum * 255 + elementAt(models, i + 3) - 255) < 0.01);
  }
});

/** A round of Germer's solver, literally and in double precision. */
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
      const weights = around.map(n => 0.005 + 0.02 * Math.abs(a - elementAt(seen, 4 * n + 3)));
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

test('foreground estimation › solves what the paper says', t => {
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
        t.true(close, `${plane} ${i}`);
      }
    }
  }
});

test('the uncertainty around a pixel › is counted in its window, clipped at the border', t => {
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
      t.is(share, Math.fround(uncertain / all));
    }
  }
});

test('kernels of whole planes › give what the same loops give in JavaScript', t => {
  const product = (one: number, other: number) => Math.round((one * other) / 255);
  const [width, height] = [37, 5];
  const [one, look, shares] = [1, 2, 3].map(seed => noise(width * height, seed)) as Three;
  const soft = Float32Array.from(shares, share => share / 255);
  const byte = (i: number) => elementAt(look, i);
  const softAt = (i: number) => {
    const share = elementAt(soft, i);
    return share <= 0.2 ? 0 : Math.fround(Math.min(1, (share - 0.2) / 0.5));
  };
  const weight = (value: number) => ((2 * value) / 255 - 1) ** 2 + 0.05;
  const count = one.length;
  const cases: Record<
    string,
    [(at: number, lend: Lend) => void, (own: number, i: number) => number]
  > = {
    scaleBytes: [
      (at, lend) => kernels.scaleBytes(at, lend(shares), count),
      (own, i) => product(own, elementAt(shares, i)),
    ],
    raise: [
      (at, lend) => kernels.raise(at, lend(look), lend(shares), count),
      (own, i) => Math.max(own, product(byte(i), elementAt(shares, i))),
    ],
    raiseTo: [
      (at, lend) => kernels.raiseTo(at, lend(look), count),
      (own, i) => Math.max(own, byte(i)),
    ],
    lower: [
      (at, lend) => kernels.lower(at, lend(look), lend(shares), count),
      (own, i) => own - product(Math.max(0, own - byte(i)), elementAt(shares, i)),
    ],
    averageLooks: [
      (at, lend) => {
        const others = lend(Int32Array.of(lend(look), lend(shares)));
        kernels.averageLooks(others, 2, lend(soft), at, count, 0.2, 0.7);
      },
      (own, i) => (own + softAt(i) * (byte(i) + elementAt(shares, i))) / (1 + 2 * softAt(i)),
    ],
    hearOpinion: [
      (at, lend) => kernels.hearOpinion(lend(look), lend(soft), at, count, 0.2, 0.7, 0.05),
      (own, i) => {
        const alike = 1 - (Math.abs((2 * own) / 255 - 1) * Math.abs(own - byte(i))) / 255;
        const other = softAt(i) * weight(byte(i)) * alike;
        return (weight(own) * own + other * byte(i)) / (weight(own) + other);
      },
    ],
  };
  for (const [name, [run, expected]] of Object.entries(cases)) {
    const made = changed([...one], (lend, at) => run(at, lend));
    t.deepEqual(
      made,
      [...one].map((own, i) => Math.round(expected(own, i))),
      name,
    );
  }
  withMemory(borrow => {
    const [a, b] = [borrowCopy(borrow, one), borrowCopy(borrow, look)];
    const both = one.filter((value, i) => value >= 128 && byte(i) >= 128).length;
    t.is(kernels.countBoth(a, b, count), both);
    for (const [i, value] of one.entries()) {
      t.is(kernels.anyWithin(a + i, width, 1, 1, value, value), 1);
      t.is(
        kernels.anyWithin(a, count, i, 1, value, value),
        Number(one.subarray(0, i).includes(value)),
      );
    }
  });
});

// Kernels that move values between planes: a mean over a photo would hide mistakes.

/** Four floats identify each pixel. */
const plane = (width: number, height: number) =>
  Float32Array.from({ length: 4 * width * height }, (_, i) => 10 * (i >> 2) + (i % 4));
const lanes = (value: number) => [0, 1, 2, 3].map(lane => value + lane);
const values = (floats: Float32Array) => [...floats].map(value => Math.round(value * 100) / 100);

type Three = [Uint8Array, Uint8Array, Uint8Array];
type Lend = (data: Parameters<typeof borrowCopy>[1]) => number;

function written(count: number, run: (lend: Lend, out: number) => void): number[] {
  return withMemory(borrow => {
    const out = borrow(4 * count);
    run(data => borrowCopy(borrow, data), out);
    return values(floatsAt(out, count));
  });
}

function changed(bytes: readonly number[], run: (lend: Lend, at: number) => void): number[] {
  return withMemory(borrow => {
    const at = borrowCopy(borrow, Uint8Array.from(bytes));
    run(data => borrowCopy(borrow, data), at);
    return [...bytesAt(at, bytes.length)];
  });
}

test('planes › halve: four make one, at an odd border two or one', t => {
  const out = written(16, (lend, coarse) => kernels.halve(lend(plane(3, 3)), 3, 3, coarse));
  const mean = (...cells: number[]) => lanes(cells.reduce((a, b) => a + b) / cells.length);
  t.deepEqual(out, [...mean(0, 10, 30, 40), ...mean(20, 50), ...mean(60, 70), ...lanes(80)]);
});

test('planes › sumCells: the sums of those, and no cell twice', t => {
  const ones = plane(3, 3).fill(1);
  const out = written(16, (lend, coarse) => kernels.sumCells(lend(ones), 3, 3, coarse));
  t.deepEqual(
    out,
    [4, 2, 2, 1].flatMap(count => Array(4).fill(count)),
  );
});

test('planes › enlarge: each gets the one that it lies in', t => {
  const out = written(60, (lend, fine) => kernels.enlarge(lend(plane(2, 3)), fine, 3, 5));
  const cells = [0, 0, 1, 0, 0, 1, 2, 2, 3, 2, 2, 3, 4, 4, 5];
  t.deepEqual(
    out,
    cells.flatMap(cell => lanes(10 * cell)),
  );
});

test('planes › meansOfCells: means of the pixels of each cell, alpha from 0 to 1', t => {
  const out = written(8, (lend, seen) => {
    const starts = lend(Int32Array.of(0, 1, 4));
    const row = [10, 20, 30, 9, 1, 2, 3, 9, 3, 4, 5, 9, 5, 6, 7, 9];
    const pixels = lend(Uint8Array.of(...row, ...row));
    const alpha = lend(Uint8Array.of(255, 0, 0, 0, 0, 255, 255, 255));
    const sums = [lend(new Uint8Array(160)), lend(new Uint8Array(40))] as const;
    kernels.meansOfCells(pixels, alpha, 4, 2, starts, 2, ...sums, seen);
  });
  t.deepEqual(out, [10, 20, 30, 0.5, 3, 4, 5, 0.5]);
});

test('planes › addVisible: sums by opacity; what is hidden adds nothing', t => {
  const out = written(8, (lend, sums) => {
    const starts = lend(Int32Array.of(0, 1, 3));
    const pixels = lend(Uint8Array.of(10, 20, 30, 0, 1, 2, 3, 255, 100, 0, 50, 51));
    floatsAt(sums, 8).fill(0);
    for (let row = 0; row < 2; row++) kernels.addVisible(pixels, starts, 2, sums);
  });
  const each = [255 + 5100, 510, 765 + 2550, 306].map(value => 2 * value);
  t.deepEqual(out, [0, 0, 0, 0, ...each]);
});

test('planes › carryOn: means of what is known, and by how little is known of the coarser cell', t => {
  const out = written(16, (lend, fine) => {
    floatsAt(fine, 16).set([0, 0, 0, 0, 600, 600, 600, 3, 60, 60, 60, 1, 0, 0, 0, 0]);
    kernels.carryOn(fine, 2, 2, lend(Float32Array.of(10, 20, 30, 1)), 2, 0);
  });
  const carried = [10, 20, 30, 1];
  const mixed = (sum: number, known: number) =>
    carried.map((value, i) => (i === 3 ? 1 : (sum + 2 * value) / (known + 2)));
  const expected = [...carried, ...mixed(600, 3), ...mixed(60, 1), ...carried];
  t.deepEqual(out, values(Float32Array.from(expected)));
});

test('planes › carryOn: leaves cells alone that are all opaque or all transparent', t => {
  const out = written(12, (lend, fine) => {
    floatsAt(fine, 12).set([6, 6, 6, 3, 6, 6, 6, 3, 6, 6, 6, 3]);
    const seen = lend(Float32Array.of(9, 9, 9, 0, 9, 9, 9, 0.5, 9, 9, 9, 1));
    kernels.carryOn(fine, 3, 1, lend(Float32Array.of(2, 2, 2, 1, 2, 2, 2, 1)), 2, seen);
  });
  t.deepEqual(out, values(Float32Array.of(6, 6, 6, 3, 2, 2, 2, 1, 6, 6, 6, 3)));
});

test('planes › peaksOfCells: the greatest byte of each cell, also of a narrow last one', t => {
  const [width, height] = [50, 9];
  const bytes = noise(width * height, 4).map(value => (value < 230 ? 0 : value));
  const starts = [0, 17, 34, 50];
  const peaks = withMemory(borrow => {
    const out = borrow(9);
    const columns = borrowCopy(borrow, Int32Array.from(starts));
    const from = borrowCopy(borrow, bytes);
    kernels.peaksOfCells(from, width, height, columns, 3, 3, borrow(width), out);
    return [...bytesAt(out, 9)];
  });
  const expected = peaks.map((_, cell) => {
    const [left = 0, right = 0] = starts.slice(cell % 3);
    const isIn = (i: number) => i % width >= left && i % width < right;
    return Math.max(
      ...bytes.filter((_, i) => isIn(i) && Math.floor(i / width / 3) === Math.floor(cell / 3)),
    );
  });
  t.deepEqual(peaks, expected);
});

test('rows of the picture › layOver: composites over the cell beneath; hidden colours do not count', t => {
  const rgba = [9, 99, 199, 255, 9, 99, 199, 0, 100, 0, 50, 51, 255, 255, 255, 0];
  const out = changed(rgba, (lend, pixels) => {
    const beneath = lend(Float32Array.of(1.4, 2.6, 3, 1, 200, 100, 0, 1));
    kernels.layOver(pixels, 4, lend(Int32Array.of(0, 0, 1, 1)), beneath);
  });
  t.deepEqual(out, [9, 99, 199, 255, 1, 3, 3, 0, 180, 80, 10, 51, 200, 100, 0, 0]);
});

test("rows of the picture › loadRows: certain pixels get their own colour, the others their cell's", t => {
  const { seen, foreground, background } = withMemory(borrow => {
    const rgb = [1, 2, 3, 255, 4, 5, 6, 255, 7, 8, 9, 255];
    const pixels = borrowCopy(borrow, Uint8Array.from(rgb));
    const alpha = borrowCopy(borrow, Uint8Array.of(5, 51, 250));
    const cells = borrowCopy(borrow, Int32Array.of(1, 0, 1));
    const cellsOf = (base: number) =>
      borrowCopy(
        borrow,
        plane(2, 1).map(value => base + value),
      );
    const grid = { foreground: cellsOf(100), background: cellsOf(200) };
    const [seen, foreground, background] = [borrow(16 * 3), borrow(16 * 3), borrow(16 * 3)];
    const of = [
      cells,
      borrowCopy(borrow, Int32Array.of(0)),
      grid.foreground,
      grid.background,
    ] as const;
    const made = [borrow(8), seen, foreground, background] as const;
    kernels.loadRows(pixels, alpha, 3, 3, 1, ...of, 5, 250, ...made);
    const read = (at: number) => values(floatsAt(at, 12));
    return { seen: read(seen), foreground: read(foreground), background: read(background) };
  });
  t.deepEqual(seen, [1, 2, 3, 0, 4, 5, 6, 0.2, 7, 8, 9, 1]);
  const three = (plane: number[]) => [0, 4, 8].map(at => plane.slice(at, at + 3).join(' '));
  t.deepEqual(three(foreground), ['110 111 112', '100 101 102', '7 8 9']);
  t.deepEqual(three(background), ['1 2 3', '200 201 202', '210 211 212']);
});

test('rows of the picture › storeRows: alpha and agreement weigh the estimate; certain and translucent pixels stay', t => {
  const kept = [100, 100, 100, 255];
  const rgba = [...kept, ...kept, 100, 0, 250, 255, ...kept, 9, 9, 9, 128];
  const out = changed(rgba, (lend, pixels) => {
    const alpha = lend(Uint8Array.of(5, 250, 102, 102, 102));
    const planes = [200, 100].map(value => lend(new Float32Array(20).fill(value)));
    const cells = lend(Int32Array.of(0, 0, 0, 1, 0));
    const colours = (value: number) => lend(Float32Array.of(value, value, value, 1, 0, 0, 0, 0));
    const [foreground = 0, background = 0] = planes;
    const seen = [foreground, background, 5, 5, 250, cells, lend(Int32Array.of(0))] as const;
    const known = [colours(218), colours(112), 0.15, 0.1, 20] as const;
    const changes = lend(new Uint8Array(40));
    const count = kernels.storeRows(pixels, alpha, 5, 5, 1, ...seen, ...known, changes);
    const made = pixelsAt(changes, 2 * count);
    for (let i = 0; i < 2 * count; i += 2) pixelsAt(pixels, 5)[made[i]!] = made[i + 1]!;
  });
  // Both agree by half: 0.4 + 0.6 * 0.25 of the way.
  t.deepEqual(out, [...kept, ...kept, 155, 110, 222, 255, 200, 200, 200, 255, 9, 9, 9, 128]);
});

test('rows of the picture › takeCertain: colours of cells that are certain, the others without a weight', t => {
  const out = withMemory(borrow => {
    const seen = borrowCopy(borrow, Float32Array.of(1, 2, 3, 0, 4, 5, 6, 0.5, 7, 8, 9, 1));
    const [subject, ground] = [borrow(48), borrow(48)];
    kernels.takeCertain(seen, 3, 5, 250, subject, ground);
    return [values(floatsAt(subject, 12)), values(floatsAt(ground, 12))];
  });
  const none = [0, 0, 0, 0];
  t.deepEqual(out, [
    [...none, ...none, 7, 8, 9, 1],
    [1, 2, 3, 1, ...none, ...none],
  ]);
});

test('rows of the picture › answerRow: between two functions, and nothing that is nearly certain', t => {
  const out = changed([128, 128, 128, 5, 250, 32], (lend, alpha) => {
    // alpha = red, and alpha = 3 red + 4 green.
    const upper = lend(Float32Array.of(0, 0, 0, 0, 2, 4, 0, 0));
    const lower = lend(Float32Array.of(4, 0, 0, 0, 6, 4, 0, 0));
    const both = [lend(new Int32Array(6)), lend(new Int32Array(6).fill(1))] as const;
    const shares = lend(Float32Array.of(0, 1, 0.5, 0, 0, 0));
    const pixels = lend(new Uint8Array(24).fill(20));
    kernels.answerRow(upper, lower, 0.25, ...both, shares, pixels, alpha, 6, 5, 4);
  });
  // At 32 the answer has weight 4 * 32 / 255.
  t.deepEqual(out, [20, 140, 80, 5, 250, Math.round(32 + (128 / 255) * (20 - 32))]);
});
