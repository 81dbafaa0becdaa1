import assert from 'node:assert/strict';
import { frameRange, regionIn, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Finishing, Length } from '@matting/proto/contract/finishing.ts';
import {
  FRAME_PIXELS_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
} from '@matting/proto/contract/limits.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { boxInResult, type Layout, layOut } from './layout.ts';

const NO_MARGIN = { top: { px: 0 }, right: { px: 0 }, bottom: { px: 0 }, left: { px: 0 } };

const side = fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 10_000 }));
const input = fc.record({ width: side, height: side });
const length: fc.Arbitrary<Length> = fc.oneof(
  fc.record({ px: fc.oneof(fc.double({ min: 0, max: 300, noNaN: true }), fc.constant(1e300)) }),
  fc.record({ percent: fc.double({ min: 0, max: 500, noNaN: true }) }),
);
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const percent = fc.double({ min: 0, max: 100, noNaN: true });
const finishing = fc
  .record({
    crop: optional(fc.record({ top: length, right: length, bottom: length, left: length })),
    scalePercent: optional(fc.double({ min: 10, max: 100, noNaN: true })),
    position: optional(
      fc.oneof(
        fc.constant('original' as const),
        fc.record({ xPercent: percent, yPercent: percent }),
      ),
    ),
    outputWidth: optional(fc.integer({ min: 1, max: 10_000 })),
    outputHeight: optional(fc.integer({ min: 1, max: 5_000 })),
    sizeMaxMegapixels: optional(fc.double({ min: 0.01, max: 100, noNaN: true })),
    enlarge: optional(fc.constant(false as const)),
    aspectRatio: optional(
      fc.record({
        width: fc.double({ min: 1, max: 100, noNaN: true }),
        height: fc.double({ min: 1, max: 100, noNaN: true }),
      }),
    ),
  })
  .map(record => {
    const given = Object.entries(record).filter(([, value]) => value !== undefined);
    const { aspectRatio, ...asked } = Object.fromEntries(given) as Finishing;
    const hasBoth = asked.outputWidth !== undefined && asked.outputHeight !== undefined;
    return aspectRatio === undefined || hasBoth ? asked : { ...asked, aspectRatio };
  });

/** A box from four numbers of 0 to 1. */
function boxIn({ width, height }: { width: number; height: number }, at: readonly number[]): Box {
  const [x = 0, y = 0, w = 0, h = 0] = at;
  const left = Math.min(width - 1, Math.floor(x * width));
  const top = Math.min(height - 1, Math.floor(y * height));
  return {
    left,
    top,
    width: Math.max(1, Math.ceil(w * (width - left))),
    height: Math.max(1, Math.ceil(h * (height - top))),
  };
}
const shares = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 4, maxLength: 4 });

function requireInside({ left, top, width, height }: Box, of: { width: number; height: number }) {
  for (const value of [left, top, width, height]) assert.ok(Number.isInteger(value), `${value}`);
  assert.ok(left >= 0 && top >= 0 && width >= 1 && height >= 1);
  assert.ok(left + width <= of.width && top + height <= of.height);
}

test('any layout › stays inside of input, frame and limits, and shows the subject', t => {
  holds(
    t,
    [input, optional(shares), finishing],
    (size, at, asked) => {
      const subject = at && boxIn(size, at);
      const layout = layOut(size, subject, asked);
      const { frame, source, target } = layout;
      requireInside(source, size);
      requireInside(target, frame);
      requireInside({ left: 0, top: 0, ...frame }, { width: 10_000, height: 10_000 });
      const pixels = frame.width * frame.height;
      assert.ok(pixels <= IMAGE_PIXELS_MAX);
      const max = asked.sizeMaxMegapixels;
      // A frame of one pixel does not shrink.
      assert.ok(max === undefined || pixels <= Math.max(max * 1e6, IMAGE_SIDE_PX_MAX));
      if (subject !== undefined) requireInside(boxInResult(layout, subject), frame);
    },
    { numRuns: 3000 },
  );
});

