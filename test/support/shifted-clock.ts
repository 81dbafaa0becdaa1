/** Preloaded, it moves Date by MATTING_TEST_CLOCK_SHIFT_MS; performance.now stays. */
const shiftMs = Number(process.env.MATTING_TEST_CLOCK_SHIFT_MS ?? 0);
const RealDate = Date;

class ShiftedDate extends RealDate {
  constructor(...args: unknown[]) {
    if (args.length === 0) super(ShiftedDate.now());
    else super(...(args as [number]));
  }

  static override now(): number {
    return RealDate.now() + shiftMs;
  }
}

globalThis.Date = ShiftedDate as DateConstructor;
