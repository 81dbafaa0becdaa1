/**
 * Preloaded (`node --import`), it makes a process's clock wrong by MATTING_TEST_CLOCK_SHIFT_MS, as
 * that of a machine without time synchronisation is. The database's and the file system's clocks
 * and those that only measure lengths (performance.now, timers) stay as they are.
 */
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