test('any layout › has a frame that is refused, or within what was reckoned before the picture was seen', t => {
  holds(
    t,
    [input, optional(shares), finishing],
    (size, at, asked) => {
      const subject = at && boxIn(size, at);
      const { frame } = layOut(size, subject, asked);
      const pixels = frame.width * frame.height;
      const max = Math.max(FRAME_PIXELS_MAX, size.width * size.height);
      const known = frameRange(asked, size, { turned: false });
      if (subject !== undefined) assert.ok(pixels >= known.least, 'less than the least');
      const refuse = () => requireFrame(asked, size, pixels);
      if (pixels > max) assert.throws(refuse, { code: 'INVALID_PARAMETER' });
      else refuse();
      if (pixels > max) return;
      const asStored = [size, { width: size.height, height: size.width }];
      const headers = asStored.map(stored => frameRange(asked, stored, { turned: true }));
      for (const { most } of [known, ...headers, frameRange(asked, undefined, { turned: true })])
        assert.ok(pixels <= most, `${pixels} of at most ${most}`);
      if (subject === undefined) return;
      for (const { least } of headers) assert.ok(least <= pixels);
    },
    { numRuns: 5000 },
  );
});

test('any layout › has the very frame that was reckoned where no subject decides', t => {
  const plain = finishing.map(({ crop, scalePercent, ...asked }) => {
    const isNamed = asked.outputWidth !== undefined && asked.outputHeight !== undefined;
    return isNamed ? { ...asked, ...(crop && { crop }) } : asked;
  });
  holds(
    t,
    [input, shares, plain],
    (size, at, asked) => {
      const { frame } = layOut(size, boxIn(size, at), asked);
      const pixels = frame.width * frame.height;
      const max = Math.max(FRAME_PIXELS_MAX, size.width * size.height);
      const { least, most } = frameRange(asked, size, { turned: false });
      assert.deepEqual([least, most], [pixels, Math.min(max, pixels)]);
    },
    { numRuns: 3000 },
  );
});

test('any layout › keeps proportions within a pixel', t => {
  holds(
    t,
    [input, shares, finishing],
    (size, at, asked) => {
      const { source, target } = layOut(size, boxIn(size, at), asked);
      const scale = Math.max(target.width / source.width, target.height / source.height);
      // Edges are rounded, two for each side.
      const slack = Math.max(source.width, source.height) * scale;
      assert.ok(
        Math.abs(source.width * scale - target.width) <= 1.5 + slack * 1e-9 + 1.5 * ratio(source),
      );
      assert.ok(
        Math.abs(source.height * scale - target.height) <= 1.5 + slack * 1e-9 + 1.5 * ratio(source),
      );
    },
    { numRuns: 2000 },
  );
});

test('any layout › keeps the subject at its own pixels where it is not to be enlarged', t => {
  holds(
    t,
    [input, shares, finishing],
    (size, at, asked) => {
      const subject = boxIn(size, at);
      const kept = layOut(size, subject, { ...asked, enlarge: false });
      const free = layOut(size, subject, { ...asked, enlarge: true as never });
      assert.deepEqual(kept.frame, free.frame, 'the frame keeps the size that was asked for');
      assert.ok(kept.target.width <= kept.source.width, 'wider');
      assert.ok(kept.target.height <= kept.source.height, 'higher');
      const isSmaller =
        free.target.width < free.source.width && free.target.height < free.source.height;
      if (isSmaller) assert.deepEqual(kept, free, 'it changes nothing else');
    },
    { numRuns: 3000 },
  );
});

test('any layout › has the proportions that were asked for, and is padded, never cut', t => {
  const ratioed = finishing.map((any: Finishing) => {
    const { outputHeight, sizeMaxMegapixels, aspectRatio, ...asked } = any;
    return { ...asked, aspectRatio: aspectRatio ?? { width: 1, height: 1 } };
  });
  holds(
    t,
    [input, optional(shares), ratioed],
    (size, at, { aspectRatio, ...asked }) => {
      const subject = at && boxIn(size, at);
      const { frame } = layOut(size, subject, { ...asked, aspectRatio });
      const across = (frame.height * aspectRatio.width) / aspectRatio.height;
      const down = (frame.width * aspectRatio.height) / aspectRatio.width;
      // A side is rounded by half a pixel, which the other multiplies.
      assert.ok(Math.abs(frame.width - across) <= 1 || Math.abs(frame.height - down) <= 1);
      if (asked.outputWidth !== undefined) return;
      const plain = layOut(size, subject, asked).frame;
      const isWithin = frame.width < IMAGE_SIDE_PX_MAX && frame.height < IMAGE_SIDE_PX_MAX;
      if (!isWithin || frame.width * frame.height > 0.99 * IMAGE_PIXELS_MAX) return;
      assert.ok(frame.width >= plain.width && frame.height >= plain.height);
    },
    { numRuns: 3000 },
  );
});

