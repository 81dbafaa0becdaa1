/** Preloaded: shifts Date by MATTING_TEST_CLOCK_SHIFT_MS, but not performance.now. */
let shiftMs = Number(process.env.MATTING_TEST_CLOCK_SHIFT_MS ?? 0);
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

export function shiftClock(ms: number): void {
  shiftMs = ms;
}

globalThis.Date = ShiftedDate as DateConstructor;
