/** Preloaded, it moves Date by MATTING_TEST_CLOCK_SHIFT_MS; performance.now stays. */
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

/** Moves the clock of this process, from now on. */
export function shiftClock(ms: number): void {
  shiftMs = ms;
}

globalThis.Date = ShiftedDate as DateConstructor;