test('any layout › copies every pixel where nothing is scaled', t => {
  const unscaled = finishing.map(({ crop = NO_MARGIN, scalePercent, position }) => ({
    crop: { ...crop, top: { px: 7 }, right: { px: 3 } },
    ...(scalePercent === undefined ? {} : { scalePercent: Math.max(60, scalePercent) }),
    ...(position === undefined ? {} : { position }),
  }));
  const small = fc.record({
    width: fc.integer({ min: 1, max: 900 }),
    height: fc.integer({ min: 1, max: 900 }),
  });
  holds(
    t,
    [small, shares, unscaled],
    (size, at, { crop, ...asked }) => {
      const margins = { ...crop, bottom: { percent: 20 }, left: { percent: 12.5 } };
      const { source, target } = layOut(size, boxIn(size, at), { ...asked, crop: margins });
      assert.deepEqual([target.width, target.height], [source.width, source.height]);
    },
    { numRuns: 2000 },
  );
});

const ratio = ({ width, height }: Box) => Math.max(width / height, height / width);

const size = { width: 1000, height: 600 };
const subject = { left: 200, top: 100, width: 300, height: 400 };
const lay = (asked: Finishing, seen: Box | undefined = subject): Layout =>
  layOut(size, seen, asked);

test('a layout › without anything is the input', t => {
  const whole = { left: 0, top: 0, ...size };
  t.deepEqual(lay({}), { frame: size, source: whole, target: whole });
  t.deepEqual(layOut(size, undefined, { crop: NO_MARGIN, scalePercent: 50 }), lay({}));
});

test('a layout › cropped is the subject with its margins, px and percent of its own sides', t => {
  const crop = {
    top: { px: 10 },
    right: { percent: 10 },
    bottom: { percent: 5 },
    left: { px: 0 },
  };
  const { frame, source, target } = lay({ crop });
  t.deepEqual(frame, { width: 330, height: 430 });
  t.deepEqual(source, { left: 200, top: 90, width: 330, height: 430 });
  t.deepEqual(target, { left: 0, top: 0, ...frame });
});

test('a layout › cropped beyond the input has nothing there', t => {
  const crop = { ...NO_MARGIN, top: { px: 150 }, left: { px: 300 } };
  const { frame, source, target } = lay({ crop });
  t.deepEqual(frame, { width: 600, height: 550 });
  t.deepEqual(source, { left: 0, top: 0, width: 500, height: 500 });
  t.deepEqual(target, { left: 100, top: 50, width: 500, height: 500 });
});

test('a layout › is white, square, 85 % subject: in the middle, its longer side 85 % of the frame', t => {
  const asked = { crop: NO_MARGIN, scalePercent: 85, outputWidth: 1000, outputHeight: 1000 };
  const { frame, target } = lay(asked);
  t.deepEqual(frame, { width: 1000, height: 1000 });
  // 300 x 400 at 2.125; the middle of an odd space is half a pixel off.
  t.deepEqual(target, { left: 181, top: 75, width: 638, height: 850 });
});

test('a layout › scaled without a crop keeps the frame of the input', t => {
  const { frame, target } = lay({ scalePercent: 50 });
  t.deepEqual([frame, target], [size, { left: 388, top: 150, width: 225, height: 300 }]);
});

test('a layout › cropped and scaled has a frame around the subject at its own pixels', t => {
  const { frame, target } = lay({ crop: NO_MARGIN, scalePercent: 50 });
  t.deepEqual(frame, { width: 600, height: 800 });
  t.deepEqual(target, { left: 150, top: 200, width: 300, height: 400 });
});

