/** The kernels that move values between planes, each alone: what a mean over a photo would hide. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at as elementAt } from '../../../../test/support/at.ts';
import {
  borrowCopy,
  bytesAt,
  floatsAt,
  kernels,
  withMemory,
} from '../../../src/picture/kernels/kernels.ts';

/** For each pixel of a plane four floats that identify it. */
const plane = (width: number, height: number) =>
  Float32Array.from({ length: 4 * width * height }, (_, i) => 10 * (i >> 2) + (i % 4));
const lanes = (value: number) => [0, 1, 2, 3].map(lane => value + lane);
const values = (floats: Float32Array) => [...floats].map(value => Math.round(value * 100) / 100);

describe('planes', () => {
  it('halve: four make one, at an odd border two or one', () => {
    const out = withMemory(borrow => {
      const fine = borrowCopy(borrow, plane(3, 3));
      const coarse = borrow(16 * 4);
      kernels.halve(fine, 3, 3, coarse);
      return values(floatsAt(coarse, 16));
    });
    const mean = (...cells: number[]) => lanes(cells.reduce((a, b) => a + b) / cells.length);
    assert.deepEqual(out, [...mean(0, 10, 30, 40), ...mean(20, 50), ...mean(60, 70), ...lanes(80)]);
  });

  it('sumCells: the sums of those, and no cell twice', () => {
    const out = withMemory(borrow => {
      const fine = borrowCopy(borrow, plane(3, 3).fill(1));
      const coarse = borrow(16 * 4);
      kernels.sumCells(fine, 3, 3, coarse);
      return values(floatsAt(coarse, 16));
    });
    assert.deepEqual(
      out,
      [4, 2, 2, 1].flatMap(count => Array(4).fill(count)),
    );
  });

  it('enlarge: each gets the one that it lies in', () => {
    const out = withMemory(borrow => {
      const coarse = borrowCopy(borrow, plane(2, 3));
      const fine = borrow(16 * 3 * 5);
      kernels.enlarge(coarse, fine, 3, 5);
      return values(floatsAt(fine, 4 * 3 * 5));
    });
    const cells = [0, 0, 1, 0, 0, 1, 2, 2, 3, 2, 2, 3, 4, 4, 5];
    assert.deepEqual(
      out,
      cells.flatMap(cell => lanes(10 * cell)),
    );
  });

  it('addToCells, meanOfCells: means of the pixels of each cell, alpha from 0 to 1', () => {
    const out = withMemory(borrow => {
      const starts = borrowCopy(borrow, Int32Array.of(0, 1, 4));
      const pixels = borrowCopy(
        borrow,
        Uint8Array.of(10, 20, 30, 9, 1, 2, 3, 9, 3, 4, 5, 9, 5, 6, 7, 9),
      );
      const seen = borrowCopy(borrow, new Float32Array(8));
      for (const alphas of [
        [255, 0, 0, 0],
        [0, 255, 255, 255],
      ]) {
        const alpha = borrowCopy(borrow, Uint8Array.from(alphas));
        kernels.addToCells(pixels, alpha, starts, 2, seen);
      }
      kernels.meanOfCells(starts, 2, 2, seen);
      return values(floatsAt(seen, 8));
    });
    assert.deepEqual(out, [10, 20, 30, 0.5, 3, 4, 5, 0.5]);
  });

  it('addVisible: sums by opacity; what is hidden adds nothing', () => {
    const out = withMemory(borrow => {
      const starts = borrowCopy(borrow, Int32Array.of(0, 1, 3));
      const rgba = [10, 20, 30, 0, 1, 2, 3, 255, 100, 0, 50, 51];
      const pixels = borrowCopy(borrow, Uint8Array.from(rgba));
      const sums = borrowCopy(borrow, new Float32Array(8));
      for (let row = 0; row < 2; row++) kernels.addVisible(pixels, starts, 2, sums);
      return values(floatsAt(sums, 8));
    });
    const each = [255 + 5100, 510, 765 + 2550, 306].map(value => 2 * value);
    assert.deepEqual(out, [0, 0, 0, 0, ...each]);
  });

  it('carryOn: means of what is known, and by how little is known of the coarser cell', () => {
    const out = withMemory(borrow => {
      const coarse = borrowCopy(borrow, Float32Array.of(10, 20, 30, 1));
      const fine = borrowCopy(
        borrow,
        Float32Array.of(0, 0, 0, 0, 600, 600, 600, 3, 60, 60, 60, 1, 0, 0, 0, 0),
      );
      kernels.carryOn(fine, 2, 2, coarse, 2);
      return values(floatsAt(fine, 16));
    });
    const carried = [10, 20, 30, 1];
    const mixed = (sum: number, known: number) =>
      carried.map((value, i) => (i === 3 ? 1 : (sum + 2 * value) / (known + 2)));
    const expected = [...carried, ...mixed(600, 3), ...mixed(60, 1), ...carried];
    assert.deepEqual(out, values(Float32Array.from(expected)));
  });
});