test('a layout › lies where the position says', t => {
  const at = (xPercent: number, yPercent: number) => {
    const position = { xPercent, yPercent };
    const { left, top } = lay({ scalePercent: 50, position }).target;
    return [left, top];
  };
  t.deepEqual(
    [at(0, 0), at(100, 100), at(0, 50)],
    [
      [0, 0],
      [775, 300],
      [0, 150],
    ],
  );
  const { left, top } = lay({ scalePercent: 50, position: 'original' }).target;
  // The subject's middle, 350 300 of 1000 600, stays there.
  t.deepEqual([left + 225 / 2, top + 150], [350.5, 300]);
  const edge = layOut(
    size,
    { left: 0, top: 0, width: 100, height: 100 },
    { scalePercent: 90, position: 'original' },
  );
  t.deepEqual([edge.target.left, edge.target.top], [0, 0], 'as far as the edges let it');
});

test('a layout › takes the other side from the contents', t => {
  t.deepEqual(lay({ outputWidth: 500 }).frame, { width: 500, height: 300 });
  t.deepEqual(lay({ outputHeight: 60 }).frame, { width: 100, height: 60 });
  t.deepEqual(lay({ crop: NO_MARGIN, outputHeight: 40 }).frame, { width: 30, height: 40 });
});

test('a layout › is 2000 pixels wide and keeps a small subject at its own pixels', t => {
  const asked = { crop: NO_MARGIN, scalePercent: 85, outputWidth: 2000, outputHeight: 2000 };
  const { frame, target } = lay({ ...asked, enlarge: false });
  t.deepEqual(frame, { width: 2000, height: 2000 });
  t.deepEqual(target, { left: 850, top: 800, width: 300, height: 400 });
});

test('a layout › takes a square from the subject at its own pixels, or from one side', t => {
  const aspectRatio = { width: 1, height: 1 };
  const square = lay({ crop: NO_MARGIN, aspectRatio });
  t.deepEqual(square.frame, { width: 400, height: 400 });
  t.deepEqual(square.target, { left: 50, top: 0, width: 300, height: 400 });
  t.deepEqual(lay({ aspectRatio }).target, { left: 0, top: 200, ...size });
  t.deepEqual(lay({ aspectRatio, outputWidth: 500 }).frame, { width: 500, height: 500 });
  t.deepEqual(lay({ aspectRatio: { width: 4, height: 5 }, outputHeight: 500 }).frame, {
    width: 400,
    height: 500,
  });
});

test('a layout › leaves no strip where the frame follows from the contents', t => {
  for (const sizeMaxMegapixels of [0.01, 0.0371, 0.25, 0.4999]) {
    for (const odd of [size, { width: 997, height: 601 }, { width: 601, height: 33 }]) {
      const { frame, target } = layOut(odd, undefined, { sizeMaxMegapixels });
      t.deepEqual(target, { left: 0, top: 0, ...frame });
      t.true(frame.width * frame.height <= sizeMaxMegapixels * 1e6);
    }
  }
  for (const outputWidth of [1, 7, 333, 999, 3001]) {
    const { frame, target } = lay({ crop: NO_MARGIN, outputWidth });
    t.deepEqual(target, { left: 0, top: 0, ...frame });
  }
});

test('a layout › says where the subject came to lie', t => {
  t.deepEqual(boxInResult(lay({ outputWidth: 500 }), subject), {
    left: 100,
    top: 50,
    width: 150,
    height: 200,
  });
});

const px = (value: number) => ({ px: value });

test('a region › is cut off at the input', t => {
  const region = {
    left: px(-0),
    top: { percent: 50 },
    right: px(5000),
    bottom: { percent: 400 },
  };
  t.deepEqual(regionIn(size, region), { left: 0, top: 300, width: 1000, height: 300 });
});

test('a region › without a pixel of the input is the fault of the request', t => {
  for (const region of [
    { left: px(1000), top: px(0), right: px(2000), bottom: px(10) },
    { left: px(20), top: px(0), right: px(20), bottom: px(10) },
    { left: px(30), top: px(0), right: px(20), bottom: px(10) },
  ]) {
    t.throws(() => regionIn(size, region), { code: 'INVALID_PARAMETER', message: /region/ });
  }
});