describe('rows of the picture', () => {
  it('layOver: composites over the cell beneath; hidden colours do not count', () => {
    const out = withMemory(borrow => {
      const rgba = [9, 99, 199, 255, 9, 99, 199, 0, 100, 0, 50, 51, 255, 255, 255, 0];
      const pixels = borrowCopy(borrow, Uint8Array.from(rgba));
      const cells = borrowCopy(borrow, Int32Array.of(0, 0, 1, 1));
      const beneath = borrowCopy(borrow, Float32Array.of(1.4, 2.6, 3, 1, 200, 100, 0, 1));
      kernels.layOver(pixels, 4, cells, beneath);
      return [...bytesAt(pixels, 16)];
    });
    assert.deepEqual(out, [9, 99, 199, 255, 1, 3, 3, 0, 180, 80, 10, 51, 200, 100, 0, 0]);
  });

  it("loadRow: certain pixels get their own colour, the others their cell's", () => {
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
      kernels.loadRow(
        pixels,
        alpha,
        3,
        cells,
        grid.foreground,
        grid.background,
        5,
        250,
        seen,
        foreground,
        background,
      );
      const read = (at: number) => values(floatsAt(at, 12));
      return { seen: read(seen), foreground: read(foreground), background: read(background) };
    });
    assert.deepEqual(seen, [1, 2, 3, 0, 4, 5, 6, 0.2, 7, 8, 9, 1]);
    const three = (plane: number[]) => [0, 4, 8].map(at => plane.slice(at, at + 3).join(' '));
    assert.deepEqual(three(foreground), ['110 111 112', '100 101 102', '7 8 9']);
    assert.deepEqual(three(background), ['1 2 3', '200 201 202', '210 211 212']);
  });

  it('storeRow: alpha and agreement weigh the estimate; certain and translucent pixels stay', () => {
    const out = withMemory(borrow => {
      const kept = [100, 100, 100, 255];
      const rgb = [...kept, ...kept, 100, 0, 250, 255, ...kept, 9, 9, 9, 128];
      const pixels = borrowCopy(borrow, Uint8Array.from(rgb));
      const alpha = borrowCopy(borrow, Uint8Array.of(5, 250, 102, 102, 102));
      const foreground = borrowCopy(borrow, new Float32Array(20).fill(200));
      const background = borrowCopy(borrow, new Float32Array(20).fill(100));
      const cells = borrowCopy(borrow, Int32Array.of(0, 0, 0, 1, 0));
      // The second is known nowhere.
      const colours = (value: number) => Float32Array.of(value, value, value, 1, 0, 0, 0, 0);
      const subject = borrowCopy(borrow, colours(218));
      const ground = borrowCopy(borrow, colours(112));
      const planes = [foreground, background] as const;
      kernels.storeRow(pixels, alpha, 5, ...planes, 5, 250, cells, subject, ground, 0.15, 0.1, 20);
      return [...bytesAt(pixels, 20)];
    });
    // Both agree by half: 0.4 + 0.6 * 0.25 of the way.
    const kept = [100, 100, 100, 255, 100, 100, 100, 255];
    assert.deepEqual(out, [...kept, 155, 110, 222, 255, 200, 200, 200, 255, 9, 9, 9, 128]);
  });

  it('takeCertain: colours of cells that are certain, the others without a weight', () => {
    const out = withMemory(borrow => {
      const seen = borrowCopy(borrow, Float32Array.of(1, 2, 3, 0, 4, 5, 6, 0.5, 7, 8, 9, 1));
      const [subject, ground] = [borrow(48), borrow(48)];
      kernels.takeCertain(seen, 3, 5, 250, subject, ground);
      return [values(floatsAt(subject, 12)), values(floatsAt(ground, 12))];
    });
    const none = [0, 0, 0, 0];
    assert.deepEqual(out, [
      [...none, ...none, 7, 8, 9, 1],
      [1, 2, 3, 1, ...none, ...none],
    ]);
  });

  it('answerRow: between two functions, and nothing that is nearly certain', () => {
    const out = withMemory(borrow => {
      // alpha = red, and alpha = 3 red + 4 green.
      const models = borrowCopy(borrow, Float32Array.of(1, 0, 0, 0, 3, 4, 0, 0));
      const firsts = borrowCopy(borrow, new Int32Array(6));
      const seconds = borrowCopy(borrow, new Int32Array(6).fill(1));
      const shares = borrowCopy(borrow, Float32Array.of(0, 1, 0.5, 0, 0, 0));
      const pixels = borrowCopy(borrow, new Uint8Array(24).fill(20));
      const alpha = borrowCopy(borrow, Uint8Array.of(128, 128, 128, 5, 250, 32));
      kernels.answerRow(models, firsts, seconds, shares, pixels, alpha, 6, 5, 4);
      return [...bytesAt(alpha, 6)];
    });
    // At 32 the answer counts 4 * 32 / 255.
    assert.deepEqual(out, [20, 140, 80, 5, 250, Math.round(32 + (128 / 255) * (20 - 32))]);
  });

  it('mixModels: a row between two', () => {
    const out = withMemory(borrow => {
      const rows = borrowCopy(borrow, Float32Array.of(...lanes(0), ...lanes(8), ...lanes(100)));
      const mixed = borrow(32);
      kernels.mixModels(rows, rows + 16, 0.25, mixed, 2);
      return values(floatsAt(mixed, 8));
    });
    assert.deepEqual(out, [...lanes(2), ...lanes(31)]);
  });
});

describe('rows of a new size', () => {
  it('averageBoxes: means of whole boxes and of the part at the end, white too', () => {
    const stride = 37;
    for (const [columns, rows, from] of [
      [16, 16, 255],
      [5, 3, 0],
      [2, 2, 7],
      [1, 1, 90],
    ] as const) {
      const image = Uint8Array.from({ length: 4 * stride * rows }, (_, i) =>
        from === 255 ? 255 : (from + i * 7) % 256,
      );
      const boxes = Math.ceil(stride / columns);
      const out = withMemory(borrow => {
        const pixels = borrowCopy(borrow, image);
        const at = borrow(4 * boxes);
        kernels.averageBoxes(pixels, stride, stride, columns, rows, at);
        return [...bytesAt(at, 4 * boxes)];
      });
      for (const [i, mean] of out.entries()) {
        const left = (i >> 2) * columns;
        const right = Math.min(stride, left + columns);
        let sum = 0;
        for (let y = 0; y < rows; y++) {
          for (let x = left; x < right; x++)
            sum += elementAt(image, 4 * (y * stride + x) + (i % 4));
        }
        const expected = sum / ((right - left) * rows);
        assert.ok(Math.abs(mean - expected) <= 0.5, `${columns}x${rows}: ${mean} for ${expected}`);
      }
    }
  });

  it('acrossGrey, acrossColour: by weights over any number of rows, rounded and clamped', () => {
    const cases: [taps: number, weights: number[], expected: number[]][] = [
      [1, [1], [10, 20, 30, 40]],
      [3, [0.25, 0.5, 0.25], [20, 30, 40, 50]],
      [5, [0, 0, 0, 0, 10], [255, 255, 255, 255]],
      [5, [-9, 0, 0, 0, 0], [0, 0, 0, 0]],
    ];
    for (const [taps, weights, expected] of cases) {
      const grey = withMemory(borrow => {
        const rows = Array.from({ length: taps }, (_, row) =>
          borrowCopy(
            borrow,
            Float32Array.of(10, 20, 30, 40).map(value => value + 10 * row),
          ),
        );
        const rowsAt = borrowCopy(borrow, Int32Array.from(rows));
        const weightsAt = borrowCopy(borrow, Float32Array.from(weights));
        const out = borrow(4);
        kernels.acrossGrey(rowsAt, weightsAt, taps, 4, out);
        const one = [...bytesAt(out, 4)];
        kernels.acrossColour(rowsAt, weightsAt, taps, 1, 4, out);
        assert.deepEqual([...bytesAt(out, 4)], one);
        return one;
      });
      assert.deepEqual(grey, expected);
    }
  });
});
